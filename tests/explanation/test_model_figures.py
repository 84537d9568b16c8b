"""The figures of the papers as numbers, against their definitions in NumPy."""

import keras
import numpy as np
import pytest

from keras_vit import ConfigError, VisionTransformer, attention_maps
from keras_vit.explanation import (
    attention_distance,
    looks_untrained,
    patch_filters,
    position_similarity,
    token_norms,
)
from tests.helpers import HYBRID, assert_close, normal, numpy_of, random_tiny

not_by_backend = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="NumPy makes it of weights, tokens or attention"
)


@not_by_backend
def test_patch_filters_are_the_principal_components_of_scikit_learn():
    """Up to their sign."""
    from sklearn.decomposition import PCA

    model = random_tiny(hidden_size=32)
    found = patch_filters(model, count=5)
    filters = numpy_of(model.get_layer("patch_embedding").kernel).reshape(-1, 32).T
    pca = PCA(5, svd_solver="full").fit(filters.astype("float64"))
    kernels = found.kernels.reshape(5, -1)
    wanted = pca.components_ * np.sign((kernels * pca.components_).sum(1))[:, None]
    assert_close(kernels, wanted)
    assert_close(found.explained, pca.explained_variance_ratio_)
    assert (np.take_along_axis(kernels, np.abs(kernels).argmax(1)[:, None], 1) > 0).all()


@not_by_backend
def test_patch_filters_of_a_hybrid_are_the_kernels_of_its_root():
    """Standardised, as the convolution uses them."""
    found = patch_filters(random_tiny(**HYBRID), count=4)
    assert (found.kernels.shape, found.explained) == ((4, 7, 7, 3), None)
    np.testing.assert_allclose(found.kernels.mean((1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(found.kernels.std((1, 2, 3)), 1, atol=1e-4)


@not_by_backend
@pytest.mark.parametrize("fields", [{}, {"position": "sincos2d"}, {"num_registers": 2}])
def test_position_similarity_is_the_cosine_of_position_embeddings(fields):
    """Class token and registers are left out."""
    model = random_tiny(image_size=(24, 16), **fields)
    found = position_similarity(model)
    assert found.shape == (3, 2, 3, 2)
    if not fields:
        table = numpy_of(model.get_layer("position_embedding").embedding)[0, 1:]
        one, other = table[3], table[4]  # row 1, column 1; row 2, column 0
        wanted = one @ other / np.sqrt((one @ one) * (other @ other))
        np.testing.assert_allclose(found[1, 1, 2, 0], wanted, atol=1e-6)
    np.testing.assert_allclose(np.einsum("rcrc->rc", found), 1, atol=1e-6)


@not_by_backend
def test_a_model_without_positions_is_refused():
    with pytest.raises(ConfigError, match="where there are some; the model has none"):
        position_similarity(random_tiny(position="none"))


@not_by_backend
def test_attention_distance_is_the_mean_distance_of_patches_weighted_by_attention():
    """In pixels between the centres of patches; registers are left out."""
    model = random_tiny(image_size=(16, 24), patch_size=(8, 4), num_registers=2)
    images = normal(2, 16, 24, 3)
    maps = attention_maps(model, images)
    found = attention_distance(maps, model.config.grid, model.config)
    total = np.zeros(2)
    for image in range(2):
        for head in range(2):
            for q in range(12):
                row = maps[0][image, head, 3 + q, 3:]
                far = [np.hypot(8 * (q // 6 - k // 6), 4 * (q % 6 - k % 6)) for k in range(12)]
                total[head] += (row * far).sum() / row.sum() / 24
    assert_close(found[0], total)


@not_by_backend
def test_token_norms_are_the_lengths_of_patch_tokens():
    """Also the share of tokens above three medians."""
    model, images = random_tiny(num_layers=2, num_registers=1), normal(3, 16, 16, 3)
    found = token_norms(model, images, factor=1.2)
    tokens = keras.Model(model.input, model.get_layer("block_1").output).predict(images, verbose=0)
    lengths = np.sqrt((tokens[:, 2:] ** 2).sum(-1))
    assert_close(found.norms[1].reshape(3, 4), lengths)
    assert found.outlier_share[1] == np.float32((lengths > 1.2 * np.median(lengths)).mean())


@not_by_backend
def test_looks_untrained_names_new_positions_and_unsmooth_filters():
    """Trained positions and smooth filters pass."""
    assert looks_untrained(VisionTransformer.from_preset("vit_digits")) == []
    (positions,) = looks_untrained(VisionTransformer.from_preset("vit_digits", load_weights=False))
    assert positions.startswith("Neighbouring positions are more alike than others by")
    model = random_tiny()  # 2 x 2 positions are too few to judge
    (filters,) = looks_untrained(model)
    assert filters.startswith("Neighbouring weights of the filters correlate by")
    smooth = np.cumsum(np.cumsum(normal(8, 8, 3, 16), axis=0), axis=1)
    model.get_layer("patch_embedding").kernel.assign(smooth)
    assert looks_untrained(model) == []
    mixed = smooth.reshape(64, 3, 16)[np.random.default_rng(0).permutation(64)]
    model.get_layer("patch_embedding").kernel.assign(mixed.reshape(8, 8, 3, 16))
    assert len(looks_untrained(model)) == 1
