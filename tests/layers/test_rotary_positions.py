"""Rotary positions: tables against their formulas, and attention with them."""

import keras
import numpy as np
import pytest

from keras_vit import kernels
from keras_vit.errors import ConfigError
from keras_vit.layers import Attention, MixedFrequencies, RotaryPositions
from keras_vit.layers.rotary_positions import turns
from tests import formulas
from tests.helpers import assert_close, normal, numpy_of, randomise, run, weights_of
from tests.words import raises

ROWS, COLUMNS, HEAD_DIM = 3, 5, 8
PAIRS = {"dinov3": "halves", "axial": "neighbours", "mixed": "neighbours"}
ROPES = {
    "dinov3": {"form": "dinov3", "theta": 100.0},
    "eva02": {"form": "axial", "theta": 10_000.0, "reference_grid": (16, 16)},
    "pe": {
        "form": "axial",
        "theta": 10_000.0,
        "offset": 1.0,
        "reference_grid": (24, 12),
        "indexing": "xy",
    },
    "naver": {"form": "axial", "theta": 100.0, "indexing": "xy"},
}
ropes = pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)


def rotate(x, rotary, form):
    """Queries or keys, rotated as `Attention` does."""
    return kernels.rotate(
        keras.ops.convert_to_tensor(x), keras.ops.expand_dims(rotary, 2), form != "dinov3"
    )


def table(rope, prefix=0, rows=ROWS, columns=COLUMNS):
    """The table that the layer returns for a grid."""
    layer = RotaryPositions(HEAD_DIM, **rope, num_prefix_tokens=prefix, name="rotary")
    return layer(np.zeros((1, rows, columns, 1), "float32"))


@ropes
@pytest.mark.parametrize("grid", [(3, 5), (1, 4)])
def test_a_table_rotates_pairs_of_channels_by_the_angles_of_their_patch(rope, grid):
    """Each pair of channels is a complex number, multiplied by e^(i angle)."""
    rows, columns = grid
    x = normal(2, rows * columns, 3, HEAD_DIM)
    angles = formulas.rotary_angles(rows, columns, HEAD_DIM, **rope)
    actual = rotate(x, table(rope, rows=rows, columns=columns), rope["form"])
    expected = formulas.rotated(np.swapaxes(x, 1, 2), angles, PAIRS[rope["form"]])
    assert_close(actual, np.swapaxes(expected, 1, 2).astype("float32"), 2e-6)


@ropes
def test_tokens_before_the_patches_are_not_rotated(rope):
    """They are equal bit by bit."""
    x = normal(2, 2 + ROWS * COLUMNS, 3, HEAD_DIM)
    actual = numpy_of(rotate(x, table(rope, prefix=2), rope["form"]))
    np.testing.assert_array_equal(actual[:, :2], x[:, :2])
    assert (actual[:, 2:] != x[:, 2:]).any(axis=(2, 3)).sum() >= ROWS * COLUMNS - 1


def test_attention_depends_on_the_distance_of_patches_alone():
    """Equal tokens one row and one column apart have the same weight at two places."""
    x = np.ones((1, ROWS * COLUMNS, 16), "float32")
    layer = randomise_built(Attention(2, rope="axial", name="attention"), x)
    weights = numpy_of(layer.attention_weights(x, rotary=table(ROPES["naver"])))
    logits = np.log(weights).reshape(2, ROWS, COLUMNS, ROWS, COLUMNS)
    first = logits[:, 0, 0, 1, 1] - logits[:, 0, 0, 0, 0]
    second = logits[:, 1, 3, 2, 4] - logits[:, 1, 3, 1, 3]
    np.testing.assert_allclose(first, second, atol=1e-5)
    assert np.abs(first).max() > 1e-3


def randomise_built(layer, x, rotary_shape=(2, ROWS * COLUMNS, HEAD_DIM)):
    layer.build(x.shape, None, rotary_shape)
    return randomise(layer)


def test_mixed_frequencies_belong_to_each_head():
    """angle = first coordinate * frequency 0 + second * frequency 1, for each head."""
    x = normal(2, 1 + ROWS * COLUMNS, 16)
    layer = randomise_built(Attention(2, rope="mixed", name="attention"), x, (x.shape[1], 2))
    rope = {"form": "mixed", "indexing": "xy"}
    coordinates = numpy_of(table(rope, prefix=1)).astype("float64")
    assert coordinates[0].tolist() == [0, 0]
    assert coordinates[1 + COLUMNS + 3].tolist() == [3, 1]  # column before row
    w = weights_of(layer)
    angles = np.einsum("tz,zhj->htj", coordinates, w["rotary_frequencies"])
    query, key = (
        formulas.rotated(
            np.einsum("btm,mhd->bhtd", x, w[f"{name}/kernel"]) + w[f"{name}/bias"][:, None],
            angles,
            "neighbours",
        )
        for name in ("query", "key")
    )
    expected = formulas.softmax(query @ key.swapaxes(-1, -2) / np.sqrt(HEAD_DIM))
    actual = layer.attention_weights(x, rotary=table(rope, prefix=1))
    assert_close(actual, expected.astype("float32"), 2e-5)
    value = np.einsum("btm,mhd->bhtd", x, w["value/kernel"]) + w["value/bias"][:, None]
    output = np.einsum("bhtd,hdm->btm", expected @ value, w["out/kernel"]) + w["out/bias"]
    assert_close(run(layer, x, rotary=table(rope, prefix=1)), output, 2e-5)


def test_mixed_frequencies_start_as_rotated_axial_frequencies():
    """The two halves of a head have the axial magnitudes, in directions at right angles."""
    first, second = numpy_of(MixedFrequencies(theta=10.0, seed=0)((2, 3, 4)))
    sizes = np.hypot(first, second)
    np.testing.assert_allclose(sizes, np.tile(10.0 ** -np.array([0, 0.5, 0, 0.5]), (3, 1)), 1e-5)
    dot = first[:, :2] * first[:, 2:] + second[:, :2] * second[:, 2:]
    np.testing.assert_allclose(dot, 0, atol=1e-6)


def test_turns_repeat_each_angle_for_its_pair():
    """The two copies are half a head apart (dinov3) or side by side (axial)."""
    angles = np.array([[0.0, np.pi / 2]], "float32")
    assert_close(turns(angles, "dinov3")[1, 0], np.array([0.0, 1, 0, 1], "float32"), 1e-6)
    assert_close(turns(angles, "axial")[1, 0], np.array([0.0, 0, 1, 1], "float32"), 1e-6)


def test_bad_head_sizes_forms_and_missing_tables_are_refused():
    """Also a table that is given to attention without rotary positions."""
    with raises(ConfigError, "divisible by 4", "6"):
        RotaryPositions(6)
    with raises(ConfigError, "form='rope'", "dinov3, axial, mixed"):
        RotaryPositions(8, form="rope")
    x = normal(1, 15, 16)
    with raises(ConfigError, "rope='axial'", "without"):
        Attention(2, rope="axial")(x)
    with raises(ConfigError, "rope=None", "with rotary"):
        Attention(2)(x, rotary=table(ROPES["naver"]))
