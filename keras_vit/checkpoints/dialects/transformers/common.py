"""Rows of `config.json` and limits that families of transformers share, such as `hidden_size`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Identity,
    Limits,
    Names,
    one_of_several,
)
from keras_vit.checkpoints.dialects.dinov3_rows import ACTIVATIONS
from keras_vit.checkpoints.dialects.json_fields import (
    LEFT_OUT,
    SIDES,
    Codec,
    Facts,
    Json,
    JsonField,
    JsonFields,
    JsonTable,
    Row,
    constant,
    names_by_number,
    note,
    object_at,
    one_of,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.torch_conventions import (
    POSITIONS_OF_ANOTHER_GRID,
    stored_image_size,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.errors import shown
from keras_vit.support.text import log


def classifier_names(implies: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Names]:
    """Returns the names of the head of a class for image classification.

    Args:
        implies: facts about a file with this head.
    """
    head = {"name": "classifier", "implies": implies, "outside": True}
    return TORCH.names({"head": head})


def _number(k: int) -> str:
    return f"LABEL_{k}"


def _names(facts: Facts) -> Any:
    names = facts.class_names or tuple(map(_number, range(facts.config.num_classes)))
    return {str(k): name for k, name in enumerate(names)} or LEFT_OUT


def _numbers(facts: Facts) -> Any:
    names = _names(facts)
    return names if names is LEFT_OUT else {name: int(k) for k, name in names.items()}


def _labels(id2label: Any) -> tuple[str, ...] | None:
    """Returns the names of the classes; None for transformers' defaults LABEL_0, LABEL_1, ...

    Names that do not number all classes are left out, since no answer depends on them.
    """
    try:
        class_names = names_by_number(id2label or {})
    except ValueError as reason:
        said = shown(str(reason), 400, quoted=False)
        log.warning("config.json has id2label %s. The classes have no names.", said)
        return None
    return class_names if any(label != _number(k) for k, label in enumerate(class_names)) else None


def _image_size(facts: Facts) -> Any:
    """Returns the size of the stored positions."""
    config = facts.config
    if config.position_grid is not None:
        config = config.replace(image_size=None)
    return SIDES.write(stored_image_size(config))


ACTIVATION_OF_CLIP = {
    "block.activation": "'quick_gelu' in the weights of OpenAI, MetaCLIP and DFN, 'gelu' in those "
    "of LAION and DataComp"
}
"""Fields that CLIP's arrays do not tell, and their values in published weights."""

IMAGE_SIZE = JsonField("image_size", "image_size", write=_image_size)

_TASKS = one_of(
    {
        "single_label_classification": "single_label",
        "multi_label_classification": "multi_label",
        "regression": "regression",
    }
)


def _read_task(content: Json) -> dict[str, Any]:
    """Returns what the head predicts; without a word, the loss of transformers decides.

    That loss is then mean squared error for a single output, and a cross-entropy for several
    (`ForSequenceClassificationLoss`, which its image classifiers share).
    """
    problem, class_names = content.get("problem_type"), content.get("id2label")
    if problem is None:
        is_single = isinstance(class_names, Mapping) and len(class_names) == 1
        problem = "regression" if is_single else "single_label_classification"
    return {"task": _TASKS.read(problem)}


def _write_task(facts: Facts) -> Any:
    """Returns the value of the key, which is left out where transformers reads the same without."""
    return LEFT_OUT if facts.task == "single_label" else _TASKS.write(facts.task)


LABEL_ROWS: tuple[Row, ...] = (
    JsonField("id2label", "class_names", Codec(list, _labels), write=_names),
    note("label2id", _numbers),
    JsonFields(("problem_type",), ("task",), _read_task),
    note("problem_type", _write_task),
)


def architectures(classifier: str | None, model: str) -> JsonField:
    """Returns the row with the class by which transformers loads the files.

    Args:
        classifier: name of the class for a model with a head; that of two heads ends in
            `WithTeacher`.
        model: name of the class for a model without a head.
    """

    def name(facts: Facts) -> list[str]:
        teacher = "WithTeacher" if facts.config.has_two_heads else ""
        return [f"{classifier}{teacher}" if classifier and facts.config.num_classes else model]

    return note("architectures", name)


