"""Positions: learned, resized, or of sines; rotary tables; biases by distance."""

import keras
import numpy as np
import pytest

from keras_vit import kernels
from keras_vit.checkpoints.adapt import resize_distances
from keras_vit.config.vit import POSITION_RESIZES
from keras_vit.explanation import attention_maps
from keras_vit.layers import AddPositionEmbs, MixedFrequencies, RotaryPositions
from keras_vit.layers.relative_position_bias import RelativePositionBias
from keras_vit.models import inference
from tests import formulas
from tests.helpers import assert_close, random_tiny, randomise, read_weights, run, to_numpy
from tests.plain import MIXED_POLICIES, ROUNDING, normal
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
    """Each method equals a resize of scipy, torch or JAX; the layer's own grid stays bit by bit."""
    source = (3, 4)
    layer = built(source, resize=resize)
    embedding = read_weights(layer)["embedding"][0]
    expected = RESIZES[resize](embedding, source, target)
    assert_close(run(layer, zeros(target), patches=patches(target))[0], expected, 2e-6)
    same = layer(zeros(source), patches=patches(source))[0]
    np.testing.assert_array_equal(to_numpy(same), embedding.astype("float32"))


@pytest.mark.parametrize("policy", MIXED_POLICIES)
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


PACKED = [
    (resize, class_token)
    for resize in sorted(RESIZES.keys() - {"bilinear_longer_side"})
    for class_token in (False, True)
]


@pytest.mark.parametrize(
    ("resize", "class_token"),
    sample(PACKED, ("bicubic_antialias", True), ("bilinear_align_corners", False)),
)
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


@pytest.mark.parametrize("class_token", [False, True])
def test_without_a_grid_the_layer_infers_a_square_from_the_number_of_tokens(class_token):
    layer = AddPositionEmbs(class_token=class_token)
    layer.build((None, 9 + class_token, 8))
    assert layer.grid == (3, 3)
    assert layer.embedding.shape == (1, 9 + class_token, 8)


ROPES = {
    "dinov3": {"form": "dinov3", "theta": 100.0},
    "eva02": {"form": "axial", "theta": 10_000.0, "reference_grid": (16, 16)},
    "rope_vit": {"form": "axial_xy", "theta": 100.0},
    "pe": {"form": "axial_xy_from_1", "theta": 10_000.0, "reference_grid": (24, 12)},
}


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_a_table_rotates_pairs_of_channels_by_the_angles_of_their_patch(rope):
    """Each pair of channels is a complex number, multiplied by e^(i angle)."""
    grid, x, form = (3, 5), normal(2, 15, 3, 8), rope["form"]
    rotary = keras.ops.expand_dims(RotaryPositions(8, **rope)(patches(grid)), 2)
    actual = kernels.rotate(keras.ops.convert_to_tensor(x), rotary, form != "dinov3")
    angles = formulas.rotary_angles(*grid, 8, **rope)
    pairs = "halves" if form == "dinov3" else "neighbours"
    expected = formulas.rotated(np.swapaxes(x, 1, 2), angles, pairs)
    assert_close(actual, np.swapaxes(expected, 1, 2).astype("float32"), 2e-6)


def test_mixed_frequencies_start_as_rotated_axial_frequencies():
    """The two halves of a head have the axial magnitudes, in directions at right angles."""
    first, second = to_numpy(MixedFrequencies(theta=10.0, seed=0)((2, 3, 4)))
    sizes = np.hypot(first, second)
    np.testing.assert_allclose(sizes, np.tile(10.0 ** -np.array([0, 0.5, 0, 0.5]), (3, 1)), 1e-5)
    dot = first[:, :2] * first[:, 2:] + second[:, :2] * second[:, 2:]
    np.testing.assert_allclose(dot, 0, atol=1e-6)


def bias_by_loops(table, rows, columns, prefix):
    """The bias of every query and key, one by one; the last three rows are those of a prefix."""
    tokens = [None] * prefix + [(i, j) for i in range(rows) for j in range(columns)]
    bias = np.zeros((1, table.shape[1], len(tokens), len(tokens)), "float32")
    of_prefix = {(True, False): -3, (False, True): -2, (True, True): -1}
    for q, query in enumerate(tokens):
        for k, key in enumerate(tokens):
            row = of_prefix.get((query is None, key is None))
            if row is None:
                down, right = (a - b for a, b in zip(query, key, strict=True))
                row = (down + rows - 1) * (2 * columns - 1) + right + columns - 1
            bias[0, :, q, k] = table[row]
    return bias


@pytest.mark.parametrize(("rows", "columns", "prefix"), [(2, 3, 1), (3, 2, 2), (2, 2, 0)])
def test_each_distance_has_a_row_of_the_table(rows, columns, prefix):
    """Rectangular grids, several tokens before the patches, and none."""
    tokens = normal(2, rows * columns + prefix, 8)
    layer = RelativePositionBias(3, (rows, columns), prefix)
    layer.build(tokens.shape)
    randomise(layer)
    expected = bias_by_loops(to_numpy(layer.table), rows, columns, prefix)
    np.testing.assert_array_equal(to_numpy(layer(tokens)), expected)
    assert layer.compute_output_shape(tokens.shape) == expected.shape


@pytest.mark.parametrize("kind", ["block", "shared"])
def test_attention_weights_of_a_model_include_the_bias(kind):
    """As a stage of the graph and as maps, they are those of the block's own formula."""
    model = random_tiny(relative_position_bias=kind, num_layers=2)
    images = normal(2, 16, 16, 3)
    names = ["block_1/input", "block_1/attention"]
    values = inference.run(model, images, names)
    layer = model.get_layer("relative_position_bias" if kind == "shared" else "position_bias_1")
    bias = layer(values["block_1/input"])
    block = model.get_layer("block_1")
    expected = to_numpy(block.attention_weights(values["block_1/input"], bias=bias))
    assert_close(values["block_1/attention"], expected)
    assert_close(attention_maps(model, images, prepared=True)["block_1/attention"], expected)
    layer.table.assign(np.zeros(layer.table.shape, "float32"))
    without = inference.run(model, images, names)["block_1/attention"]
    assert np.abs(without - expected).max() > 1e-2


# The table of a checkpoint is resized in NumPy.
@pytest.mark.on_backend("torch")
def test_a_table_resized_to_its_own_grid_stays():
    """Between grids, the rows of tokens before the patches stay, and a constant stays constant."""
    table = normal(5 * 3 + 3, 2)
    assert resize_distances(table, (3, 2), (3, 2)) is table
    found = resize_distances(table, (3, 2), (4, 5))
    assert found.shape == (7 * 9 + 3, 2)
    np.testing.assert_array_equal(found[-3:], table[-3:])
    for rows, source, target in ((18, (3, 2), (4, 5)), (4, (1, 1), (2, 2))):
        ones = resize_distances(np.ones((rows, 2), "float32"), source, target)
        assert_close(ones, np.ones_like(ones), 1e-6)
