"""timm's `Eva` and `Beit`: EVA, EVA-02, DINOv3, the Perception Encoder, RoPE-ViT, and BEiT.

An example is `eva02_base_patch14_224`. `Eva` has the names of `Beit`; keras_vit writes a model with
a relative position bias as a `Beit`. The architecture's name alone states the form of rotary
positions. EVA's attention has no bias of the key, and separate arrays for the biases of query and
value.
"""

from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keys import (
    Codec,
    Facts,
    Json,
    Keys,
    compute_ratio,
    note,
    number,
    relative_bias,
)
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.timm import library
from keras_vit.checkpoints.families.timm.vit import NAMES, PROJECTION, gated_names
from keras_vit.config import Rope, ViTConfig
from keras_vit.config.weights.conditions import parse
from keras_vit.errors import shown

_SPLIT = "block.gated block.sub_norm=mlp|both"
"""The models whose query, key and value are three arrays: EVA-02 base, large and CLIP."""
_IN_ONE = "block.qkv_bias=True block.gated! or block.qkv_bias=True block.sub_norm!=mlp|both"
"""The models whose biases of query, key and value are one array."""

_NO_KEY = {"only": {"qkv": ["query", "value"]}, "implies": {"block.qkv_bias": (True, False, True)}}

_SHARED: Section = {
    **NAMES,
    "block_{l}/attention/{qkv}/kernel": [
        {"name": "blocks.{l}.attn.{q}_proj.weight : (h d) m", "when": _SPLIT},
        "blocks.{l}.attn.qkv.weight : (qkv h d) m",
    ],
    "block_{l}/attention/{qkv}/bias": [
        {"name": "blocks.{l}.attn.qkv.bias : (qkv h d)", "when": _IN_ONE},
        {
            "name": "blocks.{l}.attn.{q}_proj.bias : (h d)",
            "when": _SPLIT,
            **_NO_KEY,
        },
        {"name": "blocks.{l}.attn.{q}_bias : (h d)", **_NO_KEY},
    ],
    "block_{l}/attention_scale/gamma": "blocks.{l}.gamma_1",
    "block_{l}/mlp_scale/gamma": "blocks.{l}.gamma_2",
}
_OF_EVA: Section = {
    "block_{l}/attention/rotary_frequencies": "rope.freqs : z l h j",
    "block_{l}/mlp/{gate}": gated_names("block.sub_norm!=mlp|both rope.form!=dinov3"),
}
_OF_BEIT: Section = {
    "relative_position_bias/table": "rel_pos_bias.relative_position_bias_table",
    "position_bias_{l}/table": "blocks.{l}.attn.relative_position_bias_table",
    # The class has no such parts.
    **dict.fromkeys(name for name in NAMES if name.startswith("pool/")),
    **dict.fromkeys(("register_tokens/tokens", "pre_norm", "block_{l}/attention/sub_norm")),
    **dict.fromkeys(f"block_{{l}}/attention/{part}_norm" for part in ("query", "key")),
}


def _read_mlp_dim(content: Json) -> Facts:
    if "embed_dim" not in content:
        return {}
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    step = content.get("swiglu_align_to") if content.get("swiglu_mlp") else 0
    return {"mlp_dim": size + -size % step if step else size}


def _write_gate(config: ViTConfig) -> Facts:
    # Gate and value are two arrays in DINOv3, where any number asks for them and 1 rounds nothing.
    has_two = parse("block.gated block.sub_norm!=mlp|both rope.form=dinov3").holds(config)
    return {"swiglu_mlp": config.block.gated, "swiglu_align_to": int(has_two)}


def _read_biases(content: Json) -> Facts:
    own = True if content.get("attn_type") == "rope" else (True, False, True)
    return {"block.qkv_bias": own if content.get("qkv_bias") else False}


def _write_biases(config: ViTConfig) -> Facts:
    own = config.block.qkv_bias
    return {"qkv_bias": bool(own), "attn_type": "rope" if own is True else "eva"}


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


