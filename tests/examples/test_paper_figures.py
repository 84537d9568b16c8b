"""The figures of examples/paper/model_figures.py, against their definitions in NumPy."""

import runpy
from pathlib import Path

import keras
import numpy as np

from keras_vit.explanation import attention_maps
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import HYBRID, normal

FILE = Path(__file__).parents[2] / "examples" / "paper" / "model_figures.py"
EXAMPLE = runpy.run_path(str(FILE))
attention_distance = EXAMPLE["attention_distance"]
patch_filters = EXAMPLE["patch_filters"]
position_similarity = EXAMPLE["position_similarity"]
token_norms = EXAMPLE["token_norms"]


def test_patch_filters_are_the_principal_components_of_scikit_learn():
    """Up to their sign."""
    from sklearn.decomposition import PCA

    model = random_tiny(hidden_size=32)
    found = patch_filters(model, count=5)
    filters = to_numpy(model.get_layer("patch_embedding").kernel).reshape(-1, 32).T
    pca = PCA(5, svd_solver="full").fit(filters.astype("float64"))
    kernels = found.kernels.reshape(5, -1)
    wanted = pca.components_ * np.sign((kernels * pca.components_).sum(1))[:, None]
    assert_close(kernels, wanted)
    assert_close(found.explained, pca.explained_variance_ratio_)
    assert (np.take_along_axis(kernels, np.abs(kernels).argmax(1)[:, None], 1) > 0).all()


def test_patch_filters_of_a_hybrid_are_the_kernels_of_its_root():
    """Standardised, as the convolution uses them."""
    found = patch_filters(random_tiny(**HYBRID), count=4)
    assert (found.kernels.shape, found.explained) == ((4, 7, 7, 3), None)
    np.testing.assert_allclose(found.kernels.mean((1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(found.kernels.std((1, 2, 3)), 1, atol=1e-4)


def test_position_similarity_is_the_cosine_of_position_embeddings():
    """Class token and registers are left out."""
    model = random_tiny(image_size=(24, 16), tokens={"registers": 2})
    similar = position_similarity(model)
    table = to_numpy(model.get_layer("position_embedding").embedding)[0, -6:]
    one, other = table[3], table[4]  # row 1, column 1; row 2, column 0
    cosine = one @ other / np.sqrt((one @ one) * (other @ other))
    np.testing.assert_allclose(similar[1, 1, 2, 0], cosine, atol=1e-6)
    np.testing.assert_allclose(np.einsum("rcrc->rc", similar), 1, atol=1e-6)


def test_attention_distance_is_a_mean_weighted_by_attention():
    """In pixels between the centres of patches; registers are left out."""
    model = random_tiny(image_size=(16, 24), patch_size=(8, 4), tokens={"registers": 2})
    images = normal(2, 16, 24, 3)
    maps = attention_maps(model, images, prepared=True)
    found = attention_distance(maps, model.config.grid, model.config)
    total = np.zeros(2)
    for image in range(2):
        for head in range(2):
            for q in range(12):
                row = maps["block_0/attention"][image, head, 3 + q, 3:]
                far = [np.hypot(8 * (q // 6 - k // 6), 4 * (q % 6 - k % 6)) for k in range(12)]
                total[head] += (row * far).sum() / row.sum() / 24
    assert_close(found[0], total)


def test_token_norms_are_the_lengths_of_patch_tokens():
    """Also the share of tokens above three medians."""
    model, images = random_tiny(num_layers=2, tokens={"registers": 1}), normal(3, 16, 16, 3)
    found = token_norms(model, images, factor=1.2)
    tokens = keras.Model(model.input, model.get_layer("block_1").output).predict(images, verbose=0)
    lengths = np.sqrt((tokens[:, 2:] ** 2).sum(-1))
    assert_close(found.norms[1].reshape(3, 4), lengths)
    assert found.outlier_share[1] == np.float32((lengths > 1.2 * np.median(lengths)).mean())


def test_the_example_draws_every_figure_of_the_documentation(tmp_path):
    EXAMPLE["draw"](tmp_path)
    names = ("distances", "filters", "norms", "positions")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}_{word}.png" for name in names for word in ("random", "trained")
    ]
