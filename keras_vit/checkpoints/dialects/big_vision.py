"""Checkpoints of google-research/big_vision (`models/vit.py`), such as `vit_s16_i1k_90ep.npz`.

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

from keras_vit.checkpoints.dialects import google
from keras_vit.checkpoints.dialects.base import Dialect, Names, PreparationWords
from keras_vit.checkpoints.dialects.names import FLAX, Section
from keras_vit.config import ViTConfig
from keras_vit.config.weights.lexicon import LEXICON

_NAMES: Section = {
    "position_embedding/embedding": [
        {
            "name": "Transformer/pos_embedding",
            "when": "num_prefix_positions",
            "implies": {"position": "learned"},
        },
        {
            "name": "pos_embedding",
            "when": "num_prefix_positions!",
            "implies": {"position": "learned_patches"},
        },
        {"name": "Transformer/pos_embedding", "when": "tokens.class_tokens!"},
    ],
    "pool/probe": ["MAPHead_0/probe", "probe"],
    "pool/attention/{qkv}": [
        "MAPHead_0/MultiHeadDotProductAttention_0/{qkv}",
        "MultiHeadDotProductAttention_0/{qkv}",
    ],
    "pool/attention/out": [
        "MAPHead_0/MultiHeadDotProductAttention_0/out",
        "MultiHeadDotProductAttention_0/out",
    ],
    "pool/norm": ["MAPHead_0/LayerNorm_0", "LayerNorm_0"],
    "pool/mlp/dense_0": ["MAPHead_0/MlpBlock_0/Dense_0", "MlpBlock_0/Dense_0"],
    "pool/mlp/dense_1": ["MAPHead_0/MlpBlock_0/Dense_1", "MlpBlock_0/Dense_1"],
}


def _words(stacked: bool) -> dict[str, Names]:
    """Returns the names; arrays of stacked blocks have the axis of the blocks in front."""
    names = FLAX.names(google.NAMES, google.LINEN, _NAMES)
    if stacked:
        for word in LEXICON:
            if word.path in names and word.path.startswith("block_"):
                (stored,) = names[word.path]
                name = stored.name.replace("encoderblock_{l}", "encoderblock")
                names[word.path] = (dataclasses.replace(stored, name=name, axes=f"l {word.axes}"),)
    return names


def _is_read_as_old(config: ViTConfig) -> bool:
    """Whether `fix_old_checkpoints` would take k^2 + 1 patches for a class token and k^2."""
    rows, columns = config.source_grid
    count = rows * columns - 1
    is_square = count > 0 and math.isqrt(count) ** 2 == count
    return config.has_learned_positions and not config.num_prefix_positions and is_square


def _undetermined(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the pooling where neither class token, probe nor head shows it.

    A classifier without the first two averages its tokens, as big_vision does by default. An
    encoder alone, and the image tower of a file with a text tower, may do anything.
    """
    is_tower = fields["prefix"] == "params/img/" or not fields.get("num_classes")
    if fields["pool.kind"] != "gap" or not is_tower:
        return {}
    return {
        "pool.kind": "'gap' for pool_type='gap', 'unpooled' for 'none'; for '0' take the first "
        "token of 'unpooled'"
    }


big_vision = Dialect(
    name="big_vision",
    library="google-research/big_vision",
    container="npz",
    words=_words(stacked=False),
    prefixes=("", "params/", "params/img/", "opt/target/"),
    ignored={
        r"opt/(?!target/).*": "optimizer state",
        r"chrono/.*": "clock of the training",
        r"params/(txt/.*|t|b)": "text tower",
    },
    undetermined=_undetermined,
    arithmetic={},
    fields={"block.qkv_bias": True},
    images=PreparationWords(default=lambda config: "big_vision"),
    impossible={
        **google.UNREAD_CLASS_TOKEN,
        "a class token with a position, beside a grid that is not square": (
            "position=learned tokens.class_tokens source_grid!=square"
        ),
        "a grid of k^2 + 1 patches, whose first position it would take for the class token's": (
            _is_read_as_old
        ),
    },
)

big_vision_scan = dataclasses.replace(
    big_vision,
    name="big_vision_scan",
    library="google-research/big_vision (scanned blocks)",
    words=_words(stacked=True),
)
