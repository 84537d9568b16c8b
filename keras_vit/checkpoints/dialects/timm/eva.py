"""timm's `Eva` and `Beit`: EVA, EVA-02, DINOv3, the Perception Encoder, RoPE-ViT, and BEiT.

An example is `eva02_base_patch14_224`. `Eva` has the names of `Beit`; keras_vit writes a model with
a relative position bias as a `Beit`. The architecture's name alone states the form of rotary
positions. EVA's attention has no bias of the key, and separate arrays for the biases of query and
value.
"""

from operator import attrgetter
from typing import Any

from keras_vit.checkpoints.dialects.base import one_of_several
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
from keras_vit.config import Numerics, Rope, ViTConfig
from keras_vit.config.weights.conditions import state_others
from keras_vit.errors import shown

_OWN: Section = {
    "relative_position_bias/table": "rel_pos_bias.relative_position_bias_table",
    "block_{l}/attention_bias/table": "blocks.{l}.attn.relative_position_bias_table",
    "block_{l}/attention/rotary_frequencies": "rope.freqs : z l h j",
    "block_{l}/attention/{qkv}/kernel": [
        {"name": "blocks.{l}.attn.{q}_proj.weight : (h d) m", "when": "mlp=gated sub_norm_mlp"},
        "blocks.{l}.attn.qkv.weight : (qkv h d) m",
    ],
    "block_{l}/attention/{qkv}/bias": [
        {
            "name": "blocks.{l}.attn.qkv.bias : (qkv h d)",
            "when": "qkv_bias=True",
            "implies": {"qkv_bias": True},
        },
        {
            "name": "blocks.{l}.attn.{q}_proj.bias : (h d)",
            "when": "mlp=gated sub_norm_mlp",
            "only": {"qkv": ["query", "value"]},
            "implies": {"qkv_bias": [True, False, True]},
        },
        {
            "name": "blocks.{l}.attn.{q}_bias : (h d)",
            "only": {"qkv": ["query", "value"]},
            "implies": {"qkv_bias": [True, False, True]},
        },
    ],
    "block_{l}/attention_scale/gamma": "blocks.{l}.gamma_1",
    **gated_names("sub_norm_mlp! rope.form!=dinov3"),
    "block_{l}/mlp_scale/gamma": "blocks.{l}.gamma_2",
}

_NO_KEY = (True, False, True)


def _is_split(config: ViTConfig) -> bool:
    """Whether query, key and value are three arrays, as in EVA-02 base, large and CLIP."""
    return config.mlp == "gated" and config.sub_norm_mlp


_WRITTEN = {1e-6: "eva_giant_patch14_224", 1e-5: "vit_small_patch16_dinov3"}
"""An architecture to write for every epsilon; `model_args` say what is otherwise.

A null there leaves the architecture's own value in transformers, so that eva_giant has no
reference grid, and a model without layer scale needs another architecture than DINOv3.
"""


def _read_architecture(content: Json) -> dict[str, Any]:
    return {
        **architectures.read_norm(architectures.read_arguments(content)),
        "numerics.gelu": "exact",
    }


def _architecture(config: ViTConfig) -> dict[str, Any]:
    if config.relative_position_bias:
        return {"architecture": "beit_base_patch16_224"}
    if config.numerics.layer_norm_epsilon == 1e-5 and not config.layer_scale:
        return {"architecture": "vit_pe_spatial_tiny_patch16_512"}
    return {"architecture": _WRITTEN.get(config.numerics.layer_norm_epsilon, _WRITTEN[1e-6])}


def _write_mlp(config: ViTConfig) -> dict[str, Any]:
    # Gate and value are two arrays in DINOv3, where any number asks for them and 1 rounds nothing.
    is_dinov3 = config.rope is not None and config.rope.form == "dinov3"
    return {
        "swiglu_mlp": config.mlp == "gated",
        "scale_mlp": config.sub_norm_mlp,
        "swiglu_align_to": int(config.mlp == "gated" and not config.sub_norm_mlp and is_dinov3),
    }


def _mlp_dim(content: Json) -> int:
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    step = content.get("swiglu_align_to") if content.get("swiglu_mlp") else 0
    return size + -size % step if step else size


