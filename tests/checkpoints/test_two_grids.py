"""Positions that fit two grids are read as the caller says, or refused with both readings named."""

import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests.checkpoints.files import refused, timm_shapes, write_shapes

HEADS = {"num_heads": 2}
OPEN = {"pool": {"kind": "token"}, "rope": None}
OPEN |= {"block": {"activation": "gelu", "epsilon": 1e-6}}


@pytest.fixture
def file(tmp_path):
    """Writes a file with a number of positions; returns path and facts."""

    def write(positions, registers=0, patch=4):
        path = write_shapes(tmp_path / "x", timm_shapes(positions, registers, patch))
        return path, HEADS | (OPEN if registers else {})

    return write


READ = (
    # The square of the usual tokens, without a line of log; then what `position_grid` counts:
    *((side**2 + 1, 0, {}, (side, side), 1) for side in (4, 5, 7, 14)),
    *((side**2 + 5, 4, {}, (side, side), 5) for side in (5, 14)),
    # patches, square, wide and tall; an image size beside it is no second statement.
    *((n, 0, {"position_grid": grid}, grid, 0) for n, grid in ((25, (5, 5)), (50, (25, 2)))),
    *((n, 0, {"position_grid": grid}, grid, 1) for n, grid in ((25, (4, 6)), (25, (24, 1)))),
    *((50, 0, {"position_grid": (r, 50 // r), "image_size": 64}, (r, 50 // r), 0) for r in (5, 25)),
    (50, 0, {"position_grid": (7, 7)}, (7, 7), 1),
    (197, 4, {"position_grid": (14, 14)}, (14, 14), 1),
    (197, 4, {"position_grid": (12, 16), "image_size": 64}, (12, 16), 5),
    (197, 4, {"position_grid": (197, 1)}, (197, 1), 0),
    (25, 4, {"position_grid": (4, 5)}, (4, 5), 5),
    # An image size with the patches of one reading decides.
    (25, 0, {"image_size": 20}, (5, 5), 0),
    (25, 0, {"image_size": (16, 24)}, (4, 6), 1),
    (25, 0, {"image_size": (24, 16)}, (6, 4), 1),
    (24, 0, {"image_size": (16, 24)}, (4, 6), 0),
    (29, 4, {"image_size": (16, 24)}, (4, 6), 5),
)
"""Positions, registers, what the caller says; the grid, and the number of tokens with positions."""


@pytest.mark.parametrize(("positions", "registers", "fields", "grid", "tokens"), READ)
def test_one_reading_is_read(positions, registers, fields, grid, tokens, file, caplog):
    path, facts = file(positions, registers)
    config = keras_vit.info(path, **facts, **fields).config
    assert (config.grid, config.num_prefix_positions) == (grid, tokens)
    assert not caplog.records


REFUSED = (
    # Two readings, both named with the argument that chooses; and what fits neither.
    (16, 0, {}, "16 pos", "4 x 4 patches and 0", "15 patches and 1", "position_grid="),
    (225, 0, {}, "225 pos", "15 x 15 patches and 0", "224 patches and 1", "position_grid="),
    (36, 4, {}, "36 pos", "6 x 6 patches and 0", "35 patches and 1", "position_grid="),
    (197, 4, {}, "197 pos", "14 x 14 patches and 1", "192 patches and 5", "position_grid="),
    (50, 0, {"image_size": (20, 40)}, "7 x 7 patches and 1", "50 patches and 0"),
    (25, 0, {"image_size": 32}, "25 positions"),
    (24, 0, {}, "24 positions", "position_grid="),
    (25, 0, {"position_grid": (5, 6)}, "(5, 6)", "30", "25 or 24"),
    (25, 0, {"position_grid": (1, 26)}, "26"),
    (25, 0, {"position_grid": 6}, "(6, 6)", "36"),
    (25, 0, {"position_grid": (0, 5)}, "position_grid"),
    (25, 0, {"position_grid": "5x5"}, "position_grid"),
)
"""Positions, registers, what the caller says, and words of the refusal."""


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_two_readings_or_none_are_refused(row, file):
    positions, registers, fields, *words = row
    path, facts = file(positions, registers)
    refused(path, *words, ask=VisionTransformer.from_preset, **facts, **fields)


def test_an_unusual_reading_is_not_passed_over(file, caplog):
    """The square of a usual image is read, with a line on the other reading."""
    for positions, registers, patch, fields, side, tokens, other in (
        (50, 0, 32, {"image_size": (160, 320)}, 7, 1, "50 patches and 0"),
        (196, 0, 16, {}, 14, 0, "195 patches and 1"),
        (1369, 4, 14, {}, 37, 0, "1368 patches and 1"),
    ):
        path, facts = file(positions, registers, patch)
        config = keras_vit.info(path, **facts, **fields).config
        assert (config.grid, config.num_prefix_positions) == ((side, side), tokens)
        assert f"{side} x {side} patches and {tokens}" in caplog.text and other in caplog.text
