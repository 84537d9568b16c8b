"""The rows of `config.json` that timm's `VisionTransformer` and `Eva` share."""

import functools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Limits, one_of_several
from keras_vit.checkpoints.dialects.json_fields import (
    LEFT_OUT,
    SIDES,
    ClassNames,
    Codec,
    Facts,
    Json,
    JsonField,
    JsonFields,
    JsonTable,
    Row,
    names_by_number,
    note,
    object_at,
    one_of,
)
from keras_vit.checkpoints.dialects.timm.architectures import (
    Arguments,
    assumed_arguments,
    is_of,
)
from keras_vit.checkpoints.dialects.timm.images import images
from keras_vit.checkpoints.dialects.torch_conventions import stored_image_size
from keras_vit.config import Block, Stem, ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.config.rules import pair
from keras_vit.images.class_names import NAMED
from keras_vit.support.text import log

_POOLS = {"token": "token", "avg": "gap", "map": "map", "": "unpooled"}
_OTHER_POOLS = {"mean": "avg", "map_of_patches": "map", "token_and_distillation": "token"}
POOL_OF = {**{ours: theirs for theirs, ours in _POOLS.items()}, **_OTHER_POOLS}


def norms_pooled(content: Json, fc_norm: str) -> bool:
    """Whether the last norm follows the pooling."""
    own = content.get(fc_norm)
    return content.get("global_pool") == "avg" if own is None else bool(own)


def read_pooling(content: Json, fc_norm: str, has_norm: bool) -> dict[str, Any]:
    """Returns the pooling, the place of the last norm, and the tokens that the pooling shows.

    The vector of one token, and tokens that are not pooled, are the same behind either norm.

    Args:
        content: the arguments.
        fc_norm: name of the argument for a norm that follows the pooling; None: that of a mean.
        has_norm: whether the model has a last norm.
    """
    if "global_pool" not in content:
        return {}
    pool, has_token = content["global_pool"] or "", content.get("class_token")
    if pool not in _POOLS:
        raise ValueError(f"expected one of {', '.join(filter(None, _POOLS))}")
    is_last = has_norm and norms_pooled(content, fc_norm)
    if is_last and pool == "map":
        raise ValueError(f"with {fc_norm}=True, expected a norm before attention pooling")
    place = "after" if is_last and pool == "avg" else "before" if has_norm else "none"
    fields: dict[str, Any] = {"pool.kind": _POOLS[pool], "pool.norm": place}
    if content.get("class") == "VisionTransformerDistilled":
        fields |= {"pool.kind": "token_and_distillation", "tokens.distillation": True}
    if has_token is not None:
        fields["tokens.class_tokens"] = int(has_token)
    return fields


def dim_row(read_size: Callable[[Json], int], ratio: Callable[[ViTConfig], float]) -> Row:
    """Returns the row of the MLP's width.

    Args:
        read_size: returns the width from the arguments.
        ratio: returns `mlp_ratio` for a model.
    """

    return JsonFields(
        ("mlp_ratio",),
        ("mlp_dim",),
        lambda content: {"mlp_dim": read_size(content)} if "embed_dim" in content else {},
        lambda c: {"mlp_ratio": ratio(c)},
        is_optional=True,
    )


NUM_CLASSES = note("num_classes", attrgetter("config.num_classes"))
GLOBAL_POOL = note("global_pool", lambda facts: POOL_OF.get(facts.config.pool.kind, ""))

SIZES: tuple[Row, ...] = (
    JsonField("img_size", "image_size", write=lambda facts: list(stored_image_size(facts.config))),
    JsonField("patch_size", "patch_size", SIDES),
    JsonField("embed_dim", "hidden_size"),
    JsonField("depth", "num_layers"),
    JsonField("num_heads", "num_heads"),
    JsonField("in_chans", "channels"),
)


def scale_row(without: float | None) -> Row:
    """Returns the row of the layer scale.

    Args:
        without: value of `init_values` in a class without a layer scale. `create_model` replaces
            None by the architecture's own value.
    """
    codec = Codec(lambda init: without if init is None else init, lambda init: init or None)
    return JsonField("init_values", "block.layer_scale", codec)


def position_row(key: str, codec: Codec) -> Row:
    """Returns the row of positions.

    Args:
        key: the argument that states whether there are learned positions.
        codec: conversion of its value from and to `"learned"` or `"none"`.
    """

    def read(content: Json) -> dict[str, Any]:
        if key not in content and "no_embed_class" not in content:
            return {}
        position = codec.read(content[key]) if key in content else "learned"
        is_of_patches = position == "learned" and content.get("no_embed_class")
        return {"position": "learned_patches" if is_of_patches else position}

    def write(config: ViTConfig) -> dict[str, Any]:
        return {
            key: codec.write("none" if config.position == "none" else "learned"),
            "no_embed_class": config.position == "learned_patches",
        }

    return JsonFields((key, "no_embed_class"), ("position",), read, write)


