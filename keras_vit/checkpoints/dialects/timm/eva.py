"""timm's `Eva` and `Beit`: EVA, EVA-02, DINOv3, the Perception Encoder, RoPE-ViT, and BEiT.

An example is `eva02_base_patch14_224`. `Eva` has the names of `Beit`; keras_vit writes a model with
a relative position bias as a `Beit`. The architecture's name alone states the form of rotary
positions. EVA's attention has no bias of the key, and separate arrays for the biases of query and
value.
"""

from typing import Any

from keras_vit.checkpoints.dialects.json_fields import (
    HAS_POSITIONS,
    LEFT_OUT,
    Json,
    JsonField,
    JsonFields,
    Row,
    note,
    number,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.timm import architectures, rows
from keras_vit.checkpoints.dialects.timm.vit import NAMES, gated_names
from keras_vit.checkpoints.dialects.torch_conventions import (
    POSITIONS_OF_ANOTHER_GRID,
    compute_ratio,
    read_relative_bias,
    write_relative_bias,
)
from keras_vit.config import Rope, ViTConfig
from keras_vit.config.weights.conditions import parse, state_others
from keras_vit.errors import shown

_SPLIT = "block.gated block.sub_norm=mlp|both"
"""The models whose query, key and value are three arrays: EVA-02 base, large and CLIP."""

_OWN: Section = {
    "relative_position_bias/table": "rel_pos_bias.relative_position_bias_table",
    "position_bias_{l}/table": "blocks.{l}.attn.relative_position_bias_table",
    "block_{l}/attention/rotary_frequencies": "rope.freqs : z l h j",
    "block_{l}/attention/{qkv}/kernel": [
        {"name": "blocks.{l}.attn.{q}_proj.weight : (h d) m", "when": _SPLIT},
        "blocks.{l}.attn.qkv.weight : (qkv h d) m",
    ],
    "block_{l}/attention/{qkv}/bias": [
        {
            "name": "blocks.{l}.attn.qkv.bias : (qkv h d)",
            "when": "block.qkv_bias=True",
            "implies": {"block.qkv_bias": True},
        },
        {
            "name": "blocks.{l}.attn.{q}_proj.bias : (h d)",
            "when": _SPLIT,
            "only": {"qkv": ["query", "value"]},
            "implies": {"block.qkv_bias": [True, False, True]},
        },
        {
            "name": "blocks.{l}.attn.{q}_bias : (h d)",
            "only": {"qkv": ["query", "value"]},
            "implies": {"block.qkv_bias": [True, False, True]},
        },
    ],
    "block_{l}/attention_scale/gamma": "blocks.{l}.gamma_1",
    **gated_names("block.sub_norm!=mlp|both rope.form!=dinov3"),
    "block_{l}/mlp_scale/gamma": "blocks.{l}.gamma_2",
}

_NO_KEY = (True, False, True)

_WRITTEN = {1e-6: "eva_giant_patch14_224", 1e-5: "vit_small_patch16_dinov3"}
"""An architecture to write for every epsilon; `model_args` say what is otherwise.

A null there leaves the architecture's own value in transformers, so that eva_giant has no
reference grid, and a model without layer scale needs another architecture than DINOv3.
"""


def _read_architecture(content: Json) -> dict[str, Any]:
    return architectures.read_norm(architectures.read_arguments(content))


def _architecture(config: ViTConfig) -> dict[str, Any]:
    if config.relative_position_bias:
        return {"architecture": "beit_base_patch16_224"}
    block = config.block
    if block.epsilon == 1e-5 and block.layer_scale is None:
        return {"architecture": "vit_pe_spatial_tiny_patch16_512"}
    return {"architecture": _WRITTEN.get(block.epsilon, _WRITTEN[1e-6])}


def _read_mlp(content: Json) -> dict[str, Any]:
    is_gated = bool(content["swiglu_mlp"])
    return {"block.gated": is_gated, "block.activation": "silu" if is_gated else "gelu"}


def _write_mlp(config: ViTConfig) -> dict[str, Any]:
    # Gate and value are two arrays in DINOv3, where any number asks for them and 1 rounds nothing.
    has_two = parse("block.gated block.sub_norm!=mlp|both rope.form=dinov3").holds(config)
    return {"swiglu_mlp": config.block.gated, "swiglu_align_to": int(has_two)}


def _mlp_dim(content: Json) -> int:
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    step = content.get("swiglu_align_to") if content.get("swiglu_mlp") else 0
    return size + -size % step if step else size


def _shown_by_arrays(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns arguments that the arrays tell, see `rows.shown_by_arrays`."""
    words = rows.shown_by_arrays("num_reg_tokens", "use_fc_norm", arrays, content)
    sub_norm = arrays.get("block.sub_norm")
    words |= {
        "swiglu_mlp": bool(arrays.get("block.gated")),
        "scale_mlp": sub_norm in ("mlp", "both"),
        "scale_attn_inner": sub_norm in ("attention", "both"),
        "use_post_transformer_norm": arrays.get("pool.norm") != "none",
    }
    if "mlp_dim" in arrays and "hidden_size" in arrays:
        words["mlp_ratio"] = compute_ratio(arrays["mlp_dim"], arrays["hidden_size"])
    return words


def _biases(content: Json) -> dict[str, Any]:
    if not content["qkv_bias"]:
        return {"block.qkv_bias": False}
    return {"block.qkv_bias": True if content.get("attn_type") == "rope" else _NO_KEY}


_ROPE = {
    "rope_type": "cat",
    "rope_rotate_half": False,
    "rope_grid_indexing": "ij",
    "rope_grid_offset": 0,
}
"""Arguments that state the form of rotary positions together, and their defaults."""
_FORMS = {
    "axial": ("cat", False, "ij", 0),
    "axial_xy": ("cat", False, "xy", 0),
    "axial_xy_from_1": ("cat", False, "xy", 1),
    "mixed": ("mixed", False, "ij", 0),
    "mixed_xy": ("mixed", False, "xy", 0),
    "dinov3": ("dinov3", True, "ij", 0),
}
"""Form of rotary positions -> the values of `_ROPE`."""


def _read_rope(content: Json) -> dict[str, Any]:
    if not content["use_rot_pos_emb"]:
        return {"rope": None}
    stated = {key: content.get(key) for key in _ROPE}
    how = tuple(_ROPE[key] if own is None else own for key, own in stated.items())
    form = next((form for form, known in _FORMS.items() if known == how), None)
    if form is None:
        expected = " or ".join(map(str, _FORMS.values()))
        raise ValueError(f"with {', '.join(_ROPE)} of {shown(how)}, expected {expected}")
    grid = content.get("ref_feat_shape") if form.startswith("axial") else None
    return {
        "rope": Rope(
            form=form,
            theta=float(content.get("rope_temperature", 10000.0)),
            reference_grid=(grid, grid) if isinstance(grid, int) else grid,
        )
    }


def _write_rope(config: ViTConfig) -> dict[str, Any]:
    rope = config.rope
    if rope is None:
        return {"use_rot_pos_emb": False}
    return {
        "use_rot_pos_emb": True,
        **dict(zip(_ROPE, _FORMS[rope.form], strict=True)),
        "rope_temperature": rope.theta,
        "ref_feat_shape": rope.reference_grid and list(rope.reference_grid),
    }


def _read_pooling(content: Json) -> dict[str, Any]:
    is_last = rows.norms_pooled(content, "use_fc_norm")
    has_norm = is_last or content.get("use_post_transformer_norm") is not False
    return rows.read_pooling(content, "use_fc_norm", has_norm)


def _pooling(config: ViTConfig) -> dict[str, Any]:
    norm = config.pool.norm
    return {
        "global_pool": rows.POOL_OF.get(config.pool.kind, ""),
        "class_token": bool(config.tokens.class_tokens),
        "use_fc_norm": norm == "after",
        "use_post_transformer_norm": norm == "before",
    }


def _pool_sizes(content: Json) -> dict[str, Any]:
    """Returns the sizes of attention pooling; an absent size is that of the blocks."""
    fields: dict[str, Any] = {}
    if content.get("global_pool") != "map":
        return fields
    if heads := content.get("attn_pool_num_heads"):
        fields["pool.num_heads"] = heads
    if content.get("attn_pool_mlp_ratio") and "embed_dim" in content:
        ratio = number(content, "attn_pool_mlp_ratio")
        fields["pool.mlp_dim"] = int(number(content, "embed_dim") * ratio)
    return fields


def _write_pool(config: ViTConfig) -> dict[str, Any]:
    width = config.pool.mlp_dim
    return {
        "attn_pool_num_heads": config.pool.num_heads,
        "attn_pool_mlp_ratio": width and compute_ratio(width, config.hidden_size),
    }


POOL_SIZES = JsonFields(
    ("attn_pool_num_heads", "attn_pool_mlp_ratio"),
    ("pool.num_heads", "pool.mlp_dim"),
    _pool_sizes,
    _write_pool,
)
"""The row of attention pooling, which `Eva` and `NaFlexVit` have."""


def _read_bias(content: Json) -> dict[str, Any]:
    kind = read_relative_bias(content, _BIAS_KEYS)
    is_stated = any(content.get(key) is not None for key in _BIAS_KEYS)
    return {"relative_position_bias": kind} if is_stated else {}


_BIAS_KEYS = ("use_rel_pos_bias", "use_shared_rel_pos_bias")


_MLP_DIM = rows.dim_row(_mlp_dim, lambda c: compute_ratio(c.mlp_dim, c.hidden_size))

_ARGUMENTS: tuple[Row, ...] = (
    *rows.SIZES,
    _MLP_DIM,
    JsonFields(
        ("global_pool", "class_token", "use_fc_norm", "use_post_transformer_norm"),
        ("pool.kind", "pool.norm", "tokens.class_tokens"),
        _read_pooling,
        _pooling,
    ),
    POOL_SIZES,
    rows.scale_row(None),
    rows.input_norm_row("use_pre_transformer_norm"),
    JsonFields(
        ("qkv_bias", "attn_type"),
        ("block.qkv_bias",),
        _biases,
        lambda c: {
            "qkv_bias": bool(c.block.qkv_bias),
            "attn_type": "rope" if c.block.qkv_bias is True else "eva",
        },
        is_optional=True,
    ),
    note("qkv_fused", lambda facts: not parse(_SPLIT).holds(facts.config)),
    # An architecture with images of any size refuses pixels that fill no patch.
    note("dynamic_img_size", lambda facts: False if facts.config.drops_pixels else LEFT_OUT),
    rows.QK_NORM,
    rows.sub_norm_row("scale_attn_inner", "scale_mlp"),
    JsonFields(
        ("swiglu_mlp", "swiglu_align_to"),
        ("block.gated", "block.activation"),
        _read_mlp,
        _write_mlp,
        is_optional=True,
    ),
    JsonField("num_reg_tokens", "tokens.registers"),
    rows.position_row("use_abs_pos_emb", HAS_POSITIONS),
    JsonFields(
        ("use_rot_pos_emb", "rope_type"), ("rope",), _read_rope, _write_rope, is_optional=True
    ),
)
"""Arguments of `Eva`."""

_ARGUMENTS_OF_BEIT: tuple[Row, ...] = (
    *rows.SIZES,
    _MLP_DIM,
    rows.GLOBAL_POOL,
    note("use_fc_norm", lambda facts: facts.config.pool.norm == "after"),
    rows.scale_row(0.0),
    note("qkv_bias", lambda facts: bool(facts.config.block.qkv_bias)),
    note("scale_mlp", lambda facts: facts.config.block.sub_norm == "mlp"),
    note("use_abs_pos_emb", lambda facts: facts.config.position == "learned"),
    JsonFields(
        _BIAS_KEYS,
        ("relative_position_bias",),
        _read_bias,
        lambda c: write_relative_bias(c, _BIAS_KEYS),
    ),
)
"""Arguments of `Beit`. The rows of `Eva` read the arguments of both classes."""

_LACKING_IN_BEIT = (
    *("tokens.class_tokens!", "tokens.registers", "rope", "position=learned_patches"),
    *("block.input_norm=tokens", "block.gated", "block.qk_norm", "block.sub_norm=attention|both"),
    *("block.qkv_bias=True", f"block.epsilon!={architectures.EPSILONS[0]}"),
    *("pool.norm=none", "pool.is_map"),
)
"""Parts that `Eva` can have and `Beit` cannot."""


eva = rows.family(
    "timm/eva",
    "an architecture of Eva or Beit",
    words=TORCH.names(NAMES, _OWN),
    json=rows.tables(
        JsonFields(("architecture",), ("block.epsilon",), _read_architecture, _architecture),
        (_ARGUMENTS, "relative_position_bias!"),
        (_ARGUMENTS_OF_BEIT, "relative_position_bias"),
        shown=_shown_by_arrays,
    ),
    ignored={r"(.*\.)?relative_position_index": "a number that follows from the grid"},
    arithmetic=rows.ARITHMETIC,
    expresses=("pool.norm", "position_resize"),
    varies={"block.epsilon": architectures.EPSILONS},
    switches=("pool.norm=none", "position", "block.qkv_bias"),
    impossible={
        **rows.POSITIONS,
        **POSITIONS_OF_ANOTHER_GRID,
        **rows.IMPOSSIBLE,
        "these biases of query, key, value": state_others("block.qkv_bias", True, False, _NO_KEY),
        "a bias of the key with a normed gated MLP": f"block.qkv_bias=True {_SPLIT}",
        "a reference grid of rotary positions that are not axial": (
            "rope.form=mixed|mixed_xy|dinov3 rope.reference_grid"
        ),
        "a relative position bias in another network than BEiT": " or ".join(
            f"relative_position_bias {part}" for part in _LACKING_IN_BEIT
        ),
    },
)
