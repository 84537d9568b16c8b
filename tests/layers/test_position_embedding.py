"""Position embeddings: learned, resized to other grids, or computed from sines and cosines."""

import keras
import numpy as np
import pytest

from keras_vit.config.vit import POSITION_RESIZES
from keras_vit.errors import ConfigError
from keras_vit.layers import AddPositionEmbs
from tests import formulas
from tests.helpers import assert_close, randomise, read_weights, run
from tests.plain import ROUNDING, normal, raises
from tests.runs import sample

pytestmark = pytest.mark.every_backend


def built(grid, class_token=False, **arguments):
    """A layer for tokens of 8 channels with random embeddings for the grid."""
    layer = AddPositionEmbs(grid, class_token, name="position_embedding", **arguments)
    layer.build(zeros(grid, class_token).shape)
    return randomise(layer)


def zeros(grid, class_token=False):
    """Zero tokens of a grid, for which the output of the layer is the embeddings."""
    return np.zeros((1, grid[0] * grid[1] + class_token, 8), "float32")


def patches(grid):
    """The argument `patches`, whose shape gives the layer the grid of its tokens."""
    return np.zeros((1, *grid, 1), "float32")


RESIZES = {
    "bilinear_align_corners": formulas.zoom,
    "bilinear_half_pixel": formulas.torch_resize("bilinear"),
    "bilinear_longer_side": formulas.resize_to_longer_side,
    "bilinear_antialias": formulas.torch_resize("bilinear", antialias=True),
    "bicubic": formulas.torch_resize("bicubic"),
    "bicubic_catmull_rom": formulas.jax_resize,
    "bicubic_antialias": formulas.torch_resize("bicubic", antialias=True),
}


@pytest.mark.parametrize("target", sample([(5, 4), (2, 7), (1, 1), (6, 2)], (2, 7)))
@pytest.mark.parametrize("resize", POSITION_RESIZES)
def test_embeddings_are_resized_to_another_grid(resize, target):
    """Each method equals a resize of scipy, torch or JAX."""
    source = (3, 4)
    layer = built(source, resize=resize)
    embedding = read_weights(layer)["embedding"][0]
    expected = RESIZES[resize](embedding, source, target)
    assert_close(run(layer, zeros(target), patches=patches(target))[0], expected, 2e-6)


def test_embeddings_for_the_layers_own_grid_are_not_resized():
    """The output is the stored embeddings, bit by bit."""
    layer = built((2, 3))
    actual = run(layer, zeros((2, 3)), patches=patches((2, 3)))
    np.testing.assert_array_equal(actual, read_weights(layer)["embedding"].astype("float32"))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_resize_under_a_mixed_policy_only_rounds(policy):
    """From 14 to 37 rows: the interpolation weights need more than 16 bits."""
    source, target = (14, 2), (37, 2)
    layer = built(source, dtype=policy)
    embedding = read_weights(layer)["embedding"][0]
    actual = layer(zeros(target), patches=patches(target))[0]
    assert_close(actual, formulas.zoom(embedding, source, target), ROUNDING[policy] / 4)


def test_a_saved_model_keeps_the_inferred_grid(tmp_path):
    """The loaded layer resizes from the saved grid, whichever grid comes first."""
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


def places(*grids, padding=2):
    """Row and column of every patch of some images, as packed patches state them."""
    most = padding + max(rows * columns for rows, columns in grids)
    found = np.full((len(grids), most, 2), -1, "int32")
    for image, (rows, columns) in zip(found, grids, strict=True):
        image[: rows * columns] = np.argwhere(np.ones((rows, columns)))
    return found


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("resize", sorted(RESIZES.keys() - {"bilinear_longer_side"}))
def test_images_with_a_grid_each_have_their_positions_in_one_batch(resize, class_token):
    """As if each were alone; padding reads the first patch, so that it is finite."""
    layer = built((3, 4), class_token, resize=resize)
    grids = ((2, 5), (4, 1), (3, 4), (6, 2))
    given = places(*grids)
    tokens = np.zeros((len(grids), given.shape[1] + class_token, 8), "float32")
    actual = run(layer, tokens, places=given)
    assert np.isfinite(actual).all()
    for image, grid in zip(actual, grids, strict=True):
        alone = run(layer, zeros(grid, class_token), patches=patches(grid))[0]
        assert_close(image[: len(alone)], alone, 2e-6)


@pytest.mark.parametrize(
    ("class_token", "shapes", "grid"),
    [
        (False, [(None, 9, 8)], (3, 3)),
        (True, [(None, 10, 8)], (3, 3)),
        (True, [(None, 7, 8), (None, 2, 3, 1)], (2, 3)),
    ],
)
def test_without_a_grid_the_layer_infers_the_grid(class_token, shapes, grid):
    """A square from the number of tokens, or the grid of the first `patches`."""
    layer = AddPositionEmbs(class_token=class_token, name="position_embedding")
    layer.build(*shapes)
    assert layer.grid == grid
    assert read_weights(layer)["embedding"].shape == (1, *shapes[0][1:])


@pytest.mark.parametrize(
    ("grid", "class_token", "words"),
    [
        (None, False, ["7 tokens", "class_token=False", "grid=(rows, columns)"]),
        ((2, 3), False, ["7 tokens", "grid=(2, 3)", "class_token=False", "patches"]),
    ],
)
def test_tokens_that_fit_no_grid_are_refused(grid, class_token, words):
    """No square, or another grid without `patches`; the message names the argument to pass."""
    with raises(ConfigError, *words):
        AddPositionEmbs(grid, class_token=class_token)(normal(1, 7, 8))
