"""Sizes stated by a file are compared with its arrays before they cost time or memory."""

import json
import shutil

import numpy as np
import pytest

from keras_vit.checkpoints.inspection import open_checkpoint
from keras_vit.checkpoints.opening import OpenSource, open_source
from keras_vit.errors import CheckpointError
from keras_vit.presets.source import Source
from tests.checkpoints.headers import Headers
from tests.golden import FOLDER

pytestmark = pytest.mark.without_backend

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
    """The message of the refusal, which must be short."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(dict(shapes)), dict(files), is_folder=True), fields)
    message = str(caught.value)
    assert len(message) < 12_000
    return message


@pytest.mark.parametrize("number", [1000, 100_000, 10**8, "9" * 5000])
def test_one_array_of_a_block_of_huge_number_is_refused_quickly(number):
    """The blocks before it are not listed."""
    name = f"Transformer/encoderblock_{number}/LayerNorm_0/scale"
    message = refused({**BIG_VISION, name: (16,)})
    assert "blocks are announced, but there are arrays of 2" in message or "unexpected: " in message


@pytest.mark.parametrize("name", ["block9/unit1", "block1/unit1000", "block99999999/unit99999999"])
def test_one_array_of_a_stem_unit_of_huge_number_is_refused_quickly(name):
    """The units before it are not listed."""
    stem = {"conv_root/kernel": (7, 7, 3, 64), f"{name}/gn1/scale": (1, 1, 1, 64)}
    refused({**BIG_VISION, **stem}, family="google_linen")


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
def test_huge_numbers_in_json_are_refused_quickly(golden, file, path, value, tmp_path):
    """They are compared with the arrays before blocks or positions are listed."""
    folder = shutil.copytree(FOLDER / golden, tmp_path / "copy")
    content = json.loads((folder / file).read_text())
    place = content
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value
    with open_source(Source.parse(folder)) as opened:
        message = refused(opened.reader.shapes, {**opened.json, file: content})
    assert "headers" in message


@pytest.mark.parametrize("count", [2_000, 9_900])
def test_of_many_unknown_arrays_the_first_are_named_and_the_others_counted(count):
    """Beside a ViT, and alone."""
    foreign = {f"{'abcdefghij'[k % 10]}{k}/kernel_{k}": (2, 2) for k in range(count)}
    message = refused({**BIG_VISION, **foreign})
    assert f"{count - 24:,} more" in message or "more" in message
    assert "no Vision Transformer" in refused(foreign)


def test_a_name_of_a_million_letters_is_cut_in_the_message():
    """A shape of 100,000 axes too."""
    refused({**BIG_VISION, "x" * 10**6: (2, 2), "y" * 10**6: tuple(range(10**5))})
    refused({"x" * 10**6: (2, 2)})


def test_a_file_without_positions_is_no_model_with_fixed_positions():
    """A class token without positions may mean a lost array; `position=` decides."""
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


def test_fixed_positions_for_a_file_with_stored_positions_are_refused():
    """The message names the array of positions."""
    with np.load(FOLDER / "bv_gap.npz") as file:
        shapes = {name: array.shape for name, array in file.items()}
    message = refused(shapes, position="sincos2d", image_size=16)
    assert "unexpected: pos_embedding" in message
