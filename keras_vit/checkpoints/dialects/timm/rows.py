"""The rows of `config.json` that timm's `VisionTransformer` and `Eva` share."""

import functools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Limits
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
from keras_vit.config import ViTConfig
from keras_vit.config.rules import pair
from keras_vit.images.class_names import NAMED
from keras_vit.support.text import log

_POOLS = {"token": "token", "avg": "gap", "map": "map"}
POOL_OF = {**{ours: theirs for theirs, ours in _POOLS.items()}, "token_and_distillation": "token"}


def read_pooling(content: Json, fc_norm: str) -> dict[str, Any]:
    """Returns the pooling, whether the last norm follows it, and whether there is a class token.

    The vector of one token, and tokens that are not pooled, are the same behind either norm.

    Args:
        content: the arguments.
        fc_norm: name of the argument for a norm that follows the pooling; None: that of a mean.
    """
    if "global_pool" not in content:
        return {}
    pool, has_token = content["global_pool"], content.get("class_token")
    if pool and pool not in _POOLS:
        raise ValueError(f"expected one of {', '.join(_POOLS)}")
    is_last = pool == "avg" if content.get(fc_norm) is None else content[fc_norm]
    is_last = bool(is_last and content.get("final_norm", True))
    if is_last and pool == "map":
        raise ValueError(f"with {fc_norm}=True, expected a norm before attention pooling")
    fields: dict[str, Any] = {"pooling": _POOLS.get(pool)}
    fields["numerics.pool_before_norm"] = is_last and pool == "avg"
    if not pool:
        fields["pooling"] = "token_unpooled" if has_token else "unpooled"
    if content.get("class") == "VisionTransformerDistilled":
        fields["pooling"] = "token_and_distillation"
    if has_token is not None:
        fields["class_token"] = has_token
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
GLOBAL_POOL = note("global_pool", lambda facts: POOL_OF.get(facts.config.pooling, ""))

SIZES: tuple[Row, ...] = (
    JsonField("img_size", "image_size", write=lambda facts: list(stored_image_size(facts.config))),
    JsonField("patch_size", "patch_size", SIDES),
    JsonField("embed_dim", "hidden_size"),
    JsonField("depth", "num_layers"),
    JsonField("num_heads", "num_heads"),
    JsonField("in_chans", "channels"),
)


def _scale(content: Json) -> dict[str, Any]:
    init = content["init_values"]
    if not init:
        return {"layer_scale": False}
    return {"layer_scale": True, "layer_scale_init": init}


def _adds_positions_first(facts: Facts) -> bool:
    return bool(facts.config.num_prefix_tokens) and not facts.config.num_prefix_positions


def scale_row(without: float | None) -> Row:
    """Returns the row of the layer scale.

    Args:
        without: value of `init_values` in a class without a layer scale. `create_model` replaces
            None by the architecture's own value.
    """
    return JsonFields(
        ("init_values",),
        ("layer_scale",),
        _scale,
        lambda c: {"init_values": c.layer_scale_init if c.layer_scale else without},
        is_optional=True,
    )


BLOCKS: tuple[Row, ...] = (
    scale_row(0.0),
    JsonField("no_embed_class", "position_before_class", write=_adds_positions_first),
)


def pre_norm_row(key: str) -> Row:
    """Returns the row of the norm before the blocks; with this norm, patches have no bias."""
    return JsonFields(
        (key,),
        ("pre_norm", "patch_bias"),
        lambda content: {"pre_norm": bool(content[key]), "patch_bias": not content[key]},
        lambda c: {key: c.pre_norm},
        is_optional=True,
    )


QK_NORM = JsonField("qk_norm", "qk_norm", one_of({False: None, True: "head"}))
"""The row of norms of queries and keys, which `Beit` lacks."""


IMPOSSIBLE: Limits = {
    "norms of whole queries and keys": "qk_norm=width",
    "a bias of the patches beside a norm before the blocks, or neither of them": (
        "pre_norm=patch_bias"
    ),
    "positions of some of the tokens before the patches": (
        "position=learned num_prefix_positions!=0|num_prefix_tokens"
    ),
    "a distillation token without a head": "distillation_token!=has_two_heads",
    "attention pooling with a LayerNorm behind blocks with RMSNorm": "norm=rms pooling=map",
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
    if facts.config.native_aspect:
        return "embeds.proj"
    stem = facts.config.resnet
    if stem is None:
        return "patch_embed.proj"
    return f"patch_embed.backbone.{'stem.' if stem.num_layers else ''}conv"


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
    keys = {"in_chans": "channels", registers: "num_registers"}
    words = {key: arrays[field] for key, field in keys.items() if field in arrays}
    words[fc_norm] = arrays.get("numerics", {}).get("pool_before_norm", False)
    scale = content.get("init_values") or ViTConfig.layer_scale_init
    words["init_values"] = scale if arrays.get("layer_scale") else None
    words["qk_norm"] = bool(arrays.get("qk_norm"))
    width = arrays.get("hidden_size")
    if "embed_dim" not in content and content.get("width", width) != width:
        words["num_heads"] = LEFT_OUT  # the architecture's belongs to its own width
    return words | read_positions(arrays, content)


def _shown_beside_arguments(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns the number of classes, where JSON states none."""
    is_stated = "num_classes" in object_at(content, ("model_args",)) or not arrays
    return {} if is_stated else {"num_classes": arrays["num_classes"]}


def read_positions(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns whether all tokens have positions, or no image size if the assumed one is wrong."""
    count, patch, size = (
        arrays.get("num_positions"),
        arrays.get("patch_size"),
        content.get("img_size"),
    )
    if not count or not patch or not size or arrays.get("resnet"):
        return {}
    sides = zip(pair("img_size", size), patch, strict=True)
    rows, columns = (side // length for side, length in sides)
    has_two_heads = arrays.get("pooling") == "token_and_distillation"
    prefix = bool(arrays.get("class_token")) + has_two_heads + arrays.get("num_registers", 0)
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
            "with which timm computes the exact one. keras_vit does as timm does; numerics="
            "{'gelu': 'quick'} computes as in training.",
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
    "class_token": True,
    "position": "learned",
    "norm": "layer",
    "mlp": "plain",
    "final_norm": True,
    **dict.fromkeys(("qkv_bias", "projection_bias", "mlp_bias", "patch_bias"), True),
}
_OTHER_PARTS = (
    *("pre_norm", "patch_norm", "qk_norm", "sub_norm_attention", "sub_norm_mlp"),
    *("layer_scale", "num_registers", "resnet"),
)
_OPEN = {
    "pooling": "'token', 'gap' or 'map'",
    "rope": "no array tells it; family='facebook' reads DeiT-III by Facebook's names",
    "gelu": "'exact' in most architectures, 'tanh' or 'quick' in some of SigLIP and CLIP",
    "layer_norm_epsilon": "1e-6 in most architectures, 1e-5 in CLIP, DINOv3 and others",
}


def undetermined(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the facts that arrays leave open where no architecture is named.

    A plain ViT leaves the number of heads open alone: its names are also those of Facebook's DeiT,
    DINO and MAE, which compute as timm's `VisionTransformer` does.
    """
    heads = {"num_heads": "hidden_size / 64 in most architectures"}
    has_parts = fields["pooling"] == "map" or any(fields.get(name) for name in _OTHER_PARTS)
    if not has_parts and all(fields.get(name, value) == value for name, value in _PLAIN.items()):
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
