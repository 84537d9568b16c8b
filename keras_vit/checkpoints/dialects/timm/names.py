"""The names of arrays that timm's `VisionTransformer` and `Eva` share."""

import dataclasses
from collections.abc import Callable

from keras_vit.checkpoints.dialects.base import Names, StoredAs
from keras_vit.checkpoints.dialects.json_fields import always
from keras_vit.checkpoints.dialects.torch_layout import torch_modules
from keras_vit.config import ViTConfig

BACKBONE = "patch_embed.backbone."
_UNIT = BACKBONE + "stages.{s-1}.blocks.{u-1}."


def _norms_after_pool(config: ViTConfig) -> bool:
    return config.numerics.pool_before_norm


def _norms_before_pool(config: ViTConfig) -> bool:
    return not config.numerics.pool_before_norm


def is_root_alone(config: ViTConfig) -> bool:
    """Whether the stem of a hybrid has no stages."""
    return config.resnet is not None and not config.resnet.num_layers


def _has_stages(config: ViTConfig) -> bool:
    return not is_root_alone(config)


def _last_norm(parameter: str) -> Names:
    after = {"classifier": "gap", "numerics": {"pool_before_norm": True}}
    return (
        StoredAs(f"fc_norm.{parameter}", when=_norms_after_pool, implies=after),
        StoredAs(f"norm.{parameter}", when=_norms_before_pool),
    )


def _root() -> dict[str, Names]:
    """The names of the root: a stem of stages wraps it once more than a root alone."""
    alone = torch_modules({"root/conv": BACKBONE + "conv", "root/norm": BACKBONE + "norm"})
    staged = torch_modules(
        {"root/conv": BACKBONE + "stem.conv", "root/norm": BACKBONE + "stem.norm"}
    )
    return {
        path: (
            dataclasses.replace(alone[path], when=is_root_alone),
            dataclasses.replace(staged[path], when=_has_stages),
        )
        for path in alone
    }


_MLP = "blocks.{l}.mlp."

WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("cls_token"),
    "register_tokens/tokens": StoredAs("reg_token"),
    "position_embedding/embedding": StoredAs("pos_embed"),
    "pool/probe": StoredAs("attn_pool.latent"),
    **torch_modules(
        {
            "patch_embedding": "patch_embed.proj",
            "patch_norm": "patch_embed.norm",
            "pre_norm": "norm_pre",
            "block_{l}/attention_norm": "blocks.{l}.norm1",
            "block_{l}/attention/sub_norm": "blocks.{l}.attn.norm",
            "block_{l}/attention/out": "blocks.{l}.attn.proj",
            "block_{l}/mlp_norm": "blocks.{l}.norm2",
            "block_{l}/mlp/dense_0": _MLP + "fc1",
            "block_{l}/mlp/sub_norm": _MLP + "norm",
            "block_{l}/mlp/dense_1": _MLP + "fc2",
            "pool/attention/out": "attn_pool.proj",
            "pool/norm": "attn_pool.norm",
            "pool/mlp/dense_0": "attn_pool.mlp.fc1",
            "pool/mlp/dense_1": "attn_pool.mlp.fc2",
            "head": "head",
        }
    ),
    # One array for query, key and value: a placeholder here that is an axis there.
    "block_{l}/attention/{qkv}/kernel": StoredAs("blocks.{l}.attn.qkv.weight", "(qkv h d) m"),
    "block_{l}/attention/{qkv}/bias": StoredAs("blocks.{l}.attn.qkv.bias", "(qkv h d)"),
    "pool/attention/{qkv}/kernel": (
        StoredAs("attn_pool.q.weight", "(qkv h d) m", only={"qkv": ("query",)}),
        StoredAs("attn_pool.kv.weight", "(qkv h d) m", only={"qkv": ("key", "value")}),
    ),
    "pool/attention/{qkv}/bias": (
        StoredAs("attn_pool.q.bias", "(qkv h d)", only={"qkv": ("query",)}),
        StoredAs("attn_pool.kv.bias", "(qkv h d)", only={"qkv": ("key", "value")}),
    ),
    "encoder_norm/gamma": _last_norm("weight"),
    "encoder_norm/beta": _last_norm("bias"),
}


def gate_names(is_packed: Callable[[ViTConfig], bool]) -> dict[str, Names]:
    """Returns the names of the gate and the value of a gated MLP: of one array or of two.

    Args:
        is_packed: whether the architecture that is written for a model has one array. Both are
            read for every model.
    """
    one = {
        "block_{l}/mlp/{gate}/kernel": StoredAs(_MLP + "fc1.weight", "(gate f) m", when=is_packed),
        "block_{l}/mlp/{gate}/bias": StoredAs(_MLP + "fc1.bias", "(gate f)", when=is_packed),
    }
    two = torch_modules({"block_{l}/mlp/{gate}": _MLP + "fc1_{g}"})
    return {
        path: (one[path], two[path], dataclasses.replace(one[path], when=always)) for path in one
    }


STEM: dict[str, Names] = {
    **_root(),
    **torch_modules(
        {
            "stage{s}_unit{u}/conv_proj": _UNIT + "downsample.conv",
            "stage{s}_unit{u}/norm_proj": _UNIT + "downsample.norm",
            "stage{s}_unit{u}/conv1": _UNIT + "conv1",
            "stage{s}_unit{u}/norm1": _UNIT + "norm1",
            "stage{s}_unit{u}/conv2": _UNIT + "conv2",
            "stage{s}_unit{u}/norm2": _UNIT + "norm2",
            "stage{s}_unit{u}/conv3": _UNIT + "conv3",
            "stage{s}_unit{u}/norm3": _UNIT + "norm3",
        }
    ),
}