def input_norm_row(key: str) -> Row:
    """Returns the row of the norm before the blocks; with a norm of all tokens, patches have no bias.

    Args:
        key: the argument that states whether all tokens are normed. A norm of the patches is one of
            the architecture.
    """

    def read(content: Json) -> dict[str, Any]:
        of_patches = content.get("embed_norm_layer") is not None
        word = "tokens" if content[key] else "patches" if of_patches else None
        return {"block.input_norm": word, "patch_bias": not content[key]}

    return JsonFields(
        (key,),
        ("block.input_norm", "patch_bias"),
        read,
        lambda c: {key: c.block.input_norm == "tokens"},
        is_optional=True,
    )


def sub_norm_row(of_attention: str, of_mlp: str) -> Row:
    """Returns the row of the norms inside the branches, which have an argument each."""
    words = {"attention": {of_attention}, "mlp": {of_mlp}, "both": {of_attention, of_mlp}}

    def read(content: Json) -> dict[str, Any]:
        stated = {key for key in words["both"] if key in content}
        own = {key for key in stated if content[key]}
        word = next((word for word, keys in words.items() if keys == own), None)
        return {"block.sub_norm": word} if stated else {}

    def write(config: ViTConfig) -> dict[str, Any]:
        own = words.get(config.block.sub_norm or "", set())
        return {key: key in own for key in (of_attention, of_mlp)}

    return JsonFields((of_attention, of_mlp), ("block.sub_norm",), read, write)


QK_NORM = JsonField("qk_norm", "block.qk_norm", one_of({False: None, True: "head"}))
"""The row of norms of queries and keys, which `Beit` lacks."""


ARITHMETIC = {
    "block.activation": "gelu",
    "block.epsilon": 1e-6,
    "position_resize": "bicubic_antialias",
    "pool.norm": "before",
}
"""The arithmetic of every class, unless the architecture's name or an argument states another."""


POSITIONS = one_of_several("position", "learned", "learned_patches", "none")
"""The limit of positions of `VisionTransformer` and `Eva`."""


IMPOSSIBLE: Limits = {
    "norms of whole queries and keys": "block.qk_norm=width",
    "a bias of the patches beside a norm before the blocks, or neither of them": (
        "block.input_norm=tokens patch_bias or block.input_norm!=tokens patch_bias!"
    ),
    "a distillation token without a head": "tokens.distillation!=has_two_heads",
    "attention pooling with a LayerNorm after blocks with RMSNorm": "block.norm=rms pool.is_map",
}
"""Models that neither `VisionTransformer` nor `Eva` of timm can express."""


def _num_classes(content: Json) -> dict[str, Any]:
    if content.get("model_type") == "timm_wrapper":  # 2 also where there is no head
        return {}
    arguments = object_at(content, ("model_args",))
    return {"num_classes": content.get("num_classes", arguments.get("num_classes", 1000))}


def _written_labels(class_names: tuple[str, ...] | None) -> Any:
    return LEFT_OUT if class_names is None else list(class_names)


_LABELS: tuple[Row, ...] = (
    JsonField(
        "label_names",
        "class_names",
        Codec(_written_labels, lambda names: names_by_number(names or ())),
    ),
)


def _first_conv(facts: Facts) -> str:
    stem = facts.config.stem
    if stem.is_resnet:
        return f"patch_embed.backbone.{'stem.' if stem.units else ''}conv"
    return "embeds.proj" if stem.is_packed else "patch_embed.proj"


def _classifier(facts: Facts) -> Any:
    return ["head", "head_dist"] if facts.config.has_two_heads else "head"


def shown_by_arrays(registers: str, fc_norm: str, arrays: Json, content: Json) -> dict[str, Any]:
    """Returns arguments that the arrays tell, whatever the architecture's name suggests.

    `model_args` lacks what a caller of `create_model` gave as a class, or did not write down.

    Args:
        registers: name of the argument for the number of registers.
        fc_norm: name of the argument for a norm that follows the pooling.
        arrays: fields that the arrays show.
        content: the arguments by `model_args` and by the architecture.
    """
    keys = {"in_chans": "channels", registers: "tokens.registers"}
    words = {key: arrays[field] for key, field in keys.items() if field in arrays}
    words[fc_norm] = arrays.get("pool.norm") == "after"
    scale = arrays.get("block.layer_scale")
    words["init_values"] = None if scale is None else content.get("init_values") or scale
    words["qk_norm"] = bool(arrays.get("block.qk_norm"))
    width = arrays.get("hidden_size")
    if "embed_dim" not in content and content.get("width", width) != width:
        words["num_heads"] = LEFT_OUT  # the architecture's belongs to its own width
    return words | read_positions(arrays, content)


