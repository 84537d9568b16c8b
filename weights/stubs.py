"""Writes `keras_vit/models/building.pyi`, the arguments of models for type checkers and editors.

python -m weights.stubs
"""

import dataclasses
import inspect
from pathlib import Path

from keras_vit.config import ViTConfig
from keras_vit.models import building

STUB = Path(building.__file__).with_suffix(".pyi")
_IMPORTS = """from typing import Any, Literal, TypedDict

from keras_vit.config import Numerics, ResNetStem, Rope
"""


def stub() -> str:
    """Returns `building.py` with the fields of `ViTConfig` in the class `Architecture`."""
    source = Path(building.__file__).read_text(encoding="utf-8")
    fields = [
        f"    {field.name}: {_argument(field.type)}\n"
        for field in dataclasses.fields(ViTConfig)
        if field.name not in ("image_size", "num_classes")
    ]
    place = inspect.getsource(building.Architecture)
    source = source.replace(place, f"{place}\n{''.join(fields)}")
    return source.replace("from typing import Any, TypedDict\n\n", _IMPORTS)


def _argument(kind: object) -> str:
    """Returns the type of an argument: a part may be a dict, and a pair one number."""
    words = inspect.formatannotation(kind).replace('"', "'")
    for part in ("numerics.Numerics", "rope.Rope", "stem.ResNetStem"):
        name = part.partition(".")[2]
        words = words.replace(f"keras_vit.config.{part}", f"{name} | Mapping[str, Any]")
    return words.replace("'", '"') if words != "tuple[int, int]" else "int | tuple[int, int]"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
