"""What a file promises is compared with the arrays that are there, before it costs anything."""

import json
import shutil

import numpy as np
import pytest

from keras_vit import CheckpointError
from keras_vit.checkpoints.inspection import open_checkpoint
from keras_vit.checkpoints.source import OpenSource, Source
from tests.checkpoints.headers import Headers
from tests.golden import FOLDER

BIG_VISION = {
    "embedding/kernel": (4, 4, 3, 16),
    "embedding/bias": (16,),
    "cls": (1, 1, 16),
    "pos_embedding": (1, 16, 16),
    "Transformer/encoder_norm/scale": (16,),
    "Transformer/encoderblock_0/LayerNorm_0/scale": (16,),
    "Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel": (16, 24),
    "Transformer/encoderblock_0/MultiHeadDotProductAttention_0/query/kernel": (16, 2, 8),
}


def refused(shapes, files=(), **fields) -> str:
    """The message, which is short; the test's own time limit is that of the suite."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(dict(shapes)), dict(files)), fields)
    message = str(caught.value)
    assert len(message) < 12_000
    return message


@pytest.mark.parametrize("number", [1000, 100_000, 10**8, "9" * 5000])
def test_one_array_of_a_late_block(number):
    """Nobody lists the blocks before it."""
    name = f"Transformer/encoderblock_{number}/LayerNorm_0/scale"
    message = refused({**BIG_VISION, name: (16,)})
    assert "blocks are announced, but there are arrays of 2" in message or "unexpected: " in message


@pytest.mark.parametrize("name", ["block9/unit1", "block1/unit1000", "block99999999/unit99999999"])
def test_one_array_of_a_late_unit_of_a_stem(name):
    """Nor the units."""
    stem = {"conv_root/kernel": (7, 7, 3, 64), f"{name}/gn1/scale": (1, 1, 1, 64)}
    refused({**BIG_VISION, **stem}, dialect="google_linen")


@pytest.mark.parametrize(
    ("golden", "file", "path", "value"),
    [
        ("hf_classifier", "config.json", ("num_hidden_layers",), 10**6),
        ("hf_classifier", "config.json", ("num_hidden_layers",), 900),
        ("hf_classifier", "config.json", ("num_hidden_layers",), 10**400),
        ("hf_classifier", "config.json", ("hidden_size",), 10**400),
        ("hf_classifier", "config.json", ("image_size",), 10**400),
        ("timm_avg", "config.json", ("model_args", "depth"), 10**6),
        ("timm_avg", "config.json", ("model_args", "mlp_ratio"), 1e300),
        ("kh_classifier", "config.json", ("config", "num_layers"), 10**6),
        ("kh_classifier", "config.json", ("config", "image_shape"), [10**400, 16, 3]),
        ("kh_classifier", "config.json", ("config", "image_shape"), list(range(10**5))),
    ],
)
def test_numbers_in_json(golden, file, path, value, tmp_path):
    """A number of blocks or pixels is compared with the arrays, not listed."""
    folder = shutil.copytree(FOLDER / golden, tmp_path / "copy")
    content = json.loads((folder / file).read_text())
    place = content
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value
    with Source.of(folder).open() as opened:
        message = refused(opened.reader.shapes, {**opened.json, file: content})
    assert "headers" in message


@pytest.mark.parametrize("count", [20_000, 200_000])
def test_foreign_names(count):
    """The first few are named, the others counted."""
    foreign = {f"{'abcdefghij'[k % 10]}{k}/kernel_{k}": (2, 2) for k in range(count)}
    message = refused({**BIG_VISION, **foreign})
    assert f"{count - 24:,} more" in message or "more" in message
    assert "no Vision Transformer" in refused(foreign)


def test_names_without_end():
    """A name of a million letters is cut in a message."""
    refused({**BIG_VISION, "x" * 10**6: (2, 2), "y" * 10**6: tuple(range(10**5))})
    refused({"x" * 10**6: (2, 2)})


def test_a_lost_array_of_positions_makes_no_other_model():
    """A class token without positions could be a lost array; `position=` tells."""
    path = FOLDER / "vit_token_published.npz"
    with np.load(path) as file:
        shapes = {name: array.shape for name, array in file.items() if "pos_embedding" not in name}
    assert "missing: Transformer/posembed_input/pos_embedding" in refused(shapes)
    linen = {
        name.replace("LayerNorm_2", "LayerNorm_1")
        .replace("Attention_1", "Attention_0")
        .replace("MlpBlock_3", "MlpBlock_0"): shape
        for name, shape in shapes.items()
    }
    assert "give position='sincos2d'" in refused(linen)
    opened = open_checkpoint(
        OpenSource(Headers(linen), {}), {"position": "sincos2d", "image_size": 16}
    )
    assert opened.info.config.position == "sincos2d"


def test_fixed_positions_are_not_read_over_stored_ones():
    """Who asks for fixed positions where the file has an array of them is told so."""
    with np.load(FOLDER / "bv_gap.npz") as file:
        shapes = {name: array.shape for name, array in file.items()}
    message = refused(shapes, position="sincos2d", image_size=16)
    assert "unexpected: pos_embedding" in message
