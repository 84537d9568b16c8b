"""timm's `VisionTransformer` and its hybrids.

Query, key and value are one array. Hybrids have the layout of timm's ResNetV2, and other epsilons
than the official code (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

import dataclasses
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.json_fields import (
    NOT_TOLD,
    SIDES,
    Codec,
    Facts,
    Json,
    JsonConstant,
    JsonField,
    JsonFields,
    JsonNote,
    JsonTable,
    Labels,
    Row,
    names_by_number,
    object_at,
    one_of,
)
from keras_vit.checkpoints.dialects.timm.architectures import PLAIN, TO_WRITE, assumed_arguments
from keras_vit.checkpoints.dialects.timm.images import images
from keras_vit.checkpoints.dialects.torch_layout import (
    POSITIONS_OF_ANOTHER_GRID,
    stored_image_size,
    torch_modules,
)
from keras_vit.config import Numerics, ViTConfig
from keras_vit.labels import NAMED

_BACKBONE = "patch_embed.backbone."
_UNIT = _BACKBONE + "stages.{s-1}.blocks.{u-1}."


def _norms_after_pool(config: ViTConfig) -> bool:
    return config.numerics.pool_before_norm


def _norms_before_pool(config: ViTConfig) -> bool:
    return not config.numerics.pool_before_norm


def _is_root_alone(config: ViTConfig) -> bool:
    return config.resnet is not None and not config.resnet.num_layers


def _has_stages(config: ViTConfig) -> bool:
    return not _is_root_alone(config)


def _last_norm(parameter: str) -> Names:
    after = {"classifier": "gap", "numerics": {"pool_before_norm": True}}
    return (
        StoredAs(f"fc_norm.{parameter}", when=_norms_after_pool, implies=after),
        StoredAs(f"norm.{parameter}", when=_norms_before_pool),
    )


def _root() -> dict[str, Names]:
    """Returns the names of the root, which are longer for a stem with stages."""
    alone = torch_modules({"root/conv": _BACKBONE + "conv", "root/norm": _BACKBONE + "norm"})
    staged = torch_modules(
        {"root/conv": _BACKBONE + "stem.conv", "root/norm": _BACKBONE + "stem.norm"}
    )
    return {
        path: (
            dataclasses.replace(alone[path], when=_is_root_alone),
            dataclasses.replace(staged[path], when=_has_stages),
        )
        for path in alone
    }


_WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("cls_token"),
    "position_embedding/embedding": StoredAs("pos_embed"),
    "pool/probe": StoredAs("attn_pool.latent"),
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
            "patch_embedding": "patch_embed.proj",
            "block_{l}/attention_norm": "blocks.{l}.norm1",
            "block_{l}/attention/out": "blocks.{l}.attn.proj",
            "block_{l}/mlp_norm": "blocks.{l}.norm2",
            "block_{l}/mlp/dense_0": "blocks.{l}.mlp.fc1",
            "block_{l}/mlp/dense_1": "blocks.{l}.mlp.fc2",
            "pool/attention/out": "attn_pool.proj",
            "pool/norm": "attn_pool.norm",
            "pool/mlp/dense_0": "attn_pool.mlp.fc1",
            "pool/mlp/dense_1": "attn_pool.mlp.fc2",
            "head": "head",
        }
    ),
    # Query, key and value are one array: the placeholder {qkv} is an axis of it.
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
_REASONS = {"pre_logits/": "timm's VisionTransformer has no representation layer"}

_POOLS = {"token": "token", "avg": "gap", "map": "map"}
_POOL_OF = {ours: theirs for theirs, ours in _POOLS.items()}


def _pooled(found: Json) -> dict[str, Any]:
    """Returns the classifier of a `global_pool`, and whether its mean includes a class token."""
    pool = found["global_pool"]
    if pool and pool not in _POOLS:
        raise ValueError(f"expected one of {', '.join(_POOLS)}")
    among_others = found["class_token"] and found.get("pool_include_prefix", False)
    if pool == "map" and found["class_token"] and not among_others:
        raise ValueError(
            "beside a class token that is not pooled; expected no class token, or "
            "pool_include_prefix=True"
        )
    unpooled = "token_unpooled" if found["class_token"] else "unpooled"
    return {
        "classifier": _POOLS.get(pool, unpooled),
        "class_token_in_mean": pool == "avg" and bool(among_others),
        "class_token": found["class_token"],
    }


def _pooling(config: ViTConfig) -> dict[str, Any]:
    words: dict[str, Any] = {
        "global_pool": _POOL_OF.get(config.classifier, ""),
        "class_token": config.has_class_token,
    }
    if config.classifier == "gap" and not config.numerics.pool_before_norm:
        words |= {"fc_norm": False, "final_norm": True}
    if config.class_token_in_mean or (config.classifier == "map" and config.has_class_token):
        words["pool_include_prefix"] = True
    return words


def _mlp_dim(found: Json) -> dict[str, Any]:
    if "embed_dim" not in found:
        return {}
    return {"mlp_dim": int(found["embed_dim"] * found.get("mlp_ratio", 4.0))}


_ARGUMENTS: tuple[Row, ...] = (
    JsonField("img_size", "image_size", write=lambda facts: list(stored_image_size(facts.config))),
    JsonField("patch_size", "patch_size", SIDES),
    JsonField("embed_dim", "hidden_size"),
    JsonField("depth", "num_layers"),
    JsonField("num_heads", "num_heads"),
    JsonFields(
        ("mlp_ratio",),
        ("mlp_dim",),
        _mlp_dim,
        lambda config: {"mlp_ratio": config.mlp_dim / config.hidden_size},
    ),
    JsonNote("num_classes", lambda facts: facts.config.num_classes),
    JsonField("in_chans", "channels"),
    JsonFields(
        ("global_pool", "class_token", "pool_include_prefix"),
        ("classifier", "class_token", "class_token_in_mean"),
        _pooled,
        _pooling,
    ),
    JsonField("qkv_bias", "qkv_bias"),
    JsonField(
        "no_embed_class",
        "position_before_class",
        when=lambda config: config.has_class_token and config.position_before_class,
    ),
    JsonField(
        "act_layer",
        "numerics.gelu",
        one_of(
            {
                "gelu": "exact",
                "gelu_tanh": "tanh",
                "quick_gelu": "quick",
                None: "exact",
                "": "exact",
            }
        ),
        default="gelu",
        when=lambda config: config.numerics.gelu != "exact",
    ),
    JsonConstant("norm_layer", None, ("", "layernorm", "layernormfp32"), when=lambda c: False),
)
"""Arguments of `VisionTransformer`."""


def _num_classes(found: Json) -> dict[str, Any]:
    if found.get("model_type") == "timm_wrapper":  # 2 also where there is no head
        return {}
    arguments = object_at(found, ("model_args",))
    return {"num_classes": found.get("num_classes", arguments.get("num_classes", 1000))}


def _stem(config: ViTConfig) -> tuple[int, ...] | None:
    return None if config.resnet is None else config.resnet.num_layers


def _written_labels(labels: tuple[str, ...] | None) -> Any:
    return NOT_TOLD if labels is None else list(labels)


_TOP: tuple[Row, ...] = (
    JsonNote("architecture", lambda facts: TO_WRITE.get(_stem(facts.config), TO_WRITE[None])),
    JsonFields(
        ("num_classes",),
        ("num_classes",),
        _num_classes,
        lambda config: {"num_classes": config.num_classes},
    ),
    JsonNote("num_features", lambda facts: facts.config.hidden_size),
    JsonNote("global_pool", lambda facts: _POOL_OF.get(facts.config.classifier, "")),
)
_LABELS: tuple[Row, ...] = (
    JsonField(
        "label_names",
        "labels",
        Codec(_written_labels, lambda names: names_by_number(names or ())),
    ),
)


def _first_conv(facts: Facts) -> str:
    if facts.config.resnet is None:
        return "patch_embed.proj"
    return _BACKBONE + ("conv" if _is_root_alone(facts.config) else "stem.conv")


_PRETRAINED: tuple[Row, ...] = (
    JsonNote("num_classes", lambda facts: facts.config.num_classes),
    JsonNote("first_conv", _first_conv),
    JsonNote("classifier", lambda facts: "head"),
)


def _imagenet(files: Json, num_classes: int) -> Labels:
    """Returns the labels of a head on ImageNet, by the last word of the weights' tag."""
    config = files["config.json"]
    tag = object_at(config, ("pretrained_cfg",)).get("tag")
    tag = str(tag or str(config.get("architecture")).partition(".")[2])
    for word, data in (("imagenet1k", "in1k"), ("imagenet21k", "in21k")):
        if NAMED[word] == num_classes and data in tag.split("_")[-1:]:
            return word
    return None


vit = Dialect(
    name="timm",
    library="timm",
    container="safetensors",
    words=unsupported(_REASONS, _WORDS),
    identity=Identity(
        "config.json",
        "architecture",
        PLAIN,
        "an architecture whose blocks are known as those of a ViT: its name decides arithmetic "
        "that the arrays do not show",
    ),
    json=(
        JsonTable("config.json", _TOP),
        JsonTable("config.json", _ARGUMENTS, ("model_args",), assumed_arguments),
        JsonTable("config.json", _LABELS, ("pretrained_cfg",), is_written=False),
        JsonTable("config.json", _LABELS),
        JsonTable("config.json", _PRETRAINED, ("pretrained_cfg",)),
    ),
    labels=_imagenet,
    images=images,
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
            lambda c: c.resnet is not None and c.resnet.num_layers not in TO_WRITE,
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
)
