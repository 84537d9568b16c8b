"""Facts that the name of a timm architecture states, beside the arrays and `model_args`.

`registry.json` has a row for every architecture: the arguments of its constructor. timm writes
none of them into `config.json`.
"""

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.dialects.json_fields import Json, object_at
from keras_vit.config import ViTConfig
from keras_vit.errors import shown

Arguments = dict[str, Any]


_PLAIN = "VisionTransformer"
"""The class of a row that names none."""


@functools.cache
def _registry() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("registry.json").read_text("utf-8"))


def row_of(architecture: Any) -> Arguments | None:
    """Returns the arguments of a registered architecture, by a name of today or of before."""
    name = str(architecture).partition(".")[0]
    return _registry()["models"].get(_registry()["renamed"].get(name, name))


def rows() -> Iterable[tuple[str, Arguments]]:
    """Returns every registered architecture with the arguments that it gives."""
    return _registry()["models"].items()


def defaults_of(row: Mapping[str, Any]) -> Arguments:
    """Returns the arguments of a row's class where an architecture gives none."""
    return _DEFAULTS.get(row.get("class", _PLAIN), {})


FAMILIES = {"Eva": "timm/eva", "Beit": "timm/eva", "NaFlexVit": "timm/naflex"}
"""Class of timm -> the dialect of its architectures; all other classes are of `timm`."""


def family_of(row: Mapping[str, Any]) -> str:
    """Returns the dialect of an architecture."""
    return FAMILIES.get(row.get("class", _PLAIN), "timm")


def names_of(family: str) -> list[str]:
    """Returns the names of all architectures of a dialect, their former names included."""
    models, renamed = _registry()["models"], _registry()["renamed"]
    own = [name for name, row in models.items() if family_of(row) == family]
    return [*own, *(old for old, new in renamed.items() if new in own)]


_NORM = {"name": "LayerNorm", "eps": 1e-6}
_DEFAULTS: dict[str, Arguments] = {
    "VisionTransformer": {
        "global_pool": "token",
        "num_heads": 12,
        "mlp_ratio": 4.0,
        "qkv_bias": True,
        "proj_bias": True,
        "init_values": None,
        "class_token": True,
        "pos_embed": "learn",
        "no_embed_class": False,
        "reg_tokens": 0,
        "pool_include_prefix": False,
        "pre_norm": False,
        "final_norm": True,
        "scale_attn_norm": False,
        "scale_mlp_norm": False,
        "norm_layer": _NORM,
        "embed_norm_layer": None,
        "mlp_layer": "Mlp",
        "act_layer": "gelu",
    },
    "Eva": {
        "global_pool": "avg",
        "num_heads": 12,
        "mlp_ratio": 4.0,
        "qkv_bias": True,
        "attn_type": "eva",
        "init_values": None,
        "class_token": True,
        "no_embed_class": False,
        "num_reg_tokens": 0,
        "use_pre_transformer_norm": False,
        "use_abs_pos_emb": True,
        "use_rot_pos_emb": False,
        "rope_type": "cat",
        "rope_grid_offset": 0.0,
        "rope_grid_indexing": "ij",
        "rope_temperature": 10000.0,
        "rope_rotate_half": False,
        "ref_feat_shape": None,
        "scale_attn_inner": False,
        "scale_mlp": False,
        "swiglu_mlp": False,
        "swiglu_align_to": 0,
        "norm_layer": _NORM,
        "attn_pool_num_heads": None,
        "attn_pool_mlp_ratio": None,
    },
    "Beit": {
        "global_pool": "avg",
        "class_token": True,  # no argument: every model has one
        "num_heads": 12,
        "mlp_ratio": 4.0,
        "qkv_bias": True,
        "init_values": None,
        "use_abs_pos_emb": True,
        "use_rel_pos_bias": False,
        "use_shared_rel_pos_bias": False,
        "scale_mlp": False,
        "swiglu_mlp": False,
        "norm_layer": _NORM,
    },
}
_DEFAULTS["NaFlexVit"] = {
    **{k: v for k, v in _DEFAULTS["VisionTransformer"].items() if k != "no_embed_class"},
    "global_pool": "map",
    "class_token": False,
    "patch_size": 16,
    "pos_embed": "learned",
    "pos_embed_grid_size": [16, 16],
    "pos_embed_interp_mode": "bicubic",
    "pos_embed_antialias": True,
    "pos_embed_align_corners": False,
    "pos_embed_ar_preserving": False,
    "scale_attn_inner_norm": False,
}
_DEFAULTS["VisionTransformerDistilled"] = _DEFAULTS["VisionTransformer"]
"""Arguments of a class where an architecture gives none."""