def _shown_beside_arguments(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns the number of classes, where JSON states none."""
    is_stated = "num_classes" in object_at(content, ("model_args",)) or not arrays
    return {} if is_stated else {"num_classes": arrays["num_classes"]}


_PREFIX = ("class_tokens", "distillation", "registers")


def read_positions(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns whether all tokens have positions, or no image size if the assumed one is wrong."""
    count, patch, size = (
        arrays.get("num_positions"),
        arrays.get("patch_size"),
        content.get("img_size"),
    )
    if not count or not patch or not size or "stem.units" in arrays:
        return {}
    sides = zip(pair("img_size", size), patch, strict=True)
    rows, columns = (side // length for side, length in sides)
    prefix = sum(int(arrays.get(f"tokens.{name}", 0)) for name in _PREFIX)
    if count not in (rows * columns, rows * columns + prefix):
        return {"img_size": None}
    return {"no_embed_class": count == rows * columns} if prefix else {}


def _pool_beside(files: Json) -> Json:
    """Returns the `global_pool` at the top level of config.json, if `model_args` have none."""
    config = files["config.json"]
    keys = {"global_pool"} & config.keys() - object_at(config, ("model_args",)).keys()
    return {key: config[key] for key in keys}


def tables(
    architecture: Row,
    *arguments: tuple[tuple[Row, ...], str],
    shown: Callable[[Json, Json], Json],
) -> tuple[JsonTable, ...]:
    """Returns the tables of `config.json`.

    Args:
        architecture: the row of the architecture's name and of the facts that the name implies.
        *arguments: for each class of timm the rows of its constructor's arguments, which are under
            `model_args`, and the condition of the models that are written as that class.
        shown: returns the arguments that the arrays tell.
    """
    top: tuple[Row, ...] = (
        architecture,
        JsonFields(
            ("num_classes",),
            ("num_classes",),
            _num_classes,
            lambda config: {"num_classes": config.num_classes},
        ),
        note("num_features", attrgetter("config.hidden_size")),
        GLOBAL_POOL,
    )
    pretrained: tuple[Row, ...] = (
        NUM_CLASSES,
        note("first_conv", _first_conv),
        note("classifier", _classifier),
    )
    return (
        JsonTable("config.json", top, shown=_shown_beside_arguments),
        *(
            JsonTable(
                "config.json", rows, ("model_args",), assumed_arguments, shown, _pool_beside, when
            )
            for rows, when in arguments
        ),
        JsonTable("config.json", _LABELS, ("pretrained_cfg",), is_written=False),
        JsonTable("config.json", _LABELS),
        JsonTable("config.json", pretrained, ("pretrained_cfg",)),
    )


def warn_of_gelu(config: Json, arguments: Arguments) -> None:
    """Warns if timm, by its own note, computes another GELU than the weights were trained with."""
    notes = object_at(config, ("pretrained_cfg",)).get("notes")
    if "QuickGELU" in str(notes) and arguments.get("act_layer") != "quick_gelu":
        log.warning(
            "config.json notes that the weights were trained with the quick GELU, and names %s, "
            "with which timm computes the exact one. keras_vit does as timm does; block="
            "{'activation': 'quick_gelu'} computes as in training.",
            config.get("architecture"),
        )


def imagenet(files: Json, num_classes: int) -> ClassNames:
    """Returns the name of ImageNet's labels if the tag of the weights ends with it, or None."""
    config = files["config.json"]
    tag = object_at(config, ("pretrained_cfg",)).get("tag")
    tag = str(tag or str(config.get("architecture")).partition(".")[2])
    for word, data in (("imagenet1k", "in1k"), ("imagenet21k", "in21k")):
        if NAMED[word] == num_classes and data in tag.split("_")[-1:]:
            return word
    return None


_PLAIN = {
    "tokens.class_tokens": 1,
    "tokens.registers": 0,
    "position": "learned",
    "patch_bias": True,
    **flatten({"block": Block(), "stem": Stem()}),
}
_OPEN = {
    "pool.kind": "'token', 'gap' or 'map'",
    "rope": "no array tells it; read={'family': 'facebook'} reads Facebook's names of DeiT-III",
    "block.activation": (
        "'gelu' in most architectures, 'silu' with a gated MLP, 'gelu_tanh' or 'quick_gelu' in some "
        "of SigLIP and CLIP"
    ),
    "block.epsilon": "1e-6 in most architectures, 1e-5 in CLIP, DINOv3 and others",
}


def undetermined(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the facts that arrays leave open where no architecture is named.

    A plain ViT leaves the number of heads open alone: its names are also those of Facebook's DeiT,
    DINO and MAE, which compute as timm's `VisionTransformer` does.
    """
    heads = {"num_heads": "hidden_size / 64 in most architectures"}
    is_pooled_plainly = fields["pool.kind"] != "map" and fields["pool.norm"] != "none"
    if is_pooled_plainly and all(fields.get(path, own) == own for path, own in _PLAIN.items()):
        return heads
    return heads | _OPEN


def family(name: str, expected: str, **more: Any) -> Dialect:
    """Returns the dialect of a class of timm.

    Args:
        name: name of the dialect, see `architectures.find_family`.
        expected: its architectures in words, for a message.
        **more: further fields of `Dialect`.
    """
    return Dialect(
        name=name,
        library="timm",
        identity=Identity("architecture", functools.partial(is_of, name), words=expected),
        undetermined=undetermined,
        class_names=imagenet,
        images=images,
        **more,
    )