def size_rows(mlp_dim: bool = True) -> tuple[Row, ...]:
    """Returns the rows of the sizes, whose keys all families share.

    Args:
        mlp_dim: whether the family states the width of the MLP as `intermediate_size`.
    """
    width: tuple[Row, ...] = (JsonField("intermediate_size", "mlp_dim"),) if mlp_dim else ()
    return (
        JsonField("hidden_size", "hidden_size"),
        *width,
        JsonField("num_attention_heads", "num_heads"),
        JsonField("num_hidden_layers", "num_layers"),
        JsonField("num_channels", "channels", default=3),
        IMAGE_SIZE,
        JsonField("patch_size", "patch_size", SIDES),
    )


def arithmetic_rows(activation: str, epsilon: float) -> tuple[Row, ...]:
    """Returns the rows of the activation and of LayerNorm's epsilon.

    Args:
        activation, epsilon: values of `hidden_act` and `layer_norm_eps` where the keys are absent.
    """
    return (
        JsonField("hidden_act", "block.activation", one_of(ACTIVATIONS), default=activation),
        JsonField("layer_norm_eps", "block.epsilon", default=epsilon),
    )


def tower_rows(activation: str, epsilon: float) -> tuple[Row, ...]:
    """Returns the rows of a vision tower; arguments as of `arithmetic_rows`."""
    return (
        *size_rows(),
        *arithmetic_rows(activation, epsilon),
        JsonField("attention_dropout", "attention_dropout_rate"),
    )


def tower_sizes(
    width: int, mlp_dim: int, num_layers: int, num_heads: int, pixels: int, patch: int
) -> dict[str, int]:
    """Returns the sizes that config.json of a vision tower may omit, by their keys."""
    return {
        "hidden_size": width,
        "intermediate_size": mlp_dim,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "image_size": pixels,
        "patch_size": patch,
    }


SQUARE_ALONE: Limits = {
    "patches or images that are not square": "patch_size!=square or source_grid!=square",
}
"""The limit of classes that divide `image_size` by `patch_size` as integers."""

DROPOUT_ROWS: tuple[Row, ...] = (
    JsonField("hidden_dropout_prob", "dropout_rate"),
    JsonField("attention_probs_dropout_prob", "attention_dropout_rate"),
)


def dialect(
    model_type: str,
    words: Mapping[str, Names],
    rows: tuple[Row, ...],
    *,
    name: str = "",
    prefix: str = "",
    sizes: Json = MappingProxyType({}),
    epsilon: float = 1e-6,
    activation: str = "gelu",
    resize: str = "bicubic",
    poolings: tuple[str, ...] = ("token",),
    positions: tuple[str, ...] = ("learned",),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a class of transformers, or of a family of them.

    Args:
        model_type: the family's word in config.json.
        words: names of the weights.
        rows: rows of config.json beside `model_type`.
        name: name of the dialect behind `transformers/`; `""` for `model_type`.
        prefix: prefix of the names in files with a head; files without a head have none, and both
            are read with and without it.
        sizes: values of keys that config.json may lack.
        epsilon, activation, resize: the arithmetic of the family: LayerNorm's epsilon, the
            activation, and the way to resize positions.
        poolings, positions: the poolings and the kinds of positions that the family has;
            where it has several, its rows or the names of its weights state one of them.
        **more: further fields of `Dialect`; `fields` and `impossible` are added to those that follow
            from the arguments.
    """
    fields: dict[str, Any] = {} if len(positions) > 1 else {"position": positions[0]}
    if len(poolings) == 1:
        fields["pool.kind"] = poolings[0]
    if "class_tokens/tokens" not in words:
        fields["tokens.class_tokens"] = int("class_token/token" in words)
    own: dict[str, Any] = {
        "identity": Identity("model_type", (model_type,)),
        "json": (
            JsonTable(
                "config.json",
                (constant("model_type", model_type), *rows),
                assumed=lambda content: {**sizes, **object_at(content, ("rope_parameters",))},
            ),
        ),
        "prefixes": (prefix, "") if prefix else ("",),
        "prefix_for": lambda config: prefix if config.num_classes else "",
        "expresses": ("block.activation", "block.epsilon", "position_resize"),
        "images": processor,
        **more,
        "fields": {**fields, **more.get("fields", {})},
    }
    resizes = own["images"].image_size is not None
    own["impossible"] = {
        **one_of_several("pool.kind", *poolings),
        **one_of_several("position", *positions),
        **({} if resizes else POSITIONS_OF_ANOTHER_GRID),
        **more.get("impossible", {}),
    }
    return Dialect(
        name=f"transformers/{name or model_type}",
        library="transformers",
        words=words,
        arithmetic={
            "block.activation": activation,
            "block.epsilon": epsilon,
            "position_resize": resize,
        },
        metadata={"format": "pt"},
        **own,
    )
