"""timm's `Eva` and `Beit`: EVA, EVA-02, DINOv3, the Perception Encoder, RoPE-ViT, and BEiT.

An example is `eva02_base_patch14_224`. `Eva` has the names of `Beit`; keras_vit writes a model with
a relative position bias as a `Beit`. The form of rotary positions follows only from the name of the
architecture. EVA's attention has no key bias, and separate arrays for the query and value biases.
"""

from keras_vit.checkpoints.families.codecs import relative_bias
from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keys import Codec, Facts, Json, note, together
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.timm import library
from keras_vit.checkpoints.families.timm.vit import NAMES, PARTS, gated_names
from keras_vit.config import Rope, ViTConfig
from keras_vit.config.weights.conditions import parse

_SPLIT = "block.gated block.sub_norm=mlp|both"
"""The models with separate arrays for query, key and value: EVA-02 base, large and CLIP."""
_IN_ONE = "block.qkv_bias=True block.gated! or block.qkv_bias=True block.sub_norm!=mlp|both"
"""The models with one array for the biases of query, key and value."""

_QV = (True, False, True)
"""Biases of query and value, without a key bias."""
_NO_KEY = {"only": {"qkv": ["query", "value"]}, "implies": {"block.qkv_bias": _QV}}

_NAMES: Section = {
    **NAMES,
    "block_{l}/attention/{qkv}/kernel": [
        {"name": "blocks.{l}.attn.{q}_proj.weight : (h d) m", "when": _SPLIT},
        "blocks.{l}.attn.qkv.weight : (qkv h d) m",
    ],
    "block_{l}/attention/{qkv}/bias": [
        {"name": "blocks.{l}.attn.qkv.bias : (qkv h d)", "when": _IN_ONE},
        {"name": "blocks.{l}.attn.{q}_proj.bias : (h d)", "when": _SPLIT, **_NO_KEY},
        {"name": "blocks.{l}.attn.{q}_bias : (h d)", **_NO_KEY},
    ],
    "block_{l}/attention_scale/gamma": "blocks.{l}.gamma_1",
    "block_{l}/mlp_scale/gamma": "blocks.{l}.gamma_2",
}
_OF_EVA: Section = {
    **PARTS,
    "pool/probe": "attn_pool.latent",
    "block_{l}/attention/rotary_frequencies": "rope.freqs : z l h j",
    "block_{l}/mlp/{gate}": gated_names("block.sub_norm!=mlp|both rope.form!=dinov3"),
}
_OF_BEIT: Section = {
    "relative_position_bias/table": "rel_pos_bias.relative_position_bias_table",
    "position_bias_{l}/table": "blocks.{l}.attn.relative_position_bias_table",
}


def _write_gate(config: ViTConfig) -> Facts:
    # DINOv3 has two arrays for gate and value, which any number selects; 1 does not round widths.
    has_two = parse("block.gated block.sub_norm!=mlp|both rope.form=dinov3").holds(config)
    return {"swiglu_mlp": config.block.gated, "swiglu_align_to": int(has_two)}


_FORMS = {
    ("cat", False, "ij", 0): "axial",
    ("cat", False, "xy", 0): "axial_xy",
    ("cat", False, "xy", 1): "axial_xy_from_1",
    ("mixed", False, "ij", 0): "mixed",
    ("mixed", False, "xy", 0): "mixed_xy",
    ("dinov3", True, "ij", 0): "dinov3",
}
_OF_FORM = "rope_type rope_rotate_half rope_grid_indexing rope_grid_offset"
_FORM = together("rope.form", _FORMS)(_OF_FORM)
"""The arguments that together state the form of rotary positions."""


def _read_rope(content: Json) -> Facts:
    if not content.get("use_rot_pos_emb"):
        return {"rope": None}
    form = _FORM.read(content)["rope.form"]
    grid = content.get("ref_feat_shape") if form.startswith("axial") else None
    grid = (grid, grid) if isinstance(grid, int) else grid
    theta = float(content.get("rope_temperature", 10000.0))
    return {"rope": Rope(form=form, theta=theta, reference_grid=grid)}


def _write_rope(config: ViTConfig) -> Facts:
    rope = config.rope
    if rope is None:
        return {"use_rot_pos_emb": False}
    return {
        "use_rot_pos_emb": True,
        **_FORM.write(config),
        "rope_temperature": rope.theta,
        "ref_feat_shape": rope.reference_grid and list(rope.reference_grid),
    }


_BIASES = together(
    "block.qkv_bias",
    {(True, "eva"): _QV, (True, "rope"): True, (False, "eva"): False, (False, "rope"): False},
)
"""`qkv_bias` and `attn_type`."""
_OF_NORMS = "use_fc_norm use_post_transformer_norm"
_LAST_NORM = library.last_norm(*_OF_NORMS.split())
_POOLS = {"token": "token", "avg": "gap", "map": "map", "": "unpooled", None: "unpooled"}
_ROPE = Codec("rope", _read_rope, _write_rope)
_IS_FUSED = note(lambda config: not parse(_SPLIT).holds(config))
# An architecture for images of any size refuses pixels that fill no patch.
_ONE_SIZE = Codec("", lambda c: {}, lambda c: {"dynamic_img_size": False} if c.drops_pixels else {})
_IS_GATED = Codec("block.gated", lambda c: {"block.gated": bool(c["swiglu_mlp"])}, _write_gate)
_NORM_OF_MEAN = note(lambda config: config.pool.norm == "after")

FAMILIES = (
    Family(
        "timm/eva",
        library.TIMM,
        names=_NAMES,
        keys={**library.KEYS, "global_pool": ("pool.kind", _POOLS)},
        shapes={**library.SHAPES, "mlp_ratio": library.mlp_ratio()},
        open=library.OPEN,
        classes={
            "Eva": Class(
                "Eva",
                names=_OF_EVA,
                keys={
                    _OF_NORMS: _LAST_NORM,
                    "init_values": library.scale(None),
                    "use_abs_pos_emb no_embed_class": library.positions,
                    f"use_rot_pos_emb {_OF_FORM} rope_temperature ref_feat_shape": _ROPE,
                    "qkv_fused": _IS_FUSED,
                    "dynamic_img_size": _ONE_SIZE,
                },
                shapes={
                    **library.PARTS,
                    "attn_pool_num_heads attn_pool_mlp_ratio": library.POOL_SIZES,
                    "num_reg_tokens": "tokens.registers",
                    "use_pre_transformer_norm": library.input_norm,
                    "qkv_bias attn_type": _BIASES,
                    "scale_attn_inner scale_mlp": library.sub_norm,
                    "swiglu_mlp": _IS_GATED,
                },
            ),
            "Beit": Class(
                "Beit",
                names=_OF_BEIT,
                keys={
                    "use_fc_norm": _NORM_OF_MEAN,
                    "init_values": library.scale(0.0),
                    "use_abs_pos_emb": ("position", {True: "learned", False: "none"}),
                    "use_rel_pos_bias use_shared_rel_pos_bias": relative_bias,
                },
                shapes={
                    "qkv_bias": ("block.qkv_bias", {True: _QV, False: False}),
                    "scale_mlp": ("block.sub_norm", {True: "mlp", False: None}),
                },
                fixed={"tokens.class_tokens": 1},
                ignored={r"(.*\.)?relative_position_index": "indices, which follow from the grid"},
            ),
        },
    ),
)
