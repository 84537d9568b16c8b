"""timm's `NaFlexVit`: images of unequal shape in one batch, with positions of the patches alone.

What is not rotary, gated or factorised is the `VisionTransformer` with other names of its first
arrays: positions lie in rows and columns, and the projection of patches is a matrix.
"""

from typing import Any

from keras_vit.checkpoints.dialects.json_fields import (
    Codec,
    Json,
    JsonField,
    JsonFields,
    Row,
    note,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.timm import rows
from keras_vit.checkpoints.dialects.timm.eva import POOL_SIZES
from keras_vit.checkpoints.dialects.timm.vit import ARGUMENTS, NAMES, ONE_BIAS, shown_by_arrays
from keras_vit.config import ViTConfig

_OWN: Section = {
    "patch_embedding/kernel": "embeds.proj.weight : m (p q c)",
    "patch_embedding/bias": "embeds.proj.bias",
    "class_token/token": "embeds.cls_token",
    "register_tokens/tokens": "embeds.reg_token",
    "position_embedding/embedding": {"name": "embeds.pos_embed : 1 R S m", "parted": "1 (R S) m"},
}

_RESIZES = {
    ("bicubic", True, False): "bicubic_antialias",
    ("bicubic", False, False): "bicubic",
    ("bilinear", True, False): "bilinear_antialias",
    ("bilinear", False, False): "bilinear_half_pixel",
    ("bilinear", False, True): "bilinear_align_corners",
}
"""Filter, antialias and aligned corners -> the same in `ViTConfig.position_resize`."""
_KEYS_OF_RESIZE = ("pos_embed_interp_mode", "pos_embed_antialias", "pos_embed_align_corners")


def _read_resize(content: Json) -> dict[str, Any]:
    if any(key not in content for key in _KEYS_OF_RESIZE):
        return {}
    how = tuple(content[key] for key in _KEYS_OF_RESIZE)
    if how not in _RESIZES:
        raise ValueError(f"{how}, expected one of {', '.join(map(str, _RESIZES))}")
    return {"position_resize": _RESIZES[how]}


def _write_resize(config: ViTConfig) -> dict[str, Any]:
    names = _RESIZES.items()
    how = next((how for how, name in names if name == config.position_resize), ())
    return dict(zip(_KEYS_OF_RESIZE, how, strict=bool(how)))


_OTHERS = {"pos_embed", "scale_attn_norm"}
"""Keys of `VisionTransformer` that `NaFlexVit` lacks or gives other values."""

_POSITIONS = Codec(
    lambda position: "none" if position == "none" else "learned",
    lambda word: "learned_patches" if word == "learned" else "none",
)
"""The codec of positions, which all tokens but the patches join without one."""

_ARGUMENTS: tuple[Row, ...] = (
    *(row for row in ARGUMENTS if _OTHERS.isdisjoint(row.keys)),
    POOL_SIZES,
    rows.sub_norm_row("scale_attn_inner_norm", "scale_mlp_norm"),
    JsonField("pos_embed", "position", _POSITIONS),
    JsonField(
        "pos_embed_grid_size",
        "position_grid",
        write=lambda facts: list(facts.config.source_grid),
    ),
    JsonFields(_KEYS_OF_RESIZE, ("position_resize",), _read_resize, _write_resize),
)
"""Arguments of `NaFlexVit`."""

naflex = rows.family(
    "timm/naflex",
    "an architecture of NaFlexVit",
    words=TORCH.names(NAMES, _OWN),
    needs_json="patch_size",
    json=rows.tables(
        note("architecture", "naflexvit_base_patch16_map"),
        (_ARGUMENTS, ""),
        shown=shown_by_arrays,
    ),
    arithmetic=rows.ARITHMETIC,
    expresses=("block.activation", "pool.norm"),
    varies={"position_resize": tuple(_RESIZES.values())},
    fields={"stem.kind": "packed"},
    switches=("position", "pool.kind=mean", "pool.kind=map_of_patches", "pool.norm=none"),
    impossible={
        **rows.IMPOSSIBLE,
        "positions of the tokens before the patches": "has_learned_positions num_prefix_positions",
        **ONE_BIAS,
    },
)
