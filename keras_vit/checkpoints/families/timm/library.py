"""Common tables of timm's families: config.json, with an architecture and its arguments.

`model_args` are the arguments of the class that differ from the architecture's.
`open_clip_config.json` names the architecture of a vision tower, whose arrays have the prefix
`visual.trunk.`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_vit.checkpoints.families.family import Format, Library, Open, Stated
from keras_vit.checkpoints.families.keys import (
    Codec,
    Facts,
    Json,
    Keys,
    compute_ratio,
    names_by_number,
    naming,
    number,
    object_at,
    sides,
    stored_image_size,
    together,
)
from keras_vit.checkpoints.families.timm import architectures
from keras_vit.checkpoints.families.timm.images import images
from keras_vit.checkpoints.families.transformers.library import POSITIONS_OF_ANOTHER_GRID
from keras_vit.config import Task, ViTConfig
from keras_vit.config.weights.conditions import parse
from keras_vit.errors import shown
from keras_vit.images.class_names import NAMED
from keras_vit.support.text import log


def read(files: Json, formats: Sequence[Format]) -> Stated:
    """Returns the content of config.json, or of open_clip's file for a trunk of timm."""
    config = files.get("config.json")
    if not isinstance(config, Mapping) or not config.get("architecture"):
        trunk = object_at(files.get("open_clip_config.json") or {}, ("model_cfg", "vision_cfg"))
        if not trunk.get("timm_model_name"):
            return Stated()
        pool, size = trunk.get("timm_pool"), trunk.get("image_size")
        own = {"global_pool": pool} if pool in ("avg", "token", "map") else {}
        own |= {"img_size": size} if size is not None else {}
        config = {"architecture": trunk["timm_model_name"], "model_args": own}
    kind, defaults, own = architectures.read_arguments(config)
    _warn_of_gelu(config, {**defaults, **own})
    stated = {key: config[key] for key in ("global_pool", "num_classes") if key in config}
    if config.get("model_type") == "timm_wrapper":  # 2 even without a head
        stated.pop("num_classes", None)
    size = object_at(config, ("pretrained_cfg",)).get("input_size")
    if size is not None:
        defaults = {"img_size": size[-2:] if isinstance(size, list) else size, **defaults}
    changed = {key: v for key, v in own.items() if v and v != defaults.get(key)}
    without_effect = architectures.read_file("classes")["without_effect"]
    return Stated(
        words=(kind,) if kind else architectures.CLASSES[:-1],
        class_name=kind,
        keys={**stated, **own},
        defaults=defaults,
        unread={key: v for key, v in changed.items() if key not in without_effect},
    )


def _warn_of_gelu(config: Json, arguments: Json) -> None:
    """Warns if, according to timm, the weights were trained with another GELU than timm's."""
    notes = object_at(config, ("pretrained_cfg",)).get("notes")
    if "QuickGELU" in str(notes) and arguments.get("act_layer") != "quick_gelu":
        log.warning(
            "config.json notes that the weights were trained with the quick GELU, but its "
            "architecture %s has the exact one in timm. keras_vit does the same; block="
            "{'activation': 'quick_gelu'} computes as in training.",
            config.get("architecture"),
        )


def write(
    format: Format,
    keys: dict[str, Any],
    config: ViTConfig,
    class_names: tuple[str, ...] | None,
    task: Task,
) -> dict[str, Any]:
    """Returns config.json: an architecture, and the arguments that differ from it."""
    first = "root/conv" if config.stem.is_resnet else "patch_embedding"
    conv = format.names_for(f"{first}/kernel", config)[0].name.removesuffix(".weight")
    num_classes = {"num_classes": keys.pop("num_classes")}
    content = {
        "architecture": architectures.choose_written(format.class_name, config),
        **num_classes,
        "num_features": config.hidden_size,
        "global_pool": keys["global_pool"],
        "model_args": keys,
        **({} if class_names is None else {"label_names": list(class_names)}),
        "pretrained_cfg": {
            **num_classes,
            "first_conv": conv,
            "classifier": ["head", "head_dist"] if config.has_two_heads else "head",
        },
    }
    return {"config.json": content}


