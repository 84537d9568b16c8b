"""Reads the argument `timm`: an architecture, or the arguments of `timm.create_model`.

    read={"timm": "vit_small_patch16_224"}
    read={"timm": {"model_name": "vit_giant_patch14_224", "mlp_layer": "SwiGLUPacked", "reg_tokens": 8}}

Both become the content of `config.json`.
"""

import functools
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.families import FORMATS
from keras_vit.checkpoints.families.keys import Json, object_at
from keras_vit.checkpoints.families.timm import architectures
from keras_vit.checkpoints.families.timm.images import KEYS
from keras_vit.checkpoints.families.timm.library import TIMM
from keras_vit.errors import nearest, shown


def _refuse_unknown(architecture: str, arguments: Json) -> None:
    """Raises `ValueError` for an unknown argument, such as a misspelt one."""
    kind = architectures.find_class(architectures.find_row(architecture))
    formats = [f for f in FORMATS if f.library is TIMM and kind in ("", f.class_name)]
    tables = [" ".join((*f.keys, *f.shapes)) for f in formats]
    known = architectures.list_arguments(kind).union(*map(str.split, tables))
    for key in arguments:
        if key not in known:
            raise ValueError(
                f"has {key}=, which is not an argument of {architecture} that keras_vit reads."
                f"{nearest(key, known)}"
            )


def _write(key: str, value: Any) -> Any:
    """Returns an argument as in JSON: a class as its name, except a norm's."""
    if "norm" in key:  # a norm's class does not show its epsilon, and is refused
        return value
    if isinstance(value, functools.partial) and value.keywords.get("gate_last") is False:
        value = "SwiGLUPacked"  # in timm a partial of GluMlp
    name = getattr(value, "__name__", value)
    words = architectures.read_file("classes")["names_of_layers"].get(key)
    if words is None:
        return name
    name = str(name).rpartition(".")[2]
    if name not in words:
        raise ValueError(f"has {key}={shown(name)}, expected one of {', '.join(words)}")
    return words[name]


def merge_config(timm: str | Mapping[str, Any], stored: Json) -> dict[str, Any]:
    """Returns the content of `config.json` for an architecture or the arguments of a model card.

    Args:
        timm: the name of an architecture, or the arguments of `timm.create_model` by name.
            `model_name` may be omitted, or name a repository (`hf-hub:owner/name`), if
            `stored` states the architecture.
        stored: the content of the weights' `config.json`, or an empty object. It completes the
            arguments, unless it states another architecture.

    Raises:
        ValueError: the architecture is missing or unknown, or a class or an argument is unknown.
    """
    card = {"model_name": timm} if isinstance(timm, str) else timm
    if not isinstance(card, Mapping):
        raise ValueError(f"is {shown(card)}, expected an architecture or arguments in a dict")
    # `create_model` drops arguments that are None.
    own = {key: _write(key, value) for key, value in card.items() if value is not None}
    name = str(own.pop("model_name", ""))
    is_place = not name or ":" in name
    if is_place and "architecture" in stored:
        name = str(stored["architecture"])
    elif architectures.find_row(name) is None:
        guess = nearest(name, architectures.read_file("registry")["models"])
        raise ValueError(
            f"has model_name={shown(name)}, expected an architecture of a plain ViT of timm, such "
            f"as 'vit_large_patch16_224'.{guess}"
        )
    is_same = str(stored.get("architecture")).partition(".")[0] == name.partition(".")[0]
    config = {**(stored if is_same else {}), "architecture": name}
    if num_classes := own.pop("num_classes", None):  # 0 drops a head that the arrays have
        config["num_classes"] = num_classes
    images = {key: own.pop(key) for key in KEYS if key in own}
    _refuse_unknown(name, own)
    for key, stated in (("model_args", own), ("pretrained_cfg", images)):
        config[key] = {**object_at(config, (key,)), **stated}
    return config
