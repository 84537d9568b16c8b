"""Checkpoints of google-research/big_vision (`models/vit.py`), such as `vit_s16_i1k_90ep.npz`.

There are two layouts: `big_vision` with one set of arrays per block, and `big_vision_scan` with
one set of arrays for all blocks, stacked along the first axis. Only the patches have
positions, which are added before the class token is prepended. Files from before 2022 also have a
position for the class token, under another name; big_vision adds it to the class
token on loading (`fix_old_checkpoints`), which gives the same tokens.
"""

import math

from keras_vit.checkpoints.families import google
from keras_vit.checkpoints.families.family import Class, Family, Images, Library, Open
from keras_vit.checkpoints.families.names import FLAX, Section
from keras_vit.config import ViTConfig

_LIBRARY = Library(
    "google-research/big_vision",
    "npz",
    FLAX,
    images=Images(default=lambda config: "big_vision"),
    ignored={
        r"opt/(?!target/).*": "optimizer state",
        r"chrono/.*": "training clock",
        r"params/(txt/.*|t|b)": "text tower",
    },
)
_POOL: Section = {
    "pool/probe": "probe",
    "pool/attention/{qkv}": "MultiHeadDotProductAttention_0/{qkv}",
    "pool/attention/out": "MultiHeadDotProductAttention_0/out",
    "pool/norm": "LayerNorm_0",
    "pool/mlp/dense_0": "MlpBlock_0/Dense_0",
    "pool/mlp/dense_1": "MlpBlock_0/Dense_1",
}
_NAMES: Section = {
    **google.LAYERS,
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
    **{path: [f"MAPHead_0/{name}", name] for path, name in _POOL.items()},
}


def _is_read_as_old(config: ViTConfig) -> bool:
    """Whether `fix_old_checkpoints` would mistake k^2 + 1 patches for a class token and k^2."""
    count = math.prod(config.source_grid) - 1
    is_square = count > 0 and math.isqrt(count) ** 2 == count
    return config.has_learned_positions and not config.num_prefix_positions and is_square


FAMILIES = (
    Family(
        "big_vision",
        _LIBRARY,
        _NAMES,
        classes={
            "": Class(names=google.block(0, 1, 0)),
            "scan": Class(name="_scan", names=google.block(0, 1, 0, "encoderblock")),
        },
        fixed={"block.qkv_bias": True},
        limits={
            **google.LIMITS,
            "a class token with a position, and a grid that is not square": (
                "position=learned tokens.class_tokens source_grid!=square"
            ),
            "a grid of k^2 + 1 patches, whose first position it assigns to a class token": (
                _is_read_as_old
            ),
        },
        open={
            "pool.kind": Open(
                "'gap' for pool_type='gap', 'unpooled' for 'none'; for '0' take the first token of "
                "'unpooled'",
                "pool.kind=gap num_classes!",
            )
        },
    ),
)
