"""Checkpoints of timm (huggingface/pytorch-image-models), `models/vision_transformer.py`.

As the Hub holds them: a folder with `model.safetensors` and `config.json`, or the
safetensors file alone, which does not tell the number of heads. Query, key and
value are one array. Hybrids have the layout of timm's ResNetV2, and epsilons of
their own (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Cannot, Dialect, Stated, Theirs, Words, not_ours
from keras_vit.checkpoints.dialects.torch_layout import (
    POSITIONS_OF_ANOTHER_GRID,
    listed,
    per_channel,
    stored_image_size,
    torch_modules,
)
from keras_vit.config import Numerics, ViTConfig
from keras_vit.labels import NAMED
from keras_vit.preparation.protocols import FILTERS, ProtocolSpec, complete

_BACKBONE = "patch_embed.backbone."
_UNIT = _BACKBONE + "stages.{s-1}.blocks.{u-1}."
_NO_REPRESENTATION = Cannot("timm's VisionTransformer has no representation layer")
_POOLS = {"token": "token", "avg": "gap", "map": "map"}
_GELUS = {"gelu": "exact", "gelu_tanh": "tanh"}
_FIELDS = {
    "embed_dim": "hidden_size",
    "depth": "num_layers",
    "num_heads": "num_heads",
    "in_chans": "channels",
    "patch_size": "patch_size",
    "class_token": "class_token",
    "qkv_bias": "qkv_bias",
    "no_embed_class": "position_before_class",
}
"""Arguments of `VisionTransformer` and fields of ours."""

_NORMS = (None, "", "layernorm", "layernormfp32")

_ARCHITECTURES: dict[tuple[int, ...] | None, str] = {
    None: "vit_base_patch16_224",
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}
"""A registered architecture to write for every stem; `model_args` say what is otherwise."""

_HEADS = {
    "tiny": 3,
    "small": 6,
    "base": 12,
    "large": 16,
    "huge": 16,
    "giant": 16,
    "giantopt": 16,
    "gigantic": 16,
    "so400m": 16,
}
"""Heads by the size in an architecture's name."""

_PLAIN = re.compile(
    rf"(?:vit|deit|eva|flexivit)_({'|'.join(_HEADS)})"
    r"(?:_(?:patch\d+|r_s16_p8|r26_s32|r50_s16|r50_s32|siglip|gap|sam|dino|miil|in21k|\d+))*"
)
"""Architectures that are ViTs of ours. Another word, such as `rpn`, stands for another block."""

_OTHERWISE = (
    (r"flexivit_.*", {"no_embed_class": True}),
    (r".*_(siglip|gap)_.*", {"class_token": False}),
    (r"vit_base_patch16_gap_.*", {"num_heads": 16}),
    (r"vit_(base_patch32|giantopt_patch16|so400m_patch16)_siglip_.*", {"act_layer": "gelu_tanh"}),
    (r"vit_large_patch16_siglip_(gap_)?512", {"act_layer": "gelu_tanh"}),
)
"""Architectures with arguments of their own that arrays do not tell."""


def _norms_after_pool(config: ViTConfig) -> bool:
    return config.numerics.pool_before_norm


def _is_root_alone(config: ViTConfig) -> bool:
    return config.resnet is not None and not config.resnet.num_layers


