"""Checkpoints of google-research/big_vision, `models/vit.py`.

Two layouts: `big_vision` with one set of arrays per block, `big_vision_scan` with
all blocks in one set whose first axis is the depth. Positions belong to the patches
alone and are added before the class token joins. Files from before 2022 have a
position for the class token, under another name; big_vision folds it into the class
token on loading (`fix_old_checkpoints`), which gives the same tokens.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Names,
    PreparationWords,
    StoredAs,
    alternatives,
    modules,
    with_reasons,
)
from keras_vit.checkpoints.dialects.flax import FLAX_PARAMETERS, encoder_layers
from keras_vit.config import Numerics, ViTConfig
from keras_vit.weights.lexicon import LEXICON

_SUBMODULES = ("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
_HEADS = ("MAPHead_0/", "")
"""The place of attention pooling: a module, or the top level in files of ViT-G's development."""
_POOL = {
    "pool/attention/{qkv}": "MultiHeadDotProductAttention_0/{qkv}",
    "pool/attention/out": "MultiHeadDotProductAttention_0/out",
    "pool/norm": "LayerNorm_0",
    "pool/mlp/dense_0": "MlpBlock_0/Dense_0",
    "pool/mlp/dense_1": "MlpBlock_0/Dense_1",
}
_NO_STEM = "big_vision's ViT has no ResNet stem; the official code has"


def _old(config: ViTConfig) -> bool:
    return config.has_class_position


def _new(config: ViTConfig) -> bool:
    return not config.has_class_position


def _words(block: str, stacked: bool) -> dict[str, Names]:
    """Returns the names; arrays of stacked blocks have the axis of the blocks in front."""
    words: dict[str, Names] = {
        "class_token/token": StoredAs("cls"),
        "position_embedding/embedding": (
            StoredAs(
                "Transformer/pos_embedding", when=_old, implies={"position_before_class": False}
            ),
            StoredAs("pos_embedding", when=_new, implies={"position_before_class": True}),
            # Files of 2021 without a class token have the old name too.
            StoredAs("Transformer/pos_embedding", when=lambda c: not c.has_class_token),
        ),
        "pool/probe": tuple(StoredAs(head + "probe") for head in _HEADS),
    }
    layers: dict[str, Names] = {
        **modules(encoder_layers(block, *_SUBMODULES), FLAX_PARAMETERS),
        **alternatives(
            *(
                modules({path: head + name for path, name in _POOL.items()}, FLAX_PARAMETERS)
                for head in _HEADS
            )
        ),
    }
    for word in LEXICON:
        names = layers.get(word.path)
        if isinstance(names, StoredAs) and stacked and word.path.startswith("block_"):
            names = dataclasses.replace(names, axes=f"l {word.axes}")
        if names is not None:
            words[word.path] = names
    return with_reasons({"root/": _NO_STEM, "stage": _NO_STEM}, words)


def _is_read_as_old(config: ViTConfig) -> bool:
    """Whether `fix_old_checkpoints` would take k^2 + 1 patches for a class token and k^2."""
    rows, columns = config.source_grid
    count = rows * columns - 1
    return not config.has_class_position and count > 0 and math.isqrt(count) ** 2 == count


def _loses_its_rectangle(config: ViTConfig) -> bool:
    rows, columns = config.source_grid
    return config.has_class_position and rows != columns


def _undetermined(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the pooling where neither class token, probe nor head shows it.

    A classifier without the first two averages its tokens, as big_vision does by default. An
    encoder alone, and the image tower of a file with a text tower, may do anything.
    """
    is_tower = fields["prefix"] == "params/img/" or not fields.get("num_classes")
    if fields["classifier"] != "gap" or not is_tower:
        return {}
    return {
        "classifier": "'gap' for pool_type='gap', 'unpooled' for 'none'; for '0' take the first "
        "token of 'unpooled'"
    }


big_vision = Dialect(
    name="big_vision",
    library="google-research/big_vision",
    container="npz",
    words=_words("Transformer/encoderblock_{l}", stacked=False),
    prefixes=("", "params/", "params/img/", "opt/target/"),
    ignored={
        r"opt/(?!target/).*": "optimizer state",
        r"chrono/.*": "clock of the training",
        r"params/(txt/.*|t|b)": "text tower",
    },
    undetermined=_undetermined,
    numerics=Numerics(),
    fields={"qkv_bias": True},
    images=PreparationWords(default=lambda config: "big_vision"),
    impossible=(
        (lambda c: not c.qkv_bias, "qkv_bias=False"),
        (lambda c: c.has_class_token and "token" not in c.classifier, "an unread class token"),
        (
            lambda c: c.position == "learned" and _loses_its_rectangle(c),
            "a class token with a position of its own on a grid that is no square",
        ),
    ),
    limits=(
        (
            lambda c: c.position == "learned" and _is_read_as_old(c),
            "a grid of k^2 + 1 patches, whose first row it would take for a class token's",
        ),
    ),
)

big_vision_scan = dataclasses.replace(
    big_vision,
    name="big_vision_scan",
    library="google-research/big_vision (scanned blocks)",
    words=_words("Transformer/encoderblock", stacked=True),
)
