"""timm's `NaFlexVit`: images of different shapes in one batch, with positions of the patches only.

Models that are not rotary, gated or factorised are like the `VisionTransformer`, except for the
first arrays: positions have axes for rows and columns, and the patch embedding is a matrix.
"""

from keras_vit.checkpoints.families.family import Class, Family, Open
from keras_vit.checkpoints.families.keys import Codec, together
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.timm import library
from keras_vit.checkpoints.families.timm.vit import KEYS, NAMES, PARTS, SHAPES

_OWN: Section = {
    "patch_embedding/kernel": "embeds.proj.weight : m (p q c)",
    "patch_embedding/bias": "embeds.proj.bias",
    "class_token/token": "embeds.cls_token",
    "register_tokens/tokens": "embeds.reg_token",
    "position_embedding/embedding": {"name": "embeds.pos_embed : 1 R S m", "parted": "1 (R S) m"},
}

_HOW = "pos_embed_interp_mode pos_embed_antialias pos_embed_align_corners"
_RESIZES = {
    ("bicubic", True, False): "bicubic_antialias",
    ("bicubic", False, False): "bicubic",
    ("bilinear", True, False): "bilinear_antialias",
    ("bilinear", False, False): "bilinear_half_pixel",
    ("bilinear", False, True): "bilinear_align_corners",
}
"""Values of `_HOW` -> `ViTConfig.position_resize`."""
_POSITIONS = Codec(
    "position",
    lambda c: {"position": "learned_patches" if c["pos_embed"] == "learned" else "none"},
    lambda c: {"pos_embed": "none" if c.position == "none" else "learned"},
)
_GRID = Codec(
    "position_grid",
    lambda content: {"position_grid": content["pos_embed_grid_size"]},
    lambda config: {"pos_embed_grid_size": list(config.source_grid)},
)

FAMILIES = (
    Family(
        "timm/naflex",
        library.TIMM,
        names={**NAMES, **PARTS, **_OWN},
        keys={
            **KEYS,
            "pos_embed": _POSITIONS,
            "pos_embed_grid_size": _GRID,
            _HOW: together("position_resize", _RESIZES),
        },
        shapes={
            **SHAPES,
            "attn_pool_num_heads attn_pool_mlp_ratio": library.POOL_SIZES,
            "scale_attn_inner_norm scale_mlp_norm": library.sub_norm,
        },
        fixed={"stem.kind": "packed"},
        open={**library.OPEN, "patch_size": Open("only config.json states it")},
        classes={"NaFlexVit": Class("NaFlexVit")},
    ),
)