def read_class_names(files: Json, num_classes: int) -> str | tuple[str, ...] | None:
    """Returns the stated class names, or the name of the ImageNet list that the weights' tag names."""
    config = files.get("config.json", {})
    pretrained = object_at(config, ("pretrained_cfg",))
    labels = config.get("label_names") or pretrained.get("label_names") or ()
    with naming("label_names", labels):
        if names := names_by_number(labels):
            return names
    tag = str(pretrained.get("tag") or str(config.get("architecture")).partition(".")[2])
    word = {"in1k": "imagenet1k", "in21k": "imagenet21k"}.get(tag.rpartition("_")[2])
    return word if word and NAMED[word] == num_classes else None


# ---- keys of several classes


def scale(without: float | None) -> Codec:
    """Returns the codec of the layer scale.

    Args:
        without: value of `init_values` in a class without a layer scale. `create_model` replaces
            None with the architecture's value.
    """
    return Codec(
        "block.layer_scale",
        lambda content: {"block.layer_scale": content["init_values"] or None},
        lambda config: {"init_values": config.block.layer_scale or without},
    )


def width_by(content: Json, ratio: str) -> int:
    """Returns the width of an MLP from the width of the blocks and a ratio."""
    return int(number(content, "embed_dim") * number(content, ratio))


