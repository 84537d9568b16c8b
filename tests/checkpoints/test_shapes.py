"""What numbers of positions alone determine: grids, and tokens beside the patches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_vit
from tests.checkpoints.files import timm_shapes, write_shapes
from tests.runs import times

pytestmark = pytest.mark.without_backend

SIDES = st.integers(2, 25)
OPEN = {"pool": {"kind": "token"}, "rope": None}
OPEN |= {"block": {"activation": "gelu", "epsilon": 1e-6}}


def read_grid(folder, positions, registers, patch=4, **fields):
    """The grid that is read from a number of positions, and how many tokens have positions."""
    path = write_shapes(folder / "x", timm_shapes(positions, registers, patch))
    facts = {"num_heads": 2, **(OPEN if registers else {}), **fields}
    config = keras_vit.info(path, **facts).config
    return config.grid, config.num_prefix_positions


@given(data=st.data())
@settings(max_examples=times(20, 200), deadline=None)
def test_a_stated_grid_is_read(data, tmp_path_factory):
    """With or without positions of the class token and of registers; wide, tall and square."""
    registers, grid = data.draw(st.sampled_from([0, 4])), data.draw(st.tuples(SIDES, SIDES))
    tokens = data.draw(st.sampled_from([0, 1, 1 + registers]))
    stated = {"position_grid": grid, **data.draw(st.sampled_from([{}, {"image_size": 64}]))}
    positions = grid[0] * grid[1] + tokens
    folder = tmp_path_factory.mktemp("grid")
    assert read_grid(folder, positions, registers, **stated) == (grid, tokens)


READ = (
    # The square of the usual tokens; an image size with the patches of one reading decides.
    *((side**2 + 1, 0, 4, {}, (side, side), 1, "") for side in (4, 7, 14)),
    (201, 4, 4, {}, (14, 14), 5, ""),
    (25, 0, 4, {"image_size": (16, 24)}, (4, 6), 1, ""),
    (29, 4, 4, {"image_size": (16, 24)}, (4, 6), 5, ""),
    # The square of a usual image is read, with a line on the other reading.
    (50, 0, 32, {"image_size": (160, 320)}, (7, 7), 1, "50 patches and 0"),
    (196, 0, 16, {}, (14, 14), 0, "195 patches and 1"),
    (1369, 4, 14, {}, (37, 37), 0, "1368 patches and 1"),
)
"""Positions, registers, patch size, what the caller says; grid, tokens with positions, the log."""


@pytest.mark.parametrize("row", READ)
def test_one_reading_is_read(row, tmp_path, caplog):
    positions, registers, patch, fields, grid, tokens, log = row
    assert read_grid(tmp_path, positions, registers, patch, **fields) == (grid, tokens)
    assert log in caplog.text
    assert len(caplog.records) == bool(log)
