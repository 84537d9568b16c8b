"""The form in which Keras serialises an object, as rows of a table."""

from typing import Any

from keras_vit.checkpoints.dialects.json_fields import (
    JsonConstant,
    JsonNote,
    JsonTable,
    Row,
    always,
)

_FLOAT32 = {
    "module": "keras",
    "class_name": "DTypePolicy",
    "config": {"name": "float32"},
    "registered_name": None,
}


def keras_object(
    file: str,
    module: str,
    class_name: str,
    rows: tuple[Row, ...],
    at: tuple[str, ...] = (),
    **table: Any,
) -> tuple[JsonTable, JsonTable]:
    """Returns the tables of an object and of its `config`, which the rows describe.

    Args:
        file: name of the file.
        module: module below `keras_hub.src.models`, such as `"vit.vit_backbone"`.
        class_name: name of the class, which is checked on reading.
        rows: rows of the object's `config`.
        at: the keys that lead to the object.
        **table: `when`, `beside` and `is_read` of the tables.
    """
    name = module.rpartition(".")[2]
    outer: tuple[Row, ...] = (
        JsonNote("module", lambda facts: f"keras_hub.src.models.{module}"),
        JsonConstant("class_name", class_name),
        JsonNote("registered_name", lambda facts: f"keras_hub>{class_name}"),
    )
    inner: tuple[Row, ...] = (
        JsonNote("name", lambda facts: name),
        JsonNote("trainable", lambda facts: True),
        JsonNote("dtype", lambda facts: _FLOAT32),
        *rows,
    )
    when = table.pop("when", always)
    return (
        JsonTable(file, outer, at, when=when, **table),
        JsonTable(file, inner, (*at, "config"), when=when, **table),
    )


def serialised(module: str, class_name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the serialised form of an object with this `config`."""
    name = module.rpartition(".")[2]
    return {
        "module": f"keras_hub.src.models.{module}",
        "class_name": class_name,
        "config": {"name": name, "trainable": True, "dtype": _FLOAT32, **config},
        "registered_name": f"keras_hub>{class_name}",
    }
