"""The arguments of timm's architectures, which `config.json` names alone: `vit_base_patch16_224`.

`registry.json` has the arguments of every architecture's constructor. `classes.json` has the
defaults of the classes, the architectures that keras_vit writes, and the parts that it lacks.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.dialects.json_fields import Json, naming, object_at
from keras_vit.config import ViTConfig
from keras_vit.errors import shown

Arguments = dict[str, Any]


@functools.cache
def _read(file: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name(file).read_text("utf-8"))


def find_row(architecture: Any) -> Arguments | None:
    """Returns the arguments of a registered architecture, by its present or a former name."""
    registry = _read("registry.json")
    name = str(architecture).partition(".")[0]
    return registry["models"].get(registry["renamed"].get(name, name))


def rows() -> Iterable[tuple[str, Arguments]]:
    """Returns the name and the arguments of every registered architecture."""
    return _read("registry.json")["models"].items()


def _find_class(row: Mapping[str, Any]) -> str:
    return str(row.get("class", "VisionTransformer")).removesuffix("Distilled")


def read_defaults(row: Mapping[str, Any]) -> Arguments:
    """Returns the defaults of a class's arguments, which an architecture may leave out."""
    return _read("classes.json")["defaults"].get(_find_class(row), {})


def find_family(row: Mapping[str, Any]) -> str:
    """Returns the dialect of an architecture."""
    return {"VisionTransformer": "timm", "NaFlexVit": "timm/naflex"}.get(
        _find_class(row), "timm/eva"
    )


def is_of(family: str, architecture: str) -> bool:
    """Whether an architecture may be of a dialect; only those of `NaFlexVit` are all registered."""
    row = find_row(architecture)
    return family != "timm/naflex" if row is None else find_family(row) == family


def list_arguments(architecture: Any) -> set[str]:
    """Returns the arguments that the class of an architecture has, beside sizes and poolings."""
    family = find_family(find_row(architecture) or {})
    own = [row for _, row in rows() if find_family(row) == family]
    known = {key for row in own for key in (*row, *read_defaults(row))}
    return known.union(_list_lacking(family)) - {"class", "stem", "width"}


def _list_lacking(family: str) -> dict[str, dict[str, str]]:
    """Returns the parts that keras_vit lacks, by argument and value."""
    lacking = _read("classes.json")
    of_class = lacking["lacking_in_naflex"] if family == "timm/naflex" else {}
    return lacking["lacking_parts"] | of_class


def _refuse_parts(architecture: Any, arguments: Arguments) -> None:
    """Raises `ValueError` if an argument, or the architecture's module, has a part that we lack."""
    family = "timm/naflex" if "naflex" in str(architecture) else ""
    missing = [
        parts[str(arguments[key])]
        for key, parts in _list_lacking(family).items()
        if str(arguments.get(key)) in parts
    ]
    if arguments.get("num_kv_heads"):
        missing.append("fewer heads of key and value than of query")
    if find_row(architecture) is None and not arguments:
        modules = _read("classes.json")["lacking_modules"].items()
        missing += [part for name, part in modules if re.fullmatch(name, str(architecture))][:1]
    if missing:
        raise ValueError(f"an architecture with {' and '.join(missing)}, which keras_vit lacks")


def read_arguments(config: Json) -> Arguments:
    """Returns the arguments of the model that `config.json` describes.

    Args:
        config: the content of `config.json`. For an architecture that timm did not register,
            the arguments are those of `model_args` alone.

    Raises:
        ValueError: the model has a part that keras_vit lacks.
    """
    architecture = config.get("architecture")
    row = find_row(architecture)
    default = {} if row is None else read_defaults(row)
    own = object_at(config, ("model_args",))
    # null is passed on to the constructor, where it stands for the default of the class.
    own = {k: v if v is not None else default.get(k) for k, v in own.items()}
    _refuse_parts(architecture, {**(row or {}), **own})
    return {**default, **(row or {}), **own}


def assumed_arguments(config: Json) -> Arguments:
    """Returns values for arguments that `model_args` lacks, by the architecture's name.

    The patch size is left to the arrays, where they tell it.
    """
    own = object_at(config, ("model_args",))
    with naming("architecture", config.get("architecture")):
        arguments = read_arguments(config)
    size = object_at(config, ("pretrained_cfg",)).get("input_size")
    if size is not None:
        arguments.setdefault("img_size", size[-2:] if isinstance(size, list) else size)
    if "patch_size" not in own and "pos_embed_grid_size" not in arguments:
        arguments.pop("patch_size", None)
    return arguments


def read_norm(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that `norm_layer`, a class of timm or its name, states."""
    layer = arguments.get("norm_layer")
    if layer is None:
        return {}
    name, epsilon = (layer["name"], layer["eps"]) if isinstance(layer, Mapping) else (layer, 1e-6)
    kinds = {"layernorm": "layer", "layernormfp32": "layer", "rmsnorm": "rms"}
    if str(name).lower() not in kinds:
        raise ValueError(f"with norm_layer={shown(name)}, expected one of {', '.join(kinds)}")
    return {"block.norm": kinds[str(name).lower()], "block.epsilon": epsilon}


EPSILONS = (1e-6, 1e-5)
"""The epsilons of timm's LayerNorms."""


def to_write(config: ViTConfig) -> str | None:
    """Returns a registered `VisionTransformer` with the parts that `model_args` cannot state.

    Those are the stem, the second token of DeiT, the norms with their epsilon, and the kind of
    MLP. None: timm has no architecture with these parts.
    """
    plain: dict[str, Any] = {
        "has_two_heads": False,
        "norm": "layer",
        "epsilon": EPSILONS[0],
        "patch_norm": False,
        "gated": False,
        "stem": None,
    }
    block, stem = config.block, config.stem
    own = {
        "has_two_heads": config.has_two_heads,
        "norm": block.norm,
        "epsilon": block.epsilon if block.epsilon in EPSILONS else EPSILONS[0],
        "patch_norm": block.input_norm == "patches",
        "gated": block.gated,
        "stem": list(stem.units) if stem.is_resnet else None,
    }
    written = _read("classes.json")["written"].items()
    return next((name for name, parts in written if {**plain, **parts} == own), None)
