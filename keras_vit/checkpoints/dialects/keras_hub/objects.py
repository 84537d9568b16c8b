"""The form in which Keras serialises an object, as rows of a table."""

from typing import Any

from keras_vit.checkpoints.dialects.json_fields import JsonConstant, JsonNote, JsonTable, Row

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
    form = serialised(module, class_name, {})
    inner = form.pop("config")
    return (
        JsonTable(file, _notes(form), at, **table),
        JsonTable(file, (*_notes(inner), *rows), (*at, "config"), **table),
    )


def _notes(content: dict[str, Any]) -> tuple[Row, ...]:
    """Returns the rows that write an object of Keras; reading compares the name of its class."""
    return tuple(_note(key, value) for key, value in content.items())


def _note(key: str, value: Any) -> Row:
    return JsonConstant(key, value) if key == "class_name" else JsonNote(key, value)


def serialised(module: str, class_name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the serialised form of an object with this `config`."""
    name = module.rpartition(".")[2]
    return {
        "module": f"keras_hub.src.models.{module}",
        "class_name": class_name,
        "config": {"name": name, "trainable": True, "dtype": _FLOAT32, **config},
        "registered_name": f"keras_hub>{class_name}",
    }
