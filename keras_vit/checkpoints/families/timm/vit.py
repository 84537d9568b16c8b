"""timm's `VisionTransformer`, its distilled form (DeiT) and its hybrids.

Examples are `vit_base_patch16_224` and the architectures of CLIP, DINOv2, DeiT, MAE, BEiT-3
and AIMv2. Query, key and value are one array. Hybrids have the layout of timm's ResNetV2, and other
epsilons than the official code (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

from typing import Any

from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keys import (
    Codec,
    Facts,
    Json,
    Keys,
    alike,
    compute_ratio,
    note,
    number,
)
from keras_vit.checkpoints.families.names import BLOCKS, Section, last_norms, norms_of_qk
from keras_vit.checkpoints.families.timm import library
from keras_vit.config import ViTConfig
from keras_vit.config.block import ACTIVATIONS

NAMES: Section = {
    **BLOCKS,
    "register_tokens/tokens": "reg_token",
    "pre_norm": "norm_pre",
    **norms_of_qk("blocks.{l}.attn.{q}_norm", "head"),
    "block_{l}/attention/sub_norm": "blocks.{l}.attn.norm",
    "block_{l}/mlp/sub_norm": "blocks.{l}.mlp.norm",
    "encoder_norm": [
        *last_norms("fc_norm", "norm"),
        {"name": "fc_norm", "when": "pool.kind=token|unpooled"},  # the same there
    ],
    "pool/probe": "attn_pool.latent",
    "pool/attention/{qkv}": [
        {"name": "attn_pool.q : (qkv h d)", "only": {"qkv": ["query"]}},
        {"name": "attn_pool.kv : (qkv h d)", "only": {"qkv": ["key", "value"]}},
    ],
    "pool/attention/out": "attn_pool.proj",
    "pool/norm": "attn_pool.norm",
    "pool/mlp/dense_0": "attn_pool.mlp.fc1",
    "pool/mlp/dense_1": "attn_pool.mlp.fc2",
}
"""The names that `Eva` and `NaFlexVit` share."""
OF_PATCHES: Section = {
    "pool/probe": {"name": "attn_pool.latent", "implies": {"pool.kind": "map_of_patches"}}
}
"""Attention pooling of `VisionTransformer` and `NaFlexVit`, which reads the patches alone."""
PROJECTION: Section = {
    "projection/kernel": {"name": "visual.head.proj.weight : t m", "outside": True}
}
"""The projection of a tower of open_clip with a trunk of timm."""
_UNIT = "patch_embed.backbone.stages.{s-1}.blocks.{u-1}"
_OF_STEM: Section = {
    **{
        f"root/{part}": [
            {
                "name": f"patch_embed.backbone.{stem}{part}",
                "when": when,
                "implies": {"stem.kind": "resnet_timm"},
            }
            for stem, when in (("", "stem.units!"), ("stem.", "stem.units"))
        ]
        for part in ("conv", "norm")
    },
    **{
        f"stage{{s}}_unit{{u}}/{ours}": f"{_UNIT}.{theirs}"
        for ours, theirs in (
            *(("conv_proj", "downsample.conv"), ("norm_proj", "downsample.norm")),
            *((f"{layer}{k}", f"{layer}{k}") for k in (1, 2, 3) for layer in ("conv", "norm")),
        )
    },
}


def gated_names(when: str) -> list[Any]:
    """Returns the names of gate and value, which are one array or two; all are read.

    Args:
        when: condition of the models whose files have one array.
    """
    packed = "blocks.{l}.mlp.fc1 : (gate f)"
    return [{"name": packed, "when": when}, "blocks.{l}.mlp.fc1_{g}", packed]


_OWN: Section = {
    "patch_norm": "patch_embed.norm",
    "block_{l}/mlp/{gate}": gated_names("block.norm=layer"),
    **OF_PATCHES,
}

_POOLS = {
    ("token", False): "token",
    ("avg", False): "gap",
    ("avg", True): "mean",
    ("map", False): "map_of_patches",
    ("map", True): "map",
    ("", False): "unpooled",
}
"""`global_pool` and `pool_include_prefix`, whether it reads the tokens before the patches too."""


def _read_pool(content: Json) -> Facts:
    if "global_pool" not in content:
        return {}
    pool = content["global_pool"] or ""
    if pool not in library.POOLS:
        raise ValueError(f"expected one of {', '.join(filter(None, library.POOLS))}")
    has_prefix = bool(content.get("pool_include_prefix")) and pool in ("avg", "map")
    return {"pool.kind": _POOLS[pool, has_prefix]}


def _write_pool(config: ViTConfig) -> Facts:
    kind = config.pool.kind
    is_of_all = kind == "mean" or (kind == "map" and config.num_prefix_tokens > 0)
    return {"global_pool": library.write_pool(config), "pool_include_prefix": is_of_all}


def _read_mlp_dim(content: Json) -> Facts:
    """Returns the width of the MLP, where the class of MLP is stated with it."""
    if "embed_dim" not in content:
        return {}
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    return {"mlp_dim": size // 2 if content.get("mlp_layer") == "GluMlp" else size}


def _write_ratio(config: ViTConfig) -> Facts:
    # Gate and value are one array, as in DINOv2-g, or two, as in AIMv2 with its RMSNorm.
    is_packed = config.block.gated and config.block.norm == "layer"
    return {"mlp_ratio": compute_ratio(config.mlp_dim * (1 + is_packed), config.hidden_size)}


_IS_GATED = {"Mlp": False, "GluMlp": True, "SwiGLU": True}
_ACTIVATIONS: dict[str | None, str] = {
    **{word: word for word in ACTIVATIONS},
    **{"SiLU": "silu", None: "gelu", "": "gelu"},
}
KEYS: Keys = {
    **library.KEYS,
    "global_pool pool_include_prefix": Codec("pool.kind", _read_pool, _write_pool),
    "fc_norm final_norm": library.last_norm("fc_norm", "final_norm"),
    "init_values": library.scale(0.0),
    "act_layer": ("block.activation", _ACTIVATIONS),
}
"""Arguments of `VisionTransformer` and `NaFlexVit` that no array shows."""
SHAPES: Keys = {
    **library.SHAPES,
    **library.QK_NORM,
    "mlp_ratio": Codec("mlp_dim", _read_mlp_dim, _write_ratio),
    # The name of an architecture stands for the class of the MLP that is written.
    "mlp_layer": Codec("block.gated", lambda c: {"block.gated": _IS_GATED[c["mlp_layer"]]}),
    "class_token": ("tokens.class_tokens", {True: 1, False: 0}),
    "reg_tokens": "tokens.registers",
    "pre_norm": library.input_norm("pre_norm"),
    "qkv_bias": "block.qkv_bias",
    "proj_bias": alike("block.projection_bias", "block.mlp_bias"),
}
"""Arguments of both that arrays show."""

FAMILIES = (
    Family(
        "timm",
        library.TIMM,
        names={**NAMES, **PROJECTION, **_OF_STEM, **_OWN},
        keys={
            **KEYS,
            "pos_embed no_embed_class": library.positions(
                "pos_embed", {"learned": "learn", "none": "none"}
            ),
        },
        shapes={
            **SHAPES,
            "scale_attn_norm scale_mlp_norm": library.sub_norm("scale_attn_norm", "scale_mlp_norm"),
        },
        limits={
            "attention pooling after gated MLPs": "block.gated pool.is_map",
            "another width in attention pooling": "pool.mlp_dim",
        },
        open=library.OPEN,
        classes={
            "VisionTransformer": Class("VisionTransformer"),
            "VisionTransformerDistilled": Class(
                "VisionTransformerDistilled",
                fixed={
                    "pool.kind": "token_and_distillation",
                    "tokens.distillation": True,
                    "tokens.class_tokens": 1,
                    "position": "learned",
                },
                keys={"global_pool pool_include_prefix": "", "global_pool": note("token")},
                names={
                    "distillation_token/token": "dist_token",
                    "register_tokens/tokens": None,
                    "head": None,
                    "head/{head}": "head{_dist}",
                },
                limits={"tokens without a position": "position!=learned"},
            ),
        },
    ),
)
