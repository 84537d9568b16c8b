"""Writes `keras_vit/models/building.pyi`, the arguments of models for type checkers and editors.

python -m weights.stubs
"""

import dataclasses
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.families import NAMES
from keras_vit.config import ViTConfig
from keras_vit.config.fields import part_of
from keras_vit.models import building

STUB = Path(building.__file__).with_suffix(".pyi")
_IMPORT = "from keras_vit.config import Task\n"
_PARTS = "Block, DenseHead, LearnedTokens, Pool, Rope, Stem, Task"


def stub() -> str:
    """Returns `building.py` with the names of families, and the fields of `ViTConfig` and parts."""
    source = Path(building.__file__).read_text(encoding="utf-8")
    parts = [part for field in dataclasses.fields(ViTConfig) if (part := part_of(field))]
    dicts = "".join(
        f"class {part.__name__}Fields(TypedDict, total=False):\n{_list_fields(part)}\n\n"
        for part in parts
    )
    place = inspect.getsource(building.Architecture)
    source = source.replace(place, f"{dicts}{place}\n{_list_fields(ViTConfig)}")
    source = source.replace("TypeAlias = str", f"TypeAlias = {_literal(NAMES)}")
    return source.replace(_IMPORT, _IMPORT.replace("Task", _PARTS))


def _list_fields(kind: Any) -> str:
    return "".join(
        f"    {field.name}: {_argument(field)}\n"
        for field in dataclasses.fields(kind)
        if field.name not in ("image_size", "num_classes")
    )


def _literal(words: Iterable[str]) -> str:
    return "Literal[{}]".format(", ".join(f'"{word}"' for word in words))


def _argument(field: dataclasses.Field[Any]) -> str:
    """Returns the type of an argument: a part may be a dict, a pair one number, a text a word."""
    values = field.metadata.get("values")
    if values is not None and values.words:
        return _literal(values.words) + (" | None" if values.include(None) else "")
    words = inspect.formatannotation(field.type).replace('"', "'")
    if part := part_of(field):
        name = part.__name__
        words = words.replace(f"{part.__module__}.{name}", f"{name} | {name}Fields")
    return words.replace("'", '"') if words != "tuple[int, int]" else "int | tuple[int, int]"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