def mlp_ratio(packed: str | None = None) -> Codec:
    """Returns the codec of the width of the MLP, which also depends on its class.

    Args:
        packed: condition of the models whose ratio includes both gate and value; None for no model.
    """

    def read(content: Json) -> Facts:
        if "embed_dim" not in content:
            return {}
        width = width_by(content, "mlp_ratio")
        step = content.get("swiglu_align_to") if content.get("swiglu_mlp") else 0
        width += -width % step if step else 0
        return {"mlp_dim": width // 2 if content.get("mlp_layer") == "GluMlp" else width}

    def write(config: ViTConfig) -> Facts:
        has_both = packed is not None and parse(packed).holds(config)
        return {"mlp_ratio": compute_ratio(config.mlp_dim * (1 + has_both), config.hidden_size)}

    return Codec("mlp_dim", read, write)


def last_norm(after: str, norm: str) -> Codec:
    """Returns the codec of the last norm.

    Args:
        after: the argument that places the norm after the pooling, which is the default for a mean.
            For the class token and unpooled tokens, both places are equivalent.
        norm: the argument for a norm; in `Eva`, for a norm before the pooling.
    """

    def read(content: Json) -> Facts:
        is_mean, is_last = content.get("global_pool") == "avg", content.get(after)
        is_last = is_mean if is_last is None else is_last
        if content.get(norm) is False and (after == "fc_norm" or not is_last):
            return {"pool.norm": "none"}
        return {"pool.norm": "after" if is_last and is_mean else "before"}

    def write(config: ViTConfig) -> Facts:
        own = config.pool.norm
        if after == "fc_norm":
            place = {after: own == "after"} if config.pool.is_mean else {}
            return {norm: own != "none", **place}
        return {after: own == "after", norm: own == "before"}

    return Codec("pool.norm", read, write)


def positions(keys: str) -> Codec:
    """Returns the codec of learned positions, of all tokens or of the patches."""
    key = keys.split(maxsplit=1)[0]
    none, learned = ("none", "learn") if key == "pos_embed" else (False, True)

    def read(content: Json) -> Facts:
        if content.get(key, True) in ("", "none", False):
            return {"position": "none"}
        if "no_embed_class" not in content:
            return {}
        return {"position": "learned_patches" if content["no_embed_class"] else "learned"}

    def write(config: ViTConfig) -> Facts:
        return {
            key: none if config.position == "none" else learned,
            "no_embed_class": config.position == "learned_patches",
        }

    return Codec("position", read, write)


def input_norm(key: str) -> Codec:
    """Returns the codec of a norm of all tokens before the blocks; the patches then have no bias.

    A norm of the patches follows from the architecture.
    """

    def read(content: Json) -> Facts:
        of_patches = content.get("embed_norm_layer") is not None
        word = "tokens" if content[key] else "patches" if of_patches else None
        return {"block.input_norm": word, "patch_bias": not content[key]}

    return Codec(
        "block.input_norm patch_bias", read, lambda c: {key: c.block.input_norm == "tokens"}
    )


sub_norm = together(
    "block.sub_norm",
    {(False, False): None, (True, False): "attention", (False, True): "mlp", (True, True): "both"},
)
"""The codec of the norms inside attention and MLP, which have separate arguments."""


def _read_norm(content: Json) -> Facts:
    """Returns the fields for `norm_layer`, the name of a class of timm."""
    layer = content["norm_layer"]
    if layer is None:
        return {}
    name, epsilon = (layer["name"], layer["eps"]) if isinstance(layer, Mapping) else (layer, 1e-6)
    kinds = {"layernorm": "layer", "layernormfp32": "layer", "rmsnorm": "rms"}
    if str(name).lower() not in kinds:
        raise ValueError(f"with norm_layer={shown(name)}, expected one of {', '.join(kinds)}")
    return {"block.norm": kinds[str(name).lower()], "block.epsilon": epsilon}


def _read_pool_sizes(content: Json) -> Facts:
    """Returns the sizes of attention pooling; by default those of the blocks."""
    facts: Facts = {}
    if content.get("global_pool") != "map":
        return facts
    if heads := content.get("attn_pool_num_heads"):
        facts["pool.num_heads"] = heads
    if content.get("attn_pool_mlp_ratio") and "embed_dim" in content:
        facts["pool.mlp_dim"] = width_by(content, "attn_pool_mlp_ratio")
    return facts


def _write_pool_sizes(config: ViTConfig) -> Facts:
    width = config.pool.mlp_dim
    return {
        "attn_pool_num_heads": config.pool.num_heads,
        "attn_pool_mlp_ratio": width and compute_ratio(width, config.hidden_size),
    }


POOL_SIZES = Codec("pool.num_heads pool.mlp_dim", _read_pool_sizes, _write_pool_sizes)
"""`attn_pool_num_heads attn_pool_mlp_ratio` of `Eva` and `NaFlexVit`."""
KEYS: Keys = {
    "img_size": Codec(
        "image_size",
        lambda content: {"image_size": content["img_size"]},
        lambda config: {"img_size": list(stored_image_size(config))},
    ),
    "num_heads": "num_heads",
    "norm_layer": Codec("block.norm block.epsilon", _read_norm),
}
SHAPES: Keys = {
    "patch_size": sides("patch_size"),
    "embed_dim": "hidden_size",
    "width": Codec("hidden_size", lambda content: {"hidden_size": content["width"]}),
    "depth": "num_layers",
    "in_chans": "channels",
    "num_classes": "num_classes",
}
"""Keys that arrays show; `width` is that of the registered architecture."""
PARTS: Keys = {
    "class_token": ("tokens.class_tokens", {True: 1, False: 0}),
    "qk_norm": ("block.qk_norm", {False: None, True: "head"}),
}
"""Arguments of every class except `Beit`."""

_OPEN_OF_OTHERS = {
    "pool.kind": "'token', 'gap' or 'map'",
    "rope": "arrays do not show it; read={'family': 'facebook'} reads Facebook's DeiT-III",
    "block.activation": (
        "'gelu' in most architectures, 'silu' with a gated MLP, 'gelu_tanh' or 'quick_gelu' in some "
        "variants of CLIP"
    ),
    "block.epsilon": "1e-6 in most architectures, 1e-5 in CLIP, DINOv3 and others",
}
OPEN = {
    "num_heads": Open("hidden_size / 64 in most architectures"),
    **{field: Open(words, "another") for field, words in _OPEN_OF_OTHERS.items()},
}
"""For a plain ViT only the number of heads is open: its names are also those of Facebook's DeiT,
DINO and MAE, which compute the same as timm's `VisionTransformer`."""

TIMM = Library(
    "timm",
    json=("config.json",),
    named_by="architecture",
    read=read,
    write=write,
    class_names=read_class_names,
    images=images,
    arithmetic={"block.activation": "gelu", "position_resize": "bicubic_antialias"},
    ignored={
        r"text\..*": "the text tower",
        r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
    },
    limits={
        **POSITIONS_OF_ANOTHER_GRID,
        "attention pooling with a LayerNorm after blocks with RMSNorm": "block.norm=rms pool.is_map",
        "the projection of an open_clip tower": "projection_size",
    },
)