def _words() -> dict[str, Words]:
    words: dict[str, Words] = {
        "class_token/token": Theirs("cls_token"),
        "position_embedding/embedding": Theirs("pos_embed"),
        "pool/probe": Theirs("attn_pool.latent"),
        "pre_logits/kernel": _NO_REPRESENTATION,
        "pre_logits/bias": _NO_REPRESENTATION,
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
                "patch_embedding": "patch_embed.proj",
                "block_{l}/attention_norm": "blocks.{l}.norm1",
                "block_{l}/attention/out": "blocks.{l}.attn.proj",
                "block_{l}/mlp_norm": "blocks.{l}.norm2",
                "block_{l}/mlp/dense_0": "blocks.{l}.mlp.fc1",
                "block_{l}/mlp/dense_1": "blocks.{l}.mlp.fc2",
                "pool/attention/query": "attn_pool.q",
                "pool/attention/out": "attn_pool.proj",
                "pool/norm": "attn_pool.norm",
                "pool/mlp/dense_0": "attn_pool.mlp.fc1",
                "pool/mlp/dense_1": "attn_pool.mlp.fc2",
                "head": "head",
            }
        ),
        # One array for query, key and value: a placeholder of ours that is an axis of theirs.
        "block_{l}/attention/{qkv}/kernel": Theirs("blocks.{l}.attn.qkv.weight", "(qkv h d) m"),
        "block_{l}/attention/{qkv}/bias": Theirs("blocks.{l}.attn.qkv.bias", "(qkv h d)"),
        "pool/attention/{kv}/kernel": Theirs("attn_pool.kv.weight", "(kv h d) m"),
        "pool/attention/{kv}/bias": Theirs("attn_pool.kv.bias", "(kv h d)"),
    }
    after = {"classifier": "gap", "numerics": {"pool_before_norm": True}}
    for ours, parameter in (("gamma", "weight"), ("beta", "bias")):
        words[f"encoder_norm/{ours}"] = (
            Theirs(f"fc_norm.{parameter}", when=_norms_after_pool, implies=after),
            Theirs(f"norm.{parameter}"),
        )
    # A stem of stages wraps its root once more than a root alone.
    alone = torch_modules({"root/conv": _BACKBONE + "conv", "root/norm": _BACKBONE + "norm"})
    staged = torch_modules(
        {"root/conv": _BACKBONE + "stem.conv", "root/norm": _BACKBONE + "stem.norm"}
    )
    for path, theirs in staged.items():
        words[path] = (dataclasses.replace(alone[path], when=_is_root_alone), theirs)
    return words


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the model was made with: its architecture's arguments, and `model_args` over them."""
    architecture = str(config.get("architecture"))
    plain = _PLAIN.fullmatch(architecture)
    if plain is None:
        raise ValueError(
            f"config.json has architecture={architecture!r}, which is not known as a ViT of these "
            "blocks. Where it is one, load the file of weights alone, with num_heads"
        )
    arguments: dict[str, Any] = {"num_heads": _HEADS[plain[1]], "class_token": True}
    for pattern, others in _OTHERWISE:
        if re.fullmatch(pattern, architecture):
            arguments |= others
    return arguments | (config.get("model_args") or {})


def _states(files: Mapping[str, Any]) -> Stated:
    """Reads `config.json`: `model_args` where they stand, else the architecture's name."""
    config = files.get("config.json")
    if config is None:
        return Stated()
    arguments = _arguments(config)
    pretrained = config.get("pretrained_cfg") or {}
    fields = {ours: arguments[theirs] for theirs, ours in _FIELDS.items() if theirs in arguments}
    image_size = arguments.get("img_size") or pretrained.get("input_size")
    if image_size is not None:
        fields["image_size"] = image_size[-2:] if isinstance(image_size, list) else image_size
    fields |= _pooling(arguments.get("global_pool", config.get("global_pool", "token")), arguments)
    if "embed_dim" in arguments:
        fields["mlp_dim"] = int(arguments["embed_dim"] * arguments.get("mlp_ratio", 4.0))
    fields["num_classes"] = config.get("num_classes", arguments.get("num_classes", 1000))
    activation = arguments.get("act_layer") or "gelu"
    if activation not in _GELUS:
        raise ValueError(
            f"config.json has act_layer={activation!r}, expected one of {', '.join(_GELUS)}"
        )
    if arguments.get("norm_layer") not in _NORMS:
        raise ValueError(f"config.json has norm_layer={arguments['norm_layer']!r}, expected none")
    fields["numerics"] = {"gelu": _GELUS[activation]}
    names = config.get("label_names") or pretrained.get("label_names") or ()
    labels: Any = listed("label_names", names) if isinstance(names, Mapping) else tuple(names)
    labels = labels or _imagenet(config, pretrained, fields["num_classes"])
    return Stated(fields, labels, _protocol(pretrained or config))


def _imagenet(
    config: Mapping[str, Any], pretrained: Mapping[str, Any], num_classes: int
) -> str | None:
    """The labels of a head on ImageNet, which the weights' tag names last."""
    tag = str(pretrained.get("tag") or str(config.get("architecture")).partition(".")[2])
    for word, data in (("imagenet1k", "in1k"), ("imagenet21k", "in21k")):
        if NAMED[word] == num_classes and data in tag.split("_")[-1:]:
            return word
    return None


