"""The figures of examples/paper/model_figures.py, against their definitions in NumPy."""

import numpy as np
from sklearn.decomposition import PCA

from keras_vit.explanation import attention_maps
from tests.examples import load
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal

EXAMPLE = load("paper/model_figures.py")
attention_distance = EXAMPLE["attention_distance"]
patch_filters = EXAMPLE["patch_filters"]


def test_patch_filters_are_the_principal_components_of_scikit_learn():
    """Up to their sign."""
    model = random_tiny(hidden_size=32)
    found = patch_filters(model, count=5)
    filters = to_numpy(model.get_layer("patch_embedding").kernel).reshape(-1, 32).T
    pca = PCA(5, svd_solver="full").fit(filters.astype("float64"))
    kernels = found.kernels.reshape(5, -1)
    wanted = pca.components_ * np.sign((kernels * pca.components_).sum(1))[:, None]
    assert_close(kernels, wanted)
    assert_close(found.explained, pca.explained_variance_ratio_)
    assert (np.take_along_axis(kernels, np.abs(kernels).argmax(1)[:, None], 1) > 0).all()


def test_attention_distance_is_a_mean_weighted_by_attention():
    """In pixels between the centres of patches; registers are left out."""
    model = random_tiny(image_size=(16, 24), patch_size=(8, 4), tokens={"registers": 2})
    images = normal(2, 16, 24, 3)
    maps = attention_maps(model, images, prepared=True)
    found = attention_distance(maps, model.config.grid, model.config)
    places = np.stack(np.mgrid[:2, :6], axis=-1).reshape(12, 2) * (8, 4)
    far = np.linalg.norm(places[:, None] - places, axis=-1)
    weights = maps["block_0/attention"][:, :, 3:, 3:]
    total = ((weights * far).sum(-1) / weights.sum(-1)).mean((0, 2))
    assert_close(found[0], total)


def test_the_example_draws_every_figure_of_the_documentation(tmp_path):
    EXAMPLE["draw"](tmp_path)
    names = ("distances", "filters", "norms", "positions")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}_{word}.png" for name in names for word in ("random", "trained")
    ]
