"""Rotary positions: tables against their formulas, and attention with them."""

import keras
import numpy as np
import pytest

from keras_vit import kernels
from keras_vit.errors import ConfigError
from keras_vit.layers import Attention, MixedFrequencies, RotaryPositions
from tests import formulas
from tests.helpers import assert_close, to_numpy
from tests.plain import normal, raises

pytestmark = pytest.mark.every_backend

ROWS, COLUMNS, HEAD_DIM = 3, 5, 8
ROPES = {
    "dinov3": {"form": "dinov3", "theta": 100.0},
    "eva02": {"form": "axial", "theta": 10_000.0, "reference_grid": (16, 16)},
    "rope_vit": {"form": "axial_xy", "theta": 100.0},
    "pe": {"form": "axial_xy_from_1", "theta": 10_000.0, "reference_grid": (24, 12)},
}


def table():
    """The table that the layer returns for a grid."""
    layer = RotaryPositions(HEAD_DIM, "axial_xy", theta=100.0)
    return layer(np.zeros((1, ROWS, COLUMNS, 1), "float32"))


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_a_table_rotates_pairs_of_channels_by_the_angles_of_their_patch(rope):
    """Each pair of channels is a complex number, multiplied by e^(i angle)."""
    x, form = normal(2, ROWS * COLUMNS, 3, HEAD_DIM), rope["form"]
    rotary = RotaryPositions(HEAD_DIM, **rope)(np.zeros((1, ROWS, COLUMNS, 1), "float32"))
    rotary = keras.ops.expand_dims(rotary, 2)
    actual = kernels.rotate(keras.ops.convert_to_tensor(x), rotary, form != "dinov3")
    angles = formulas.rotary_angles(ROWS, COLUMNS, HEAD_DIM, **rope)
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


def test_bad_head_sizes_forms_and_missing_tables_are_refused():
    """Also a table that is given to attention without rotary positions."""
    with raises(ConfigError, "divisible by 4", "6"):
        RotaryPositions(6)
    with raises(ConfigError, "rope.form='rope'", "dinov3, axial, axial_xy"):
        RotaryPositions(8, form="rope")
    x = normal(1, 15, 16)
    with raises(ConfigError, "rope=Rope(form='axial'", "without"):
        Attention(2, rope={"form": "axial"})(x)
    with raises(ConfigError, "rope=None", "with rotary"):
        Attention(2)(x, rotary=table())