_PARTS: dict[str, dict[Any, str]] = {
    "stem": {
        "ConvStem": "a convolutional stem",
        "FeatureListNet": "the stem of a ResNet-D",
    },
    "block_fn": {
        "ResPostBlock": "blocks with a norm behind each branch",
        "ParallelScalingBlock": "parallel blocks",
        "ParallelThingsBlock": "parallel blocks",
        "DiffParallelScalingBlock": "parallel blocks",
    },
    "attn_layer": {"diff": "differential attention"},
    "use_post_norm": {True: "blocks with a norm behind each branch"},
    "qk_norm": {True: "norms of query and key"},
    "attn_only_layer_scale": {True: "layer scale of the attention alone"},
}
"""Parts that keras_vit has not, by the argument that asks for them."""

_PARTS_OF_NAFLEX: dict[str, dict[Any, str]] = {
    "pos_embed": {"factorized": "positions of rows and of columns"},
    "pos_embed_ar_preserving": {True: "positions of a square cut to each image"},
    "pos_embed_use_grid_sample": {True: "sampled positions"},
    "rope_type": dict.fromkeys(("axial", "mixed", "dinov3", "mrope"), "rotary positions"),
    "attn_type": dict.fromkeys(("eva", "rope"), "EVA's attention"),
    "norm_layer": dict.fromkeys(("rmsnorm", "simplenorm"), "another norm than LayerNorm"),
    "attn_gated": {True: "gated attention"},
    "swiglu_mlp": {True: "a gated MLP"},
    "embed_proj_type": {"conv": "a convolution over images"},
    "patchify_channels_last": {False: "patches with their channels first"},
}
"""The same for the arguments of `NaFlexVit`."""

_ELSEWHERE = (
    (r"vit_s?relpos.*|vit_.*_rope_mrope.*", "relative position bias"),
    (r"samvit.*|hieradet.*|hiera.*", "windows"),
    (r"swin.*|maxvit.*|maxxvit.*|coatnet.*|nest.*|twins.*|gcvit.*|davit.*", "windows"),
    (r"gemma4.*|qwen3.*", "packed sequences"),
    (r"cait.*", "class attention"),
    (r"xcit.*", "cross-covariance attention"),
    (r"(?!.*vit_).*(conv|res|net).*", "convolutions"),
    (
        r"(levit|mobilevit|tiny_vit|fastvit|efficientvit|repvit|vitamin|convit|coat).*",
        "convolutions",
    ),
)
"""Architectures of other modules of timm, and the part that keras_vit lacks."""


def _refuse_parts(architecture: Any, arguments: Arguments) -> None:
    of_class = _PARTS_OF_NAFLEX if arguments.get("pos_embed_grid_size") else {}
    missing = [
        words[value]
        for key, words in (_PARTS | of_class).items()
        for value in [arguments.get(key)]
        if isinstance(value, (str, bool)) and value in words
    ]
    if arguments.get("num_kv_heads"):
        missing.append("fewer heads of key and value than of query")
    if row_of(architecture) is None and not arguments:
        missing += [part for name, part in _ELSEWHERE if re.fullmatch(name, str(architecture))][:1]
    if missing:
        raise ValueError(f"an architecture with {' and '.join(missing)}, which keras_vit lacks")


