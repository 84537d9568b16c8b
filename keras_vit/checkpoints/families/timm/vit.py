"""timm's `VisionTransformer`, its distilled form (DeiT) and its hybrids.

Examples are `vit_base_patch16_224` and the architectures of CLIP, DINOv2, DeiT, MAE, BEiT-3
and AIMv2. Query, key and value are one array. Hybrids have the layout of timm's ResNetV2, and
different epsilons from the official code (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

from typing import Any

from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keys import Codec, Facts, Json, Keys, alike, note
from keras_vit.checkpoints.families.names import BLOCKS, Section, last_norms, norms_of_qk
from keras_vit.checkpoints.families.timm import library
from keras_vit.config import ViTConfig
from keras_vit.config.block import ACTIVATIONS

NAMES: Section = {
    **BLOCKS,
    "block_{l}/mlp/sub_norm": "blocks.{l}.mlp.norm",
    "encoder_norm": [
        *last_norms("fc_norm", "norm"),
        {"name": "fc_norm", "when": "pool.kind=token|unpooled"},  # the same there
    ],
    # From a tower of open_clip with a trunk of timm.
    "projection/kernel": {"name": "visual.head.proj.weight : t m", "outside": True},
}
"""The names in every class."""
PARTS: Section = {
    "register_tokens/tokens": "reg_token",
    "pre_norm": "norm_pre",
    **norms_of_qk("blocks.{l}.attn.{q}_norm", "head"),
    "block_{l}/attention/sub_norm": "blocks.{l}.attn.norm",
    # By default it pools the patches only.
    "pool/probe": {"name": "attn_pool.latent", "implies": {"pool.kind": "map_of_patches"}},
    "pool/attention/{qkv}": [
        {"name": "attn_pool.q : (qkv h d)", "only": {"qkv": ["query"]}},
        {"name": "attn_pool.kv : (qkv h d)", "only": {"qkv": ["key", "value"]}},
    ],
    "pool/attention/out": "attn_pool.proj",
    "pool/norm": "attn_pool.norm",
    "pool/mlp/dense_0": "attn_pool.mlp.fc1",
    "pool/mlp/dense_1": "attn_pool.mlp.fc2",
}
"""The names of layers that `Beit` lacks."""


def gated_names(when: str) -> list[Any]:
    """Returns the names of gate and value, as one array or as two; both forms are read.

    Args:
        when: condition of the models whose files have one array.
    """
    packed = "blocks.{l}.mlp.fc1 : (gate f)"
    return [{"name": packed, "when": when}, "blocks.{l}.mlp.fc1_{g}", packed]


_UNIT = "patch_embed.backbone.stages.{s-1}.blocks.{u-1}"
_TIMM = {"implies": {"stem.kind": "resnet_timm"}}
_OWN: Section = {
    "patch_norm": "patch_embed.norm",
    "block_{l}/mlp/{gate}": gated_names("block.norm=layer"),
    **{
        f"root/{part}": [
            {"name": f"patch_embed.backbone.{part}", "when": "stem.units!", **_TIMM},
            {"name": f"patch_embed.backbone.stem.{part}", "when": "stem.units", **_TIMM},
        ]
        for part in ("conv", "norm")
    },
    **{
        f"stage{{s}}_unit{{u}}/{layer}": f"{_UNIT}.{layer}"
        for layer in ("conv1", "conv2", "conv3", "norm1", "norm2", "norm3")
    },
    "stage{s}_unit{u}/conv_proj": f"{_UNIT}.downsample.conv",
    "stage{s}_unit{u}/norm_proj": f"{_UNIT}.downsample.norm",
}
_POOLS = {
    ("token", False): "token",
    ("avg", False): "gap",
    ("avg", True): "mean",
    ("map", False): "map_of_patches",
    ("map", True): "map",
    ("", False): "unpooled",
}
"""`global_pool` and `pool_include_prefix` (whether to include the tokens before the patches)."""


def _read_pool(content: Json) -> Facts:
    if "global_pool" not in content:
        return {}
    pool = content["global_pool"] or ""
    has_prefix = bool(content.get("pool_include_prefix")) and pool in ("avg", "map")
    if (pool, has_prefix) not in _POOLS:
        raise ValueError("expected one of token, avg, map")
    return {"pool.kind": _POOLS[pool, has_prefix]}


def _write_pool(config: ViTConfig) -> Facts:
    kind = config.pool.kind
    if kind == "map" and not config.num_prefix_tokens:
        kind = "map_of_patches"  # equivalent, and timm's default
    pool, has_prefix = next((how for how, own in _POOLS.items() if own == kind), ("token", False))
    return {"global_pool": pool, "pool_include_prefix": has_prefix}


_IS_GATED = {"Mlp": False, "GluMlp": True, "SwiGLU": True}
_WORDS: dict[Any, str] = {own: own for own in ACTIVATIONS}
_ACTIVATIONS = {**_WORDS, "SiLU": "silu", None: "gelu", "": "gelu"}
KEYS: Keys = {
    **library.KEYS,
    "global_pool pool_include_prefix": Codec("pool.kind", _read_pool, _write_pool),
    "fc_norm final_norm": library.last_norm("fc_norm", "final_norm"),
    "init_values": library.scale(0.0),
    "act_layer": ("block.activation", _ACTIVATIONS),
}
"""Arguments of `VisionTransformer` and `NaFlexVit` that arrays do not show."""
SHAPES: Keys = {
    **library.SHAPES,
    **library.PARTS,
    # Gate and value are one array, as in DINOv2-g, or two, as in AIMv2 with its RMSNorm.
    "mlp_ratio": library.mlp_ratio("block.gated block.norm=layer"),
    # The class of the MLP is written as the name of an architecture.
    "mlp_layer": Codec("block.gated", lambda c: {"block.gated": _IS_GATED[c["mlp_layer"]]}),
    "reg_tokens": "tokens.registers",
    "pre_norm": library.input_norm,
    "qkv_bias": "block.qkv_bias",
    "proj_bias": alike("block.projection_bias", "block.mlp_bias"),
}
"""Arguments of both classes that arrays show."""

FAMILIES = (
    Family(
        "timm",
        library.TIMM,
        names={**NAMES, **PARTS, **_OWN},
        keys={**KEYS, "pos_embed no_embed_class": library.positions},
        shapes={**SHAPES, "scale_attn_norm scale_mlp_norm": library.sub_norm},
        limits={
            "attention pooling after gated MLPs": "block.gated pool.is_map",
            "a different MLP width in attention pooling": "pool.mlp_dim",
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
