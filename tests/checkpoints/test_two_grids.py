"""Positions that fit two grids are read as the caller says, or refused with both readings named."""

import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests.checkpoints import files
from tests.checkpoints.files import timm_shapes, write_shapes

pytestmark = pytest.mark.without_backend

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


def read(file, **fields):
    """The grid, and the number of tokens with positions."""
    config = keras_vit.info(file[0], **file[1], **fields).config
    return config.grid, config.num_prefix_positions


def refused(file, *words, **fields):
    files.refused(file[0], *words, ask=VisionTransformer.from_preset, **file[1], **fields)


@pytest.mark.parametrize(("side", "registers"), [(4, 0), (5, 0), (7, 0), (14, 0), (5, 4), (14, 4)])
def test_a_square_beside_the_usual_tokens_is_no_second_reading(side, registers, file, caplog):
    tokens = 1 + registers
    assert read(file(side**2 + tokens, registers)) == ((side, side), tokens)
    assert not caplog.records


@pytest.mark.parametrize(
    ("side", "tokens", "registers", "others"),
    [(4, 0, 0, 1), (5, 0, 0, 1), (15, 0, 0, 1), (6, 0, 4, 1), (14, 1, 4, 5)],
)
def test_two_readings_are_refused_with_both_named(side, tokens, registers, others, file):
    """The words name the number of positions and the argument that chooses."""
    positions = side**2 + tokens
    square, other = (
        f"{side} x {side} patches and {tokens}",
        f"{positions - others} patches and {others}",
    )
    refused(file(positions, registers), f"{positions} pos", square, other, "position_grid=")


@pytest.mark.parametrize(
    ("positions", "registers", "grid", "tokens"),
    [
        *((25, 0, (5, 5), 0), (25, 0, (4, 6), 1), (25, 0, (24, 1), 1), (50, 0, (7, 7), 1)),
        *((50, 0, (5, 10), 0), (50, 0, (25, 2), 0), (197, 4, (14, 14), 1)),
        *((197, 4, (12, 16), 5), (197, 4, (197, 1), 0), (25, 4, (4, 5), 5)),
    ],
)
def test_position_grid_counts_patches_and_decides(positions, registers, grid, tokens, file, caplog):
    """Square, wide and tall; an image size beside it is no second statement."""
    assert read(file(positions, registers), position_grid=grid) == (grid, tokens)
    assert read(file(positions, registers), position_grid=grid, image_size=64)[1] == tokens
    assert not caplog.records


def test_a_wrong_position_grid_is_refused_with_the_numbers_that_fit(file):
    refused(file(25), "(5, 6)", "30", "25 or 24", position_grid=(5, 6))
    refused(file(25), "26", position_grid=(1, 26))
    refused(file(25), "(6, 6)", "36", position_grid=6)
    for grid in ((0, 5), "5x5"):
        refused(file(25), "position_grid", position_grid=grid)
    refused(file(24), "24 positions", "position_grid=")


def test_an_image_size_with_the_patches_of_one_reading_decides(file, caplog):
    assert read(file(25), image_size=20) == ((5, 5), 0)
    assert read(file(25), image_size=(16, 24)) == ((4, 6), 1)
    assert read(file(25), image_size=(24, 16)) == ((6, 4), 1)
    assert read(file(24), image_size=(16, 24)) == ((4, 6), 0)
    assert read(file(29, registers=4), image_size=(16, 24)) == ((4, 6), 5)
    assert not caplog.records
    refused(file(25), "25 positions", image_size=32)


def test_an_unusual_reading_is_not_passed_over(file, caplog):
    """50 positions are 7 x 7 and a class token; images of 5 x 10 patches may have no resize.

    The square of a usual image is read, with a line on the other reading.
    """
    words = ("7 x 7 patches and 1", "50 patches and 0")
    refused(file(50), *words, image_size=(20, 40))
    assert read(file(50, patch=32), image_size=(160, 320)) == ((7, 7), 1)
    assert all(word in caplog.text for word in words)
    assert read(file(196, patch=16)) == ((14, 14), 0)
    assert "195 patches and 1" in caplog.text
    assert read(file(1369, registers=4, patch=14)) == ((37, 37), 0)
    assert "1368 patches and 1" in caplog.text