def arguments_of(config: Json) -> Arguments:
    """Returns every argument of the model that `config.json` is of, as far as it is known.

    Args:
        config: the content of `config.json`. An architecture that timm did not register gives
            what `model_args` say, and no more.

    Raises:
        ValueError: the model has a part that keras_vit lacks.
    """
    architecture = config.get("architecture")
    row = row_of(architecture)
    default = {} if row is None else defaults_of(row)
    own = object_at(config, ("model_args",))
    # null is passed on to the constructor, where it stands for the default of the class.
    own = {k: v if v is not None else default.get(k) for k, v in own.items()}
    top = {"global_pool": config["global_pool"]} if "global_pool" in config else {}
    _refuse_parts(architecture, {**(row or {}), **own})
    return {**default, **(row or {}), **top, **own}


def assumed_arguments(config: Json) -> Arguments:
    """Returns the arguments that a model was made with where `model_args` do not say.

    The patch size is left to the arrays, where they tell it.
    """
    own = object_at(config, ("model_args",))
    arguments = arguments_of(config)
    size = object_at(config, ("pretrained_cfg",)).get("input_size")
    if size is not None:
        arguments.setdefault("img_size", size[-2:] if isinstance(size, list) else size)
    if "patch_size" not in own and "pos_embed_grid_size" not in arguments:
        arguments.pop("patch_size", None)
    return arguments


def norm_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `norm_layer`: a class of timm, or its name in JSON."""
    layer = arguments.get("norm_layer")
    if layer is None:
        return {}
    name, epsilon = (layer["name"], layer["eps"]) if isinstance(layer, Mapping) else (layer, 1e-6)
    kinds = {"layernorm": "layer", "layernormfp32": "layer", "rmsnorm": "rms"}
    if str(name).lower() not in kinds:
        raise ValueError(f"with norm_layer={shown(name)}, expected one of {', '.join(kinds)}")
    return {"norm": kinds[str(name).lower()], "numerics.layer_norm_epsilon": epsilon}


def ratio_of(size: int, width: int) -> float:
    """Returns the ratio whose product with `width`, cut to an int as timm does, is `size`."""
    ratio = size / width
    return ratio if int(width * ratio) == size else math.nextafter(ratio, math.inf)


EPSILONS = (1e-6, 1e-5)
"""Those of timm's LayerNorms."""


def to_write(config: ViTConfig) -> str | None:
    """Returns a registered `VisionTransformer` with the parts that `model_args` cannot state.

    Those are the stem, the second token of DeiT, the norms with their epsilon, and the kind of
    MLP. None: there is no such architecture.
    """
    epsilon = config.numerics.layer_norm_epsilon
    epsilon = epsilon if epsilon in EPSILONS else EPSILONS[0]
    stem = None if config.resnet is None else config.resnet.num_layers
    key = (config.has_two_heads, config.norm, epsilon, config.patch_norm, config.mlp, stem)
    return _TO_WRITE.get(key)


_LAYER, _RMS = "layer", "rms"
_TO_WRITE: dict[tuple[Any, ...], str] = {
    (False, _LAYER, 1e-6, False, "plain", None): "vit_base_patch16_224",
    (False, _LAYER, 1e-5, False, "plain", None): "vit_base_patch16_clip_224",
    (True, _LAYER, 1e-6, False, "plain", None): "deit_base_distilled_patch16_224",
    (False, _LAYER, 1e-6, False, "gated", None): "vit_giant_patch14_dinov2",
    (False, _RMS, 1e-5, True, "gated", None): "aimv2_large_patch14_224",
    (False, _RMS, 1e-6, False, "plain", None): "test_vit4",
    (False, _LAYER, 1e-6, False, "plain", ()): "vit_tiny_r_s16_p8_224",
    (False, _LAYER, 1e-6, False, "plain", (2, 2, 2, 2)): "vit_small_r26_s32_224",
    (False, _LAYER, 1e-6, False, "plain", (3, 4, 9)): "vit_base_r50_s16_224",
    (False, _LAYER, 1e-6, False, "plain", (3, 4, 6, 3)): "vit_large_r50_s32_224",
}
"""By class, norm, epsilon, norm behind the patches, MLP and stages of the stem."""