def _shown_by_arrays(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns arguments that the arrays tell, see `rows.shown_by_arrays`."""
    words = rows.shown_by_arrays("num_reg_tokens", "use_fc_norm", arrays, content)
    words |= {"swiglu_mlp": arrays.get("mlp") == "gated", "scale_mlp": arrays.get("sub_norm_mlp")}
    if "mlp_dim" in arrays and "hidden_size" in arrays:
        words["mlp_ratio"] = compute_ratio(arrays["mlp_dim"], arrays["hidden_size"])
    return words


def _biases(content: Json) -> dict[str, Any]:
    if not content["qkv_bias"]:
        return {"qkv_bias": False}
    return {"qkv_bias": True if content.get("attn_type") == "rope" else _NO_KEY}


def _read_rope(content: Json) -> dict[str, Any]:
    if not content["use_rot_pos_emb"]:
        return {"rope": None}
    forms = {"cat": "axial", "mixed": "mixed", "dinov3": "dinov3"}
    kind = content.get("rope_type", "cat")
    if kind not in forms:
        raise ValueError(f"with rope_type={kind!r}, expected one of {', '.join(forms)}")
    half, offset = bool(content.get("rope_rotate_half")), content.get("rope_grid_offset")
    if half != (kind == "dinov3") or (half and offset):
        raise ValueError(
            f"with rope_type={kind!r}, rope_rotate_half={half} and rope_grid_offset="
            f"{shown(offset)}: only 'dinov3' pairs channels half a head apart, without an offset"
        )
    grid = content.get("ref_feat_shape") if kind == "cat" else None
    return {
        "rope": Rope(
            form=forms[kind],
            theta=float(content.get("rope_temperature", 10000.0)),
            offset=float(content.get("rope_grid_offset", 0.0)) if kind == "cat" else 0.0,
            reference_grid=(grid, grid) if isinstance(grid, int) else grid,
            indexing=content.get("rope_grid_indexing", "ij"),
        )
    }


def _write_rope(config: ViTConfig) -> dict[str, Any]:
    rope = config.rope
    if rope is None:
        return {"use_rot_pos_emb": False}
    return {
        "use_rot_pos_emb": True,
        "rope_type": {"axial": "cat"}.get(rope.form, rope.form),
        "rope_temperature": rope.theta,
        "rope_grid_offset": rope.offset,
        "rope_grid_indexing": rope.indexing,
        "rope_rotate_half": rope.form == "dinov3",
        "ref_feat_shape": rope.reference_grid and list(rope.reference_grid),
    }


def _pooling(config: ViTConfig) -> dict[str, Any]:
    after = config.pooling == "gap" and config.final_norm and config.numerics.pool_before_norm
    return {
        "global_pool": rows.POOL_OF.get(config.pooling, ""),
        "class_token": config.has_class_token,
        "use_fc_norm": after,
        "use_post_transformer_norm": config.final_norm and not after,
    }


def _pool_sizes(content: Json) -> dict[str, Any]:
    """Returns the sizes of attention pooling; an absent size is that of the blocks."""
    fields: dict[str, Any] = {}
    if content.get("global_pool") != "map":
        return fields
    if heads := content.get("attn_pool_num_heads"):
        fields["map_num_heads"] = None if heads == content.get("num_heads") else heads
    if content.get("attn_pool_mlp_ratio") and "embed_dim" in content:
        ratio = number(content, "attn_pool_mlp_ratio")
        fields["map_mlp_dim"] = int(number(content, "embed_dim") * ratio)
    return fields


def _write_pool(config: ViTConfig) -> dict[str, Any]:
    width = config.map_mlp_dim
    return {
        "attn_pool_num_heads": config.map_num_heads,
        "attn_pool_mlp_ratio": width and compute_ratio(width, config.hidden_size),
    }


POOL_SIZES = JsonFields(
    ("attn_pool_num_heads", "attn_pool_mlp_ratio"),
    ("map_num_heads", "map_mlp_dim"),
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
        ("global_pool", "class_token", "use_fc_norm"),
        ("pooling", "class_token"),
        lambda content: {
            **rows.read_pooling(content, "use_fc_norm"),
            "class_token_in_mean": False,
            "prefix_in_map": True,
        },
        _pooling,
    ),
    POOL_SIZES,
    rows.scale_row(None),
    *rows.BLOCKS[1:],
    rows.pre_norm_row("use_pre_transformer_norm"),
    JsonFields(
        ("qkv_bias", "attn_type"),
        ("qkv_bias",),
        _biases,
        lambda c: {
            "qkv_bias": bool(c.biased_projections),
            "attn_type": "rope" if c.qkv_bias is True else "eva",
        },
        is_optional=True,
    ),
    note("qkv_fused", lambda facts: not _is_split(facts.config)),
    # An architecture with images of any size refuses pixels that fill no patch.
    note("dynamic_img_size", lambda facts: False if facts.config.drops_pixels else LEFT_OUT),
    rows.QK_NORM,
    JsonField("scale_attn_inner", "sub_norm_attention"),
    JsonFields(
        ("swiglu_mlp", "scale_mlp", "swiglu_align_to"),
        ("mlp", "sub_norm_mlp"),
        lambda content: {
            "mlp": "gated" if content["swiglu_mlp"] else "plain",
            "sub_norm_mlp": bool(content.get("scale_mlp")),
        },
        _write_mlp,
        is_optional=True,
    ),
    JsonField("num_reg_tokens", "num_registers"),
    JsonField("use_abs_pos_emb", "position", HAS_POSITIONS),
    JsonFields(
        ("use_rot_pos_emb", "rope_type"), ("rope",), _read_rope, _write_rope, is_optional=True
    ),
)
"""Arguments of `Eva`."""

_ARGUMENTS_OF_BEIT: tuple[Row, ...] = (
    *rows.SIZES,
    _MLP_DIM,
    rows.GLOBAL_POOL,
    note("use_fc_norm", attrgetter("config.numerics.pool_before_norm")),
    rows.BLOCKS[0],
    note("qkv_bias", lambda facts: bool(facts.config.biased_projections)),
    note("scale_mlp", attrgetter("config.sub_norm_mlp")),
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
    *("has_class_token!", "num_registers", "rope", "pre_norm", "position_before_class"),
    *("mlp=gated", "qk_norm", "sub_norm_attention", "qkv_bias=True", "final_norm!", "pooling=map"),
    f"numerics.layer_norm_epsilon!={architectures.EPSILONS[0]}",
)
"""Parts that `Eva` can have and `Beit` cannot."""


eva = rows.family(
    "timm/eva",
    "an architecture of Eva or Beit",
    words=TORCH.names(NAMES, _OWN),
    json=rows.tables(
        JsonFields(
            ("architecture",), ("numerics.layer_norm_epsilon",), _read_architecture, _architecture
        ),
        (_ARGUMENTS, "relative_position_bias!"),
        (_ARGUMENTS_OF_BEIT, "relative_position_bias"),
        shown=_shown_by_arrays,
    ),
    ignored={r"(.*\.)?relative_position_index": "a number that follows from the grid"},
    numerics=Numerics(gelu="exact", position_resize="bicubic_antialias"),
    expresses=("pool_before_norm", "position_resize"),
    varies={"layer_norm_epsilon": architectures.EPSILONS},
    switches=("final_norm", "position", "qkv_bias"),
    impossible={
        **one_of_several("position", "learned", "none"),
        **POSITIONS_OF_ANOTHER_GRID,
        **rows.IMPOSSIBLE,
        "a mean of the class token too": "class_token_in_mean",
        "these biases of query, key, value": state_others("qkv_bias", True, False, _NO_KEY),
        "a bias of the key beside a gated MLP with a norm": (
            "qkv_bias=True mlp=gated sub_norm_mlp"
        ),
        "an offset or a reference grid of rotary positions that are not axial": (
            "rope.form!=axial rope.offset or rope.form!=axial rope.reference_grid"
        ),
        "a relative position bias in another network than BEiT": " or ".join(
            f"relative_position_bias {part}" for part in _LACKING_IN_BEIT
        ),
    },
)
