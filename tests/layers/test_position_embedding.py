"""Position embeddings: added, resized with the grid, or computed."""

import keras
import numpy as np
import pytest

from keras_vit.config import POSITION_RESIZES
from keras_vit.errors import ConfigError
from keras_vit.layers import AddPositionEmbs
from tests import formulas
from tests.helpers import ROUNDING, assert_close, normal, randomise, run, weights_of
from tests.words import raises


def built(grid, class_token=False, **arguments):
    """A layer 8 wide with random embeddings for the grid."""
    layer = AddPositionEmbs(grid, class_token, name="position_embedding", **arguments)
    layer.build(zeros(grid, class_token).shape)
    return randomise(layer)


def zeros(grid, class_token=False):
    """Tokens of a grid, all zero, so that the output is the embeddings."""
    return np.zeros((1, grid[0] * grid[1] + class_token, 8), "float32")


def patches(grid):
    """What tells a layer the grid of its tokens."""
    return np.zeros((1, *grid, 1), "float32")


RESIZES = {
    "bilinear_align_corners": formulas.zoom,
    "bilinear_half_pixel": formulas.torch_resize("bilinear"),
    "bicubic": formulas.torch_resize("bicubic"),
    "bicubic_catmull_rom": formulas.jax_resize,
    "bicubic_antialias": formulas.torch_resize("bicubic", antialias=True),
}


def test_every_resize_has_a_formula():
    """A method that is added to the configuration without one here fails the suite."""
    assert set(RESIZES) == set(POSITION_RESIZES)


@pytest.mark.parametrize("class_token", [False, True])
def test_a_learned_embedding_is_added_to_every_token(class_token):
    """The class token has one of its own, the first."""
    layer = built((2, 3), class_token)
    x = normal(2, 6 + class_token, 8)
    embedding = weights_of(layer)["embedding"]
    assert embedding.shape == (1, 6 + class_token, 8)
    assert_close(run(layer, x), x + embedding, 1e-6)


@pytest.mark.parametrize("target", [(5, 4), (2, 7), (1, 1), (6, 2)])
@pytest.mark.parametrize("resize", RESIZES)
def test_another_grid_is_resized(resize, target):
    """Each method is scipy's or torch's: up, down, to one row, to an equal count of cells."""
    source = (3, 4)
    layer = built(source, resize=resize)
    embedding = weights_of(layer)["embedding"][0]
    expected = RESIZES[resize](embedding, source, target)
    assert_close(run(layer, zeros(target), patches=patches(target))[0], expected, 2e-6)


def test_the_class_position_is_never_resized():
    """The first row stays, the others are resized as without it."""
    layer = built((2, 3), class_token=True)
    embedding = weights_of(layer)["embedding"][0]
    found = run(layer, zeros((4, 5), True), patches=patches((4, 5)))[0]
    np.testing.assert_array_equal(found[0], embedding[0].astype("float32"))
    assert_close(found[1:], formulas.zoom(embedding[1:], (2, 3), (4, 5)), 2e-6)


def test_the_own_grid_is_not_touched_by_resizing():
    """Embeddings for the stored grid are the stored ones to the bit."""
    layer = built((2, 3))
    found = run(layer, zeros((2, 3)), patches=patches((2, 3)))
    np.testing.assert_array_equal(found, weights_of(layer)["embedding"].astype("float32"))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_resize_under_a_mixed_policy_only_rounds(policy):
    """A grid of 14 becomes one of 37: places between points need more than 16 bits."""
    source, target = (14, 2), (37, 2)
    layer = built(source, dtype=policy)
    embedding = weights_of(layer)["embedding"][0]
    found = layer(zeros(target), patches=patches(target))[0]
    assert_close(found, formulas.zoom(embedding, source, target), ROUNDING[policy] / 4)


@pytest.mark.parametrize("class_token", [False, True])
def test_sincos2d_equals_the_formula_and_stores_nothing(class_token):
    """A function of row and column, of any grid; a class token gets none."""
    layer = built((2, 3), class_token, position="sincos2d")
    assert not layer.weights
    for grid in ((2, 3), (4, 5)):
        found = run(layer, zeros(grid, class_token), patches=patches(grid))[0]
        assert not found[:class_token].any()
        assert_close(found[int(class_token) :], formulas.sincos2d(*grid, 8), 1e-6)


def test_sincos2d_does_not_add_to_the_class_token():
    """Its own value passes."""
    layer = built((2, 3), True, position="sincos2d")
    x = normal(1, 7, 8)
    np.testing.assert_array_equal(run(layer, x)[:, 0], x[:, 0])


def test_embeddings_start_at_a_deviation_of_two_hundredths():
    """N(0.02), as in the reference."""
    layer = AddPositionEmbs((10, 10), name="position_embedding")
    layer.build((None, 100, 64))
    assert abs(weights_of(layer)["embedding"].std() - 0.02) < 0.001


@pytest.mark.parametrize(("class_token", "tokens"), [(False, 9), (True, 10)])
def test_a_square_grid_is_told_from_the_tokens(class_token, tokens):
    """Without a grid, the first input's count of tokens decides."""
    layer = AddPositionEmbs(class_token=class_token)
    layer.build((None, tokens, 8))
    assert layer.grid == (3, 3)


def test_a_grid_is_told_from_the_patches():
    """Without a grid, that of the first `patches` is the one remembered."""
    layer = AddPositionEmbs(class_token=True, name="position_embedding")
    layer.build((None, 7, 8), (None, 2, 3, 1))
    assert layer.grid == (2, 3)
    assert weights_of(layer)["embedding"].shape == (1, 7, 8)


def test_a_grid_that_was_told_is_remembered_in_a_file(tmp_path):
    """A model saved with one grid and loaded resizes from that grid, whatever comes first."""
    inputs = {
        "inputs": keras.Input((6, 8), name="inputs"),
        "patches": keras.Input((2, 3, 1), name="patches"),
    }
    layer = AddPositionEmbs(name="position_embedding")
    keras.Model(inputs, layer(**inputs)).save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").get_layer("position_embedding")
    assert loaded.grid == (2, 3)
    call = {"inputs": zeros((4, 5)), "patches": patches((4, 5))}
    np.testing.assert_array_equal(run(loaded, **call), run(layer, **call))


def test_tokens_of_no_square_are_refused_without_a_grid():
    """The message names the tokens and what to pass."""
    with raises(ConfigError, "7 tokens", "class_token=False", "grid=(rows, columns)"):
        AddPositionEmbs()(normal(1, 7, 8))


def test_tokens_of_another_grid_are_refused_without_patches():
    """The message names tokens, grid and what to pass."""
    with raises(ConfigError, "8 tokens", "grid=(2, 3)", "class_token=True", "patches"):
        AddPositionEmbs((2, 3), class_token=True)(normal(1, 8, 8))
