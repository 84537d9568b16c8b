"""timm's `Eva` and `Beit`: EVA, EVA-02, DINOv3, the Perception Encoder, RoPE-ViT, and BEiT.

An example is `eva02_base_patch14_224`. `Eva` has the names of `Beit`; keras_vit writes a model with
a relative position bias as a `Beit`. The architecture's name alone states the form of rotary
positions. EVA's attention has no bias of the key, and separate arrays for the biases of query and
value.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Identity,
    Limit,
    Names,
    StoredAs,
    with_reasons,
)
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonField,
    JsonFields,
    JsonNote,
    JsonTable,
    Row,
    number,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.timm.architectures import (
    EPSILONS,
    arguments_of,
    assumed_arguments,
    names_of,
    norm_of,
    ratio_of,
)
from keras_vit.checkpoints.dialects.timm.images import images
from keras_vit.checkpoints.dialects.timm.rows import (
    BLOCKS,
    IMPOSSIBLE,
    POOL_OF,
    SIZES,
    dim_row,
    imagenet,
    pre_norm_row,
    read_pooling,
    tables,
)
from keras_vit.checkpoints.dialects.torch_conventions import POSITIONS_OF_ANOTHER_GRID
from keras_vit.config import Numerics, Rope, ViTConfig
from keras_vit.errors import shown

_NO_KEY = (True, False, True)
_ATTENTION = "blocks.{l}.attn."


def _is_fused(config: ViTConfig) -> bool:
    """Whether query, key and value are one array, as in all but EVA-02 base, large and CLIP."""
    return not (config.mlp == "gated" and config.sub_norm_mlp)


def _is_split(config: ViTConfig) -> bool:
    return not _is_fused(config)


def _has_packed_mlp(config: ViTConfig) -> bool:
    """Whether gate and value are one array, as in EVA-02 tiny and small, but not in DINOv3."""
    return not config.sub_norm_mlp and not (config.rope and config.rope.form == "dinov3")


def _has_key_bias(config: ViTConfig) -> bool:
    return config.qkv_bias is True


_WORDS: dict[str, Names] = {
    **TORCH.names("timm", "timm/eva"),
    "block_{l}/attention/{qkv}/kernel": (
        StoredAs(_ATTENTION + "qkv.weight", "(qkv h d) m", when=_is_fused),
        StoredAs(_ATTENTION + "{q}_proj.weight", "(h d) m", when=_is_split),
    ),
    "block_{l}/attention/{qkv}/bias": (
        StoredAs(
            _ATTENTION + "qkv.bias", "(qkv h d)", when=_has_key_bias, implies={"qkv_bias": True}
        ),
        *(
            StoredAs(
                _ATTENTION + name,
                "(h d)",
                when=when,
                only={"qkv": ("query", "value")},
                implies={"qkv_bias": _NO_KEY},
            )
            for name, when in (("{q}_proj.bias", _is_split), ("{q}_bias", _is_fused))
        ),
    ),
}

_REASONS = {
    "root/": "timm's Eva has no ResNet stem",
    "stage": "timm's Eva has no ResNet stem",
    "pre_logits/": "timm's Eva has no representation layer",
}

_NORM_OF = {1e-6: "eva02_base_patch14_224", 1e-5: "vit_small_patch16_dinov3"}
"""An architecture to write for every epsilon; `model_args` say what is otherwise."""


def _kind_of_mlp(content: Json) -> dict[str, Any]:
    if "swiglu_mlp" not in content:
        return {}
    mlp = "gated" if content["swiglu_mlp"] else "plain"
    return {"mlp": mlp, "sub_norm_mlp": bool(content.get("scale_mlp"))}


def _words_of_mlp(config: ViTConfig) -> dict[str, Any]:
    return {
        "swiglu_mlp": config.mlp == "gated",
        "scale_mlp": config.sub_norm_mlp,
        # Any number asks for two arrays; 1 rounds nothing.
        "swiglu_align_to": int(
            config.mlp == "gated" and not config.sub_norm_mlp and not _has_packed_mlp(config)
        ),
    }


def _mlp_dim(content: Json) -> int:
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    step = content.get("swiglu_align_to") if content.get("swiglu_mlp") else 0
    return size + -size % step if step else size


def _biases(content: Json) -> dict[str, Any]:
    if "qkv_bias" not in content:
        return {}
    if not content["qkv_bias"]:
        return {"qkv_bias": False}
    return {"qkv_bias": True if content.get("attn_type") == "rope" else _NO_KEY}


def _rope_of(content: Json) -> dict[str, Any]:
    if "use_rot_pos_emb" not in content:
        return {}
    if not content["use_rot_pos_emb"]:
        return {"rope": None}
    forms = {"cat": "axial", "mixed": "mixed", "dinov3": "dinov3"}
    kind = content.get("rope_type", "cat")
    if kind not in forms:
        raise ValueError(f"with rope_type={kind!r}, expected one of {', '.join(forms)}")
    if bool(content.get("rope_rotate_half")) != (kind == "dinov3"):
        raise ValueError(
            f"with rope_type={kind!r} and rope_rotate_half={content.get('rope_rotate_half')!r}; "
            "keras_vit pairs channels half a head apart for 'dinov3', neighbours otherwise"
        )
    if kind == "dinov3" and content.get("rope_grid_offset"):
        raise ValueError(
            f"with rope_type='dinov3' and rope_grid_offset={shown(content['rope_grid_offset'])}, "
            "expected 0"
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


def _words_of_rope(config: ViTConfig) -> dict[str, Any]:
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
    after = config.classifier == "gap" and config.final_norm and config.numerics.pool_before_norm
    return {
        "global_pool": POOL_OF.get(config.classifier, ""),
        "class_token": config.has_class_token,
        "use_fc_norm": after,
        "use_post_transformer_norm": config.final_norm and not after,
    }


def _pool_sizes(content: Json) -> dict[str, Any]:
    """Returns the sizes of attention pooling; an absent size is that of the blocks."""
    fields: dict[str, Any] = {}
    if content.get("global_pool") == "map" and (heads := content.get("attn_pool_num_heads")):
        fields["map_num_heads"] = None if heads == content.get("num_heads") else heads
    has_ratio = bool(content.get("attn_pool_mlp_ratio"))
    if content.get("global_pool") == "map" and has_ratio and "embed_dim" in content:
        ratio = number(content, "attn_pool_mlp_ratio")
        fields["map_mlp_dim"] = int(number(content, "embed_dim") * ratio)
    return fields


def _words_of_pool(config: ViTConfig) -> dict[str, Any]:
    width = config.map_mlp_dim
    return {
        "attn_pool_num_heads": config.map_num_heads,
        "attn_pool_mlp_ratio": width and ratio_of(width, config.hidden_size),
    }


POOL_SIZES = JsonFields(
    ("attn_pool_num_heads", "attn_pool_mlp_ratio"),
    ("map_num_heads", "map_mlp_dim"),
    _pool_sizes,
    _words_of_pool,
)
"""The row of attention pooling, which `Eva` and `NaFlexVit` have."""


def _bias_of(content: Json) -> dict[str, Any]:
    own, shared = (content.get(key) for key in _BIAS_KEYS)
    if own and shared:
        raise ValueError(f"beside {_BIAS_KEYS[1]}, expected one of them")
    if own is None and shared is None:
        return {}
    return {"relative_position_bias": "block" if own else "shared" if shared else None}


_BIAS_KEYS = ("use_rel_pos_bias", "use_shared_rel_pos_bias")


def _is_beit(config: ViTConfig) -> bool:
    return config.relative_position_bias is not None


def _is_eva(config: ViTConfig) -> bool:
    return config.relative_position_bias is None


def _when(key: str, read: Callable[[Any], dict[str, Any]]) -> Callable[[Json], dict[str, Any]]:
    return lambda content: read(content[key]) if key in content else {}


_ARGUMENTS: tuple[Row, ...] = (
    *SIZES,
    dim_row(_mlp_dim, lambda c: ratio_of(c.mlp_dim, c.hidden_size)),
    JsonFields(
        ("global_pool", "class_token"),
        ("classifier", "class_token"),
        lambda content: {
            **read_pooling(content),
            "class_token_in_mean": False,
            "prefix_in_map": True,
        },
        _pooling,
    ),
    POOL_SIZES,
    *BLOCKS,
    pre_norm_row("use_pre_transformer_norm"),
    JsonFields(
        ("qkv_bias", "attn_type"),
        ("qkv_bias",),
        _biases,
        lambda c: {
            "qkv_bias": bool(c.biased_projections),
            "attn_type": "rope" if c.qkv_bias is True else "eva",
        },
    ),
    JsonNote("qkv_fused", lambda facts: _is_fused(facts.config)),
    # An architecture with images of any size refuses pixels that fill no patch.
    JsonNote("dynamic_img_size", lambda facts: False, when=lambda c: c.crop_remainder),
    JsonField("scale_attn_inner", "sub_norm_attention"),
    JsonFields(
        ("swiglu_mlp", "scale_mlp", "swiglu_align_to"),
        ("mlp", "sub_norm_mlp"),
        _kind_of_mlp,
        _words_of_mlp,
    ),
    JsonField("num_reg_tokens", "num_registers"),
    JsonFields(
        ("use_abs_pos_emb",),
        ("position",),
        _when("use_abs_pos_emb", lambda has: {"position": "learned" if has else "none"}),
        lambda c: {"use_abs_pos_emb": c.position == "learned"},
    ),
    JsonFields(("use_rot_pos_emb", "rope_type"), ("rope",), _rope_of, _words_of_rope),
)
"""Arguments of `Eva`."""

_ARGUMENTS_OF_BEIT: tuple[Row, ...] = (
    *SIZES,
    dim_row(_mlp_dim, lambda c: ratio_of(c.mlp_dim, c.hidden_size)),
    JsonNote("global_pool", lambda facts: POOL_OF.get(facts.config.classifier, "")),
    JsonNote("use_fc_norm", lambda facts: facts.config.numerics.pool_before_norm),
    BLOCKS[0],
    JsonNote("qkv_bias", lambda facts: bool(facts.config.biased_projections)),
    JsonNote("scale_mlp", lambda facts: facts.config.sub_norm_mlp),
    JsonNote("use_abs_pos_emb", lambda facts: facts.config.position == "learned"),
    JsonFields(
        _BIAS_KEYS,
        ("relative_position_bias",),
        _bias_of,
        lambda c: {
            key: c.relative_position_bias == value
            for key, value in zip(_BIAS_KEYS, ("block", "shared"), strict=True)
        },
    ),
)
"""Arguments of `Beit`. The rows of `Eva` read the arguments of both classes."""


def _architecture(config: ViTConfig) -> str:
    if _is_beit(config):
        return "beit_base_patch16_224"
    return _NORM_OF.get(config.numerics.layer_norm_epsilon, _NORM_OF[1e-6])


def _tables(architecture: Row) -> tuple[JsonTable, ...]:
    """Returns the tables of `config.json`: the arguments of either class."""
    at = ("model_args",)
    every = tables(architecture, _ARGUMENTS)
    return (
        *(dataclasses.replace(one, when=_is_eva) if one.at == at else one for one in every),
        JsonTable("config.json", _ARGUMENTS_OF_BEIT, at, assumed_arguments, when=_is_beit),
    )


_BESIDE = " beside a relative position bias"
_LACKING_IN_BEIT: tuple[Limit, ...] = (
    (lambda c: not c.has_class_token, "no class token"),
    (lambda c: c.num_registers > 0, "registers"),
    (lambda c: c.rope is not None, "rotary positions"),
    (lambda c: c.pre_norm, "a norm before the blocks"),
    (lambda c: c.position_before_class, "positions of the patches alone"),
    (lambda c: c.mlp != "plain", "a gated MLP"),
    (lambda c: c.sub_norm_attention, "a norm inside the attention"),
    (lambda c: c.qkv_bias is True, "a bias of the key"),
    (lambda c: not c.final_norm, "no last norm"),
    (lambda c: c.classifier == "map", "attention pooling"),
    (lambda c: c.numerics.layer_norm_epsilon != EPSILONS[0], f"another epsilon than {EPSILONS[0]}"),
)
"""Parts that `Eva` can have and `Beit` cannot."""

eva = Dialect(
    name="timm/eva",
    library="timm",
    container="safetensors",
    words=with_reasons(_REASONS, _WORDS),
    identity=Identity(
        "config.json",
        "architecture",
        rf"(?!(?:{'|'.join([*names_of('timm'), *names_of('timm/naflex')])})(?:\..*)?$).*",
        "an architecture of Eva or Beit",
    ),
    json=_tables(
        JsonFields(
            ("architecture",),
            ("numerics.layer_norm_epsilon",),
            lambda content: {**norm_of(arguments_of(content)), "numerics.gelu": "exact"},
            lambda c: {"architecture": _architecture(c)},
        ),
    ),
    ignored={r"(.*\.)?relative_position_index": "a number that follows from the grid"},
    labels=imagenet,
    images=images,
    numerics=Numerics(gelu="exact", position_resize="bicubic_antialias"),
    expresses=("pool_before_norm", "position_resize"),
    varies={"layer_norm_epsilon": EPSILONS},
    switches=("final_norm", "position", "qkv_bias"),
    impossible=(
        (lambda c: c.resnet is not None, "a ResNet stem"),
        (lambda c: c.position == "sincos2d", "position other than 'learned' or 'none'"),
        POSITIONS_OF_ANOTHER_GRID,
        *IMPOSSIBLE,
        (lambda c: c.class_token_in_mean, "a mean of the class token too"),
        (lambda c: c.qkv_bias not in (True, False, _NO_KEY), "these biases of query, key, value"),
        (
            lambda c: c.qkv_bias is True and _is_split(c),
            "a bias of the key beside a gated MLP with a norm",
        ),
        (
            lambda c: c.rope is not None and c.rope.form != "axial" and c.rope.offset != 0,
            "an offset of rotary positions that are not axial",
        ),
        *(
            (lambda c, is_lacking=is_lacking: _is_beit(c) and is_lacking(c), f"{part}{_BESIDE}")
            for is_lacking, part in _LACKING_IN_BEIT
        ),
    ),
    crops=False,
)
