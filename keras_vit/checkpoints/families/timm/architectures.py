"""The arguments of timm's architectures, which `config.json` names alone: `vit_base_patch16_224`.

`registry.json` has the arguments of every architecture's constructor. `classes.json` has the
defaults of the classes, the architectures that keras_vit writes, and the parts that it lacks.
"""

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.families.keys import Json, object_at
from keras_vit.config import ViTConfig
from keras_vit.config.weights.conditions import parse

Arguments = dict[str, Any]

CLASSES = ("VisionTransformer", "VisionTransformerDistilled", "Eva", "Beit", "NaFlexVit")
"""The classes of timm that keras_vit reads; all architectures of the last are registered."""

WITHOUT_EFFECT = frozenset(
    (
        *("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"),
        *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"),
        *("drop_path_rate", "weight_init", "fix_init", "dynamic_img_size", "strict_img_size"),
    )
)
"""Arguments that change no output of trained weights."""


@functools.cache
def _read(file: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name(file).read_text("utf-8"))


def list_names() -> list[str]:
    """Returns the name of every registered architecture."""
    return [*_read("registry.json")["models"]]


def find_row(architecture: Any) -> Arguments | None:
    """Returns the arguments of a registered architecture, by its present or a former name."""
    registry = _read("registry.json")
    name = str(architecture).partition(".")[0]
    return registry["models"].get(registry["renamed"].get(name, name))


def find_class(row: Mapping[str, Any] | None) -> str:
    """Returns the class of a registered architecture; "" for None."""
    return "" if row is None else row.get("class", CLASSES[0])


def read_defaults(row: Mapping[str, Any] | None) -> Arguments:
    """Returns the arguments of a registered architecture, with the defaults of its class."""
    return {**_read_class(find_class(row)), **(row or {})}


def _read_class(kind: str) -> Arguments:
    """Returns the defaults of a class's arguments, which an architecture may leave out."""
    return _read("classes.json")["defaults"].get(kind.removesuffix("Distilled"), {})


def list_arguments(architecture: Any) -> set[str]:
    """Returns the arguments that are read for an architecture's class, or change no output."""
    kind = find_class(find_row(architecture)) or CLASSES[0]
    kinds = next(own for own in (CLASSES[:2], CLASSES[2:4], CLASSES[4:]) if kind in own)
    rows = [row for row in _read("registry.json")["models"].values() if find_class(row) in kinds]
    own = {key for row in rows for key in read_defaults(row)} - {"class", "stem", "width"}
    return own.union(WITHOUT_EFFECT, _list_lacking(kind))


def _list_lacking(kind: str) -> dict[str, dict[str, str]]:
    """Returns the parts of a class that keras_vit lacks, by argument and value."""
    lacking = _read("classes.json")
    return lacking["lacking_parts"] | (lacking["lacking_in_naflex"] if kind == CLASSES[4] else {})


def refuse_parts(architecture: Any, arguments: Json, own: Json) -> None:
    """Raises `ValueError` if an argument, or the architecture's module, has a part that we lack.

    Args:
        architecture: the name.
        arguments: the arguments of the model.
        own: those of them that are stated beside the name.
    """
    row = find_row(architecture)
    missing = [
        parts[str(arguments[key])]
        for key, parts in _list_lacking(find_class(row)).items()
        if str(arguments.get(key)) in parts
    ]
    if arguments.get("num_kv_heads"):
        missing.append("fewer heads of key and value than of query")
    if row is None and not own:
        modules = _read("classes.json")["lacking_modules"].items()
        missing += [part for name, part in modules if re.fullmatch(name, str(architecture))][:1]
    if missing:
        raise ValueError(f"an architecture with {' and '.join(missing)}, which keras_vit lacks")


def choose_written(class_name: str, config: ViTConfig) -> str:
    """Returns a registered architecture with the parts that `model_args` cannot state.

    Those are the stem, the norms with their epsilon, and the kind of MLP.

    Raises:
        ValueError: timm has no architecture with these parts.
    """
    written = _read("classes.json")["written"][class_name].items()
    name = next((name for name, rule in written if parse(rule).holds(config)), None)
    if name is None:
        block = config.block
        raise ValueError(
            "norms, an MLP and a stem that no architecture of timm has together: "
            f"block.norm={block.norm!r}, block.epsilon={block.epsilon!r}, "
            f"block.gated={block.gated!r}, stem.kind={config.stem.kind!r}"
        )
    return name


def read_model_args(config: Json) -> Arguments:
    """Returns the arguments of `model_args`; null stands for the default of the class."""
    default = _read_class(find_class(find_row(config["architecture"])))
    own = object_at(config, ("model_args",))
    return {key: value if value is not None else default.get(key) for key, value in own.items()}
