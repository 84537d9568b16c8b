"""The arguments of timm's architectures, of which `config.json` has only the name.

`registry.json` has the constructor arguments of every architecture. `classes.json` has the
defaults of the classes, the architectures that keras_vit writes, the features that it lacks, the
arguments that do not change the outputs of trained weights, and the names of layer classes in JSON.
"""

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.families.keys import Json, object_at
from keras_vit.config import ViTConfig
from keras_vit.config.weights.conditions import Place, parse
from keras_vit.errors import shown

Arguments = dict[str, Any]

CLASSES = ("VisionTransformer", "VisionTransformerDistilled", "Eva", "Beit", "NaFlexVit")
"""The classes of timm that keras_vit reads; every architecture of the last is registered."""


@functools.cache
def read_file(name: str) -> dict[str, Any]:
    """Returns the content of `"registry"` or `"classes"`."""
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8"))


def find_row(architecture: Any) -> Arguments | None:
    """Returns the arguments of a registered architecture, by its current or a former name."""
    registry = read_file("registry")
    name = str(architecture).partition(".")[0]
    return registry["models"].get(registry["renamed"].get(name, name))


def find_class(row: Mapping[str, Any] | None) -> str:
    """Returns the name of the class of a registered architecture; "" for None."""
    return "" if row is None else row.get("class", CLASSES[0])


def read_defaults(row: Mapping[str, Any] | None) -> Arguments:
    """Returns the arguments of a registered architecture, with the defaults of its class."""
    return {**_read_class(find_class(row)), **(row or {})}


def _read_class(kind: str) -> Arguments:
    return read_file("classes")["defaults"].get(kind.removesuffix("Distilled"), {})


def list_arguments(kind: str) -> set[str]:
    """Returns the arguments of a class that state a feature, or do not change the outputs."""
    own, without = _read_class(kind or CLASSES[0]), read_file("classes")["without_effect"]
    return {*own, *without, *_list_lacking(kind), "num_kv_heads"}


def _list_lacking(kind: str) -> dict[str, dict[str, str]]:
    """Returns the features of a class that keras_vit lacks, by argument and value."""
    lacking = read_file("classes")["lacking_parts"]
    return lacking["any class"] | lacking.get(kind, {})


def read_arguments(config: Json) -> tuple[str, Arguments, Arguments]:
    """Returns the class of an architecture, its arguments, and those that `model_args` states.

    Null in `model_args` means the default of the class, and in a file of transformers the
    architecture's value: `TimmWrapperModel` calls `create_model`, which drops it.

    Raises:
        ValueError: an argument, or the architecture's module, has a feature that keras_vit lacks.
    """
    name = config["architecture"]
    row = find_row(name)
    kind = find_class(row)
    usual, defaults = _read_class(kind), read_defaults(row)
    stated = object_at(config, ("model_args",)).items()
    if config.get("model_type") == "timm_wrapper":
        stated = {key: value for key, value in stated if value is not None}.items()
    own = {key: usual.get(key) if value is None else value for key, value in stated}
    arguments = {**defaults, **own}
    missing = [
        parts[str(arguments[key])]
        for key, parts in _list_lacking(kind).items()
        if str(arguments.get(key)) in parts
    ]
    if arguments.get("num_kv_heads"):
        missing.append("fewer key and value heads than query heads")
    if row is None and not own:
        modules = read_file("classes")["lacking_modules"].items()
        missing += [part for module, part in modules if re.fullmatch(module, str(name))][:1]
    if missing:
        lacks = f"an architecture with {' and '.join(missing)}, which keras_vit lacks"
        raise ValueError(f"architecture={shown(name)}, {lacks}")
    return kind, defaults, own


def choose_written(class_name: str, config: ViTConfig) -> str:
    """Returns a registered architecture with the features that `model_args` cannot state.

    These are the stem, the norms with their epsilon, and the kind of MLP.

    Raises:
        ValueError: timm has no architecture with these features.
    """
    for name, rule in read_file("classes")["written"][class_name].items():
        if parse(rule).holds(config):
            return name
    fields = ("block.norm", "block.epsilon", "block.gated", "stem.kind")
    words = ", ".join(f"{field}={Place(field).read(config)!r}" for field in fields)
    raise ValueError(f"a combination of norms, MLP and stem that no architecture has: {words}")