_PREPARATION = {
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "crop_mode": "center",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
"""Words of `pretrained_cfg` and what timm takes where they are left out (`data/config.py`)."""


def _protocol(pretrained: Mapping[str, Any]) -> ProtocolSpec | None:
    stated = {key: pretrained[key] for key in _PREPARATION if pretrained.get(key) is not None}
    if not stated:
        return None
    if stated.get("interpolation", "bicubic") not in FILTERS:
        not_ours(f"config.json with interpolation={stated['interpolation']!r}")
        return None
    protocol = {"name": "timm", **_PREPARATION, **stated}
    for key in ("mean", "std"):  # the file of a model of other channels may leave them out
        if key not in stated and (pretrained.get("input_size") or [3])[0] != 3:
            protocol[key] = 0.5
    return complete(protocol)


def _prepares(protocol: Mapping[str, Any]) -> bool:
    squash = protocol["name"] == "transformers" and protocol["crop_pct"] == 1
    return squash or protocol["name"] == "timm"


def _default_protocol(config: ViTConfig) -> ProtocolSpec:
    """timm's own entries: a crop of 0.9 at 224 pixels, all of the smaller side at 384."""
    return {"name": "timm", "crop_pct": 1.0 if max(stored_image_size(config)) >= 384 else 0.9}


def _pooling(pool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The classifier of a `global_pool`, and whether a class token is among what it pools."""
    if pool and pool not in _POOLS:
        raise ValueError(
            f"config.json has global_pool={pool!r}, expected one of {', '.join(_POOLS)}"
        )
    among_others = arguments["class_token"] and arguments.get("pool_include_prefix", False)
    if pool == "map" and arguments["class_token"] and not among_others:
        raise ValueError(
            "config.json has global_pool='map' beside a class token that is not pooled; expected "
            "no class token, or pool_include_prefix=True"
        )
    unpooled = "token_unpooled" if arguments["class_token"] else "unpooled"
    return {
        "classifier": _POOLS.get(pool, unpooled),
        "class_token_in_mean": pool == "avg" and bool(among_others),
    }


def _writes(
    config: ViTConfig, labels: tuple[str, ...] | None = None, protocol: ProtocolSpec | None = None
) -> dict[str, Any]:
    """The `config.json` that `timm.create_model("local-dir:...")` and the Hub read."""
    stem = None if config.resnet is None else config.resnet.num_layers
    height, width = stored_image_size(config)
    rows, columns = config.patch_size
    arguments: dict[str, Any] = {
        "img_size": [height, width],
        "patch_size": rows if rows == columns else [rows, columns],
        "embed_dim": config.hidden_size,
        "depth": config.num_layers,
        "num_heads": config.num_heads,
        "mlp_ratio": config.mlp_dim / config.hidden_size,
        "num_classes": config.num_classes,
        "in_chans": config.channels,
        "global_pool": {ours: theirs for theirs, ours in _POOLS.items()}.get(config.classifier, ""),
        "class_token": config.has_class_token,
        "qkv_bias": config.qkv_bias,
    }
    if config.has_class_token and config.position_before_class:
        arguments["no_embed_class"] = True
    if config.numerics.gelu == "tanh":
        arguments["act_layer"] = "gelu_tanh"
    if config.classifier == "gap" and not config.numerics.pool_before_norm:
        arguments["fc_norm"] = False
        arguments["final_norm"] = True
    if config.class_token_in_mean or (config.classifier == "map" and config.has_class_token):
        arguments["pool_include_prefix"] = True
    images = complete(protocol or _default_protocol(config))
    written: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(stem, _ARCHITECTURES[None]),
        "num_classes": config.num_classes,
        "num_features": config.hidden_size,
        "global_pool": arguments["global_pool"],
        "model_args": arguments,
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [config.channels, height, width],
            "fixed_input_size": True,
            "interpolation": images["interpolation"],
            "crop_pct": images["crop_pct"],
            "crop_mode": images.get("crop_mode", "squash"),
            "mean": per_channel(images["mean"], config),
            "std": per_channel(images["std"], config),
            "num_classes": config.num_classes,
            "first_conv": _first_conv(config),
            "classifier": "head",
        },
    }
    if labels is not None:
        written["label_names"] = list(labels)
    return {"config.json": written}


def _first_conv(config: ViTConfig) -> str:
    if config.resnet is None:
        return "patch_embed.proj"
    return _BACKBONE + ("conv" if _is_root_alone(config) else "stem.conv")


timm = Dialect(
    name="timm",
    library="timm",
    container="safetensors",
    words=_words(),
    numerics=Numerics(
        gelu="exact",
        group_norm_epsilon=1e-5,
        std_conv="sqrt_var_plus_epsilon",
        std_conv_epsilon=1e-8,
        position_resize="bicubic_antialias",
    ),
    expresses=("gelu", "pool_before_norm", "position_resize"),
    fields={"position": "learned"},
    impossible=(
        (lambda c: c.position != "learned", "position='sincos2d'"),
        POSITIONS_OF_ANOTHER_GRID,
        (
            lambda c: c.resnet is not None and c.resnet.num_layers not in _ARCHITECTURES,
            "a stem of stages that no architecture of timm has",
        ),
        (
            lambda c: c.resnet is not None and c.resnet.width_factor != 1,
            "a stem of another width than 64",
        ),
        (
            lambda c: int(c.hidden_size * (c.mlp_dim / c.hidden_size)) != c.mlp_dim,
            "an mlp_dim that no mlp_ratio gives",
        ),
    ),
    crops=False,
    states=_states,
    writes=_writes,
    protocol=_default_protocol,
    prepares=_prepares,
)