def _read_rope(content: Json) -> Facts:
    if not content.get("use_rot_pos_emb"):
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


def _write_rope(config: ViTConfig) -> Facts:
    rope = config.rope
    if rope is None:
        return {"use_rot_pos_emb": False}
    return {
        "use_rot_pos_emb": True,
        **dict(zip(_ROPE, _FORMS[rope.form], strict=True)),
        "rope_temperature": rope.theta,
        "ref_feat_shape": rope.reference_grid and list(rope.reference_grid),
    }


_SHAPES: Keys = {
    **library.SHAPES,
    "mlp_ratio": Codec(
        "mlp_dim",
        _read_mlp_dim,
        lambda c: {"mlp_ratio": compute_ratio(c.mlp_dim, c.hidden_size)},
    ),
}
_POOL: Keys = {"global_pool": ("pool.kind", library.POOLS)}
_IS_FUSED = note(lambda config: not parse(_SPLIT).holds(config))
# An architecture with images of any size refuses pixels that fill no patch.
_ONE_SIZE = Codec("", lambda c: {}, lambda c: {"dynamic_img_size": False} if c.drops_pixels else {})
_IS_GATED = Codec("block.gated", lambda c: {"block.gated": bool(c["swiglu_mlp"])}, _write_gate)
_NORM_OF_MEAN = note(lambda config: config.pool.norm == "after")
_BIASES_OF_BEIT = Codec(
    "block.qkv_bias", _read_biases, lambda c: {"qkv_bias": bool(c.block.qkv_bias)}
)
_NAMES_OF_ROPE = " ".join(("use_rot_pos_emb", *_ROPE, "rope_temperature", "ref_feat_shape"))

FAMILIES = (
    Family(
        "timm/eva",
        library.TIMM,
        names={**_SHARED, **_OF_EVA, **PROJECTION},
        keys={
            **library.KEYS,
            **_POOL,
            "use_fc_norm use_post_transformer_norm": library.last_norm(
                "use_fc_norm", "use_post_transformer_norm"
            ),
            "init_values": library.scale(None),
            "use_abs_pos_emb no_embed_class": library.positions(
                "use_abs_pos_emb", {"learned": True, "none": False}
            ),
            _NAMES_OF_ROPE: Codec("rope", _read_rope, _write_rope),
            "qkv_fused": _IS_FUSED,
            "dynamic_img_size": _ONE_SIZE,
        },
        shapes={
            **_SHAPES,
            **library.QK_NORM,
            **library.POOL_SIZES,
            "class_token": ("tokens.class_tokens", {True: 1, False: 0}),
            "num_reg_tokens": "tokens.registers",
            "use_pre_transformer_norm": library.input_norm("use_pre_transformer_norm"),
            "qkv_bias attn_type": Codec("block.qkv_bias", _read_biases, _write_biases),
            "scale_attn_inner scale_mlp": library.sub_norm("scale_attn_inner", "scale_mlp"),
            "swiglu_mlp": _IS_GATED,
        },
        open=library.OPEN,
        classes={"Eva": Class("Eva")},
    ),
    Family(
        "timm/eva",
        library.TIMM,
        names={**_SHARED, **_OF_BEIT, **PROJECTION},
        keys={
            **library.KEYS,
            **_POOL,
            "use_fc_norm": _NORM_OF_MEAN,
            "init_values": library.scale(0.0),
            "use_abs_pos_emb": ("position", {True: "learned", False: "none"}),
            "use_rel_pos_bias use_shared_rel_pos_bias": relative_bias(
                "use_rel_pos_bias", "use_shared_rel_pos_bias"
            ),
        },
        shapes={
            **_SHAPES,
            "qkv_bias": _BIASES_OF_BEIT,
            "scale_mlp": ("block.sub_norm", {True: "mlp", False: None}),
        },
        fixed={"tokens.class_tokens": 1},
        ignored={r"(.*\.)?relative_position_index": "a number that follows from the grid"},
        open=library.OPEN,
        classes={"Beit": Class("Beit")},
    ),
)
