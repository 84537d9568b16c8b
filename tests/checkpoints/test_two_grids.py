"""Positions that fit two grids are read as the caller says, or refused with both readings named."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from tests.words import raises

pytestmark = pytest.mark.without_backend

HEADS = {"num_heads": 2}
OPEN = {"pool": {"kind": "token"}, "rope": None}
OPEN |= {"block": {"activation": "gelu", "epsilon": 1e-6}}
BLOCK = {"norm1": (8,), "attn.qkv": (24, 8), "attn.proj": (8, 8)}
BLOCK |= {"norm2": (8,), "mlp.fc1": (16, 8), "mlp.fc2": (8, 16)}


def timm_file(path, positions, registers=0, patch=4):
    """A file of timm without JSON: a class token, registers and a number of positions."""
    shapes = {"cls_token": (1, 1, 8), "pos_embed": (1, positions, 8), "norm.weight": (8,)}
    shapes |= {"patch_embed.proj.weight": (8, 3, patch, patch), "patch_embed.proj.bias": (8,)}
    shapes |= {"norm.bias": (8,)} | ({"reg_token": (1, registers, 8)} if registers else {})
    for name, shape in BLOCK.items():
        shapes |= {f"blocks.0.{name}.weight": shape, f"blocks.0.{name}.bias": shape[:1]}
    save_file({name: np.zeros(shape, "float32") for name, shape in shapes.items()}, path)
    return path


@pytest.fixture
def read(tmp_path):
    """A function that reads a file with a number of positions: grid, and tokens with positions."""

    def reading(positions, registers=0, patch=4, **fields):
        path = timm_file(tmp_path / "x.safetensors", positions, registers, patch)
        fields |= HEADS | (OPEN if registers else {})
        info = keras_vit.info(path, **fields)
        return info.config.grid, info.config.num_prefix_positions

    return reading


@pytest.mark.parametrize(
    ("positions", "registers", "grid", "tokens"),
    [
        (17, 0, (4, 4), 1),
        (26, 0, (5, 5), 1),
        (50, 0, (7, 7), 1),
        (197, 0, (14, 14), 1),
        (30, 4, (5, 5), 5),
        (201, 4, (14, 14), 5),
    ],
)
def test_a_square_beside_the_usual_tokens_is_no_second_reading(
    positions, registers, grid, tokens, read, caplog
):
    assert read(positions, registers) == (grid, tokens)
    assert not caplog.records


@pytest.mark.parametrize(
    ("positions", "registers", "square", "other"),
    [
        (16, 0, "4 x 4 patches and 0 other", "15 patches and 1 other"),
        (25, 0, "5 x 5 patches and 0 other", "24 patches and 1 other"),
        (49, 0, "7 x 7 patches and 0 other", "48 patches and 1 other"),
        (225, 0, "15 x 15 patches and 0 other", "224 patches and 1 other"),
        (36, 4, "6 x 6 patches and 0 other", "35 patches and 1 other"),
        (197, 4, "14 x 14 patches and 1 other", "192 patches and 5 other"),
    ],
)
def test_two_readings_are_refused_with_both_named(positions, registers, square, other, read):
    words = f"{positions} positions fit two grids"
    with raises(CheckpointError, words, square, other, "Choose by position_grid="):
        read(positions, registers)


@pytest.mark.parametrize(
    ("positions", "registers", "grid", "tokens"),
    [
        (25, 0, (5, 5), 0),
        (25, 0, (4, 6), 1),
        (25, 0, (3, 8), 1),
        (25, 0, (24, 1), 1),
        (50, 0, (7, 7), 1),
        (50, 0, (5, 10), 0),
        (50, 0, (25, 2), 0),
        (197, 4, (14, 14), 1),
        (197, 4, (12, 16), 5),
        (197, 4, (197, 1), 0),
        (25, 4, (4, 5), 5),
    ],
)
def test_position_grid_counts_patches_and_decides(positions, registers, grid, tokens, read, caplog):
    """Square, wide and tall; an image size beside it is no second statement."""
    assert read(positions, registers, position_grid=grid) == (grid, tokens)
    assert read(positions, registers, position_grid=grid, image_size=64)[1] == tokens
    assert not caplog.records


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((5, 6), "position_grid=(5, 6) has 30 cells, but the file has positions for 25 or 24"),
        ((1, 26), "has 26 cells"),
        (6, "position_grid=(6, 6) has 36 cells"),
        ((0, 5), "position_grid must be a positive int or a pair"),
        ("5x5", "position_grid must be a positive int or a pair"),
    ],
)
def test_a_wrong_position_grid_is_refused_with_the_numbers_that_fit(grid, message, read):
    with raises(CheckpointError, message):
        read(25, position_grid=grid)


def test_an_image_size_with_the_patches_of_one_reading_decides(read, caplog):
    assert read(25, image_size=20) == ((5, 5), 0)
    assert read(25, image_size=(16, 24)) == ((4, 6), 1)
    assert read(25, image_size=(24, 16)) == ((6, 4), 1)
    assert read(24, image_size=(16, 24)) == ((4, 6), 0)
    assert read(29, registers=4, image_size=(16, 24)) == ((4, 6), 5)
    assert not caplog.records
    with raises(CheckpointError, "25 positions fit two grids"):
        read(25, image_size=32)


def test_an_image_size_of_an_unusual_reading_is_not_passed_over(read, caplog):
    """50 positions are 7 x 7 and a class token; images of 5 x 10 patches may have no resize."""
    words = ("7 x 7 patches and 1 other tokens", "50 patches and 0 other tokens")
    with raises(CheckpointError, *words):
        read(50, image_size=(20, 40))
    assert read(50, patch=32, image_size=(160, 320)) == ((7, 7), 1)
    assert all(word in caplog.text for word in words)


def test_the_square_of_a_usual_image_is_read_with_a_line_on_the_other(read, caplog):
    assert read(196, patch=16) == ((14, 14), 0)
    assert "195 patches and 1 other tokens" in caplog.text
    caplog.clear()
    assert read(1369, registers=4, patch=14) == ((37, 37), 0)
    assert "1368 patches and 1 other tokens" in caplog.text


def test_positions_of_no_square_are_never_guessed(tmp_path):
    path = timm_file(tmp_path / "x.safetensors", 24)
    with raises(CheckpointError, "24 positions are no square grid", "position_grid="):
        VisionTransformer.from_preset(path, **HEADS)
