"""Biases by the distance between two patches, and models that have them."""

import numpy as np
import pytest

from keras_vit.checkpoints.adapt import resize_distances
from keras_vit.errors import ConfigError
from keras_vit.explanation import attention_maps
from keras_vit.layers.relative_position_bias import RelativePositionBias
from keras_vit.models.inference import run
from tests.helpers import assert_close, random_tiny, randomise, tiny, to_numpy
from tests.plain import normal, raises

pytestmark = pytest.mark.every_backend


def by_loops(table, rows, columns, prefix):
    """The bias of every query and key, one by one."""
    tokens = [None] * prefix + [(i, j) for i in range(rows) for j in range(columns)]
    bias = np.zeros((1, table.shape[1], len(tokens), len(tokens)), "float32")
    for q, query in enumerate(tokens):
        for k, key in enumerate(tokens):
            if query is None or key is None:
                row = {(True, False): -3, (False, True): -2, (True, True): -1}[
                    query is None, key is None
                ]
            else:
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
    expected = by_loops(to_numpy(layer.table), rows, columns, prefix)
    np.testing.assert_array_equal(to_numpy(layer(tokens)), expected)
    assert layer.compute_output_shape(tokens.shape) == expected.shape


def test_another_number_of_tokens_is_refused():
    with raises(ConfigError, "7 tokens do not fit grid=(2, 3)", "num_prefix_tokens=0", "has 6"):
        RelativePositionBias(3, (2, 3), 0)(normal(1, 7, 8))


@pytest.mark.parametrize("kind", ["block", "shared"])
def test_attention_weights_of_a_model_include_the_bias(kind):
    """As a stage of the graph and as maps, they are those of the block's own formula."""
    model = random_tiny(relative_position_bias=kind, num_layers=2)
    images = normal(2, 16, 16, 3)
    names = ["block_1/input", "block_1/attention"]
    values = run(model, images, names)
    layer = model.get_layer("relative_position_bias" if kind == "shared" else "position_bias_1")
    bias = layer(values["block_1/input"])
    block = model.get_layer("block_1")
    expected = to_numpy(block.attention_weights(values["block_1/input"], bias=bias))
    assert_close(values["block_1/attention"], expected)
    assert_close(attention_maps(model, images, prepared=True)["block_1/attention"], expected)
    layer.table.assign(np.zeros(layer.table.shape, "float32"))
    assert np.abs(run(model, images, names)["block_1/attention"] - expected).max() > 1e-2


def test_a_table_resized_to_its_own_grid_stays():
    """Between grids, the rows of tokens before the patches stay, and a constant stays constant."""
    table = normal(5 * 3 + 3, 2)
    assert resize_distances(table, (3, 2), (3, 2)) is table
    found = resize_distances(table, (3, 2), (4, 5))
    assert found.shape == (7 * 9 + 3, 2)
    np.testing.assert_array_equal(found[-3:], table[-3:])
    ones = np.ones_like(table)
    assert_close(resize_distances(ones, (3, 2), (4, 5)), np.ones_like(found), 1e-6)
    assert_close(resize_distances(ones[:4], (1, 1), (2, 2)), np.ones((12, 2)), 1e-6)


def test_a_model_of_any_size_is_refused():
    """A table belongs to one grid."""
    with raises(
        ConfigError, "relative_position_bias='block'", "image_size=(None, None)", "Give image_size="
    ):
        tiny(relative_position_bias="block", image_size=None, position_grid=(4, 4))
