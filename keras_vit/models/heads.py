"""Gives a model a new head: from a Keras `Dense` layer, a file or text embeddings, or untrained."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.config import DenseHead, Task
from keras_vit.config.prediction import DENSE_TASKS
from keras_vit.config.rules import choice
from keras_vit.errors import CheckpointError, ConfigError, shown
from keras_vit.images.class_names import ClassNames
from keras_vit.images.inputs import as_array
from keras_vit.layers import blank_weights
from keras_vit.support.text import counted


def with_head(
    model: Any, head: keras.layers.Dense, class_names: ClassNames | None, task: Task
) -> Any:
    """Returns a copy of a model with the weights of a layer as its head; see the model's method.

    Raises:
        ConfigError: as `VisionTransformer.with_head`.
    """
    if type(head) is not keras.layers.Dense or not head.built:
        raise ConfigError(
            f"with_head takes a keras.layers.Dense that was called or built, found {head!r}. With "
            "another head, keep the plain keras.Model: save it as a .keras file, and prepare "
            "its images with model.preprocessor."
        )
    activation = keras.activations.serialize(head.activation)
    activation = None if activation == "linear" else activation
    is_multi_label = task == "single_label" and activation == "sigmoid" and head.units > 1
    fields = {
        "classifier_activation": activation,
        "task": "multi_label" if is_multi_label else task,
    }
    bias = np.zeros(head.units) if head.bias is None else head.bias
    return copy_with_head(model, head.kernel, bias, class_names, fields)


def with_stored_head(
    model: Any, arrays: Mapping[str, Any], path: Any, class_names: ClassNames | None, task: Task
) -> Any:
    """Returns a copy of a model with the linear head of a file; see `with_head` of the model.

    Args:
        model: a `VisionTransformer`.
        arrays: the arrays of the file by name.
        path: path of the file, for messages.
        class_names: one name per class, or None.
        task: what the head predicts.

    Raises:
        CheckpointError: as `VisionTransformer.with_head`.
    """
    shapes = {name: arrays[name].shape for name in ("weight", "bias") if name in arrays}
    weight = shapes.get("weight", ())
    if len(weight) != 2 or 0 in weight or shapes != {"weight": weight, "bias": weight[:1]}:
        raise CheckpointError(
            f"{path}: expected a linear head, weight (classes, width) and bias (classes,); found "
            f"{shown(shapes or sorted(arrays)[:5], quoted=False)}."
        )
    config, width = model.config, _read_width(model)
    fields: dict[str, Any] = {"task": task}
    has_both = (
        config.pool.kind in ("token", "gap", "mean", "token_and_mean")
        and config.tokens.class_tokens
        and config.pool.norm != "after"
        and config.representation_size is None
        and config.projection_size is None
    )
    blocks = {2 * config.hidden_size: 1, 5 * config.hidden_size: 4}.get(weight[1], 0)
    if has_both and 0 < blocks <= config.num_layers:
        fields["pool"] = config.pool.replace(kind="token_and_mean", blocks=blocks).to_dict()
    elif weight[1] != width or not config.is_pooled:
        raise CheckpointError(
            f"{path}: the head takes vectors of width {weight[1]}; the pre_logits of this model "
            f"have {width} and pool.kind={config.pool.kind!r}. It belongs to another encoder."
        )
    return copy_with_head(model, arrays["weight"].T, arrays["bias"], class_names, fields)


def head_from_embeddings(
    model: Any,
    embeddings: Any,
    class_names: Sequence[str] | None,
    scale: float | None,
    bias: float | None,
) -> Any:
    """Returns a copy of a model as a zero-shot classifier; see the model's method.

    Raises:
        ConfigError: as `VisionTransformer.head_from_embeddings`.
    """
    vectors, class_names = _read_embeddings(embeddings, class_names)
    width = _read_width(model)
    rows = []
    for label, texts in zip(class_names, vectors, strict=True):
        if texts.shape[-1] != width or texts.ndim != 2 or not texts.size:
            raise ConfigError(
                f"The embedding of {shown(label)} has shape {texts.shape}, expected (texts, "
                f"{width}): the pre_logits of this model have width {width}. Embed the texts with "
                "the text tower that was trained with this model, including its projection."
            )
        lengths = np.linalg.norm(texts, axis=-1, keepdims=True)
        mean = (texts / np.where(lengths > 0, lengths, np.nan)).mean(axis=0)
        length = np.linalg.norm(mean)
        if not length > 0:  # also NaN
            raise ConfigError(f"The embedding of {shown(label)} is zero or not finite.")
        rows.append(mean / length)
    scale = model.provenance.get("logit_scale") if scale is None else scale
    bias = model.provenance.get("logit_bias", 0.0) if bias is None else bias
    if scale is None or not np.isfinite([scale, bias]).all():
        raise ConfigError(
            f"scale={scale!r}, bias={bias!r}: expected numbers. The weights were loaded without a "
            "logit_scale; give the temperature, exp(logit_scale), of the file with both towers: "
            "100 for OpenAI's CLIP."
        )
    kernel, biases = scale * np.stack(rows, axis=1), np.full(len(rows), bias)
    return copy_with_head(model, kernel, biases, tuple(class_names), {"head": "cosine"})


def _read_embeddings(
    embeddings: Any, class_names: Sequence[str] | None
) -> tuple[list[np.ndarray], list[str]]:
    """Returns the embeddings `(texts, width)` of each class in float64, and the labels."""
    if isinstance(embeddings, Mapping):
        names = list(embeddings) if class_names is None else list(class_names)
        if set(names) != set(embeddings):
            odd = sorted(set(names) ^ set(embeddings))
            raise ConfigError(f"class_names and embeddings differ in {shown(odd, quoted=False)}.")
        embeddings = [embeddings[name] for name in names]
    elif class_names is None:
        raise ConfigError("embeddings is an array: give class_names, one name per row.")
    else:
        names = list(class_names)
    try:
        vectors = [np.atleast_2d(as_array(each).astype("float64")) for each in embeddings]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"embeddings: expected vectors of numbers ({error}).") from error
    if len(vectors) != len(names) or len(set(names)) != len(names) or len(names) < 2:
        raise ConfigError(
            f"{len(vectors)} embeddings and {len(names)} class_names, {len(set(names))} of them "
            "different: expected two or more, with one name per embedding."
        )
    return vectors, names


def with_dense_head(
    model: Any, num_outputs: int, task: str, class_names: ClassNames | None, fields: dict[str, Any]
) -> Any:
    """Returns a copy of a model with a new dense head; see the model's method.

    Raises:
        ConfigError: as `VisionTransformer.with_dense_head`.
    """
    choice(*DENSE_TASKS).check("task", task)
    config, is_dpt = model.config, fields["kind"] == "dpt"
    blocks, width = config.num_layers, config.hidden_size
    if fields["stages"] is None:
        quarters = [max(blocks * k // 4, k) - 1 for k in (1, 2, 3, 4)]
        fields["stages"] = quarters if is_dpt else [blocks - 1]
    usual: dict[str, Any] = {"output": "logits" if task == "segmentation" else "exp"}
    if is_dpt:  # the sizes of Depth Anything
        usual |= {"widths": [max(width * k // 8, 1) for k in (1, 2, 4, 8)]}
        usual |= {"fusion_size": max(width // 12 * 2, 2)}
    head = DenseHead.read({**usual, **fields})
    if head.stages[-1] >= blocks:
        raise ConfigError(f"dense.stages={head.stages}: the model has {counted(blocks, 'block')}.")
    if head.task != task:
        raise ConfigError(f"output={head.output!r} is that of task={head.task!r}, found {task!r}.")
    own = {
        "num_layers": head.stages[-1] + 1,
        "num_classes": num_outputs,
        "class_names": class_names,
        "dense": head.to_dict(),
        "classifier_activation": None,
        **{"task": task, "thresholds": None, "head": "linear", "representation_size": None},
        "projection_size": None,
    }
    copy = type(model).from_config({**model.get_config(), **own, "trainable": True})
    _copy_weights(model, copy)
    for layer in copy.layers:  # frozen layers stay frozen, and the new head is trainable
        if layer.name != "head":
            source = model.get_layer(layer.name)
            layer.trainable = model.trainable and source.trainable
            for weight, own in zip(layer.weights, source.weights, strict=True):
                weight.trainable = model.trainable and own.trainable
    return copy


def copy_with_head(
    model: Any, kernel: Any, bias: Any, class_names: ClassNames | None, fields: dict[str, Any]
) -> Any:
    """Returns a copy of a model with its weights, changed fields, and another head.

    Activation, task, thresholds and the normalization of the pre_logits belong to the old head; the
    copy takes them from `fields`.

    Raises:
        ConfigError: the head does not fit the width of the pre_logits, reads every token, or reads
            a block that the model lacks.
    """
    of_head = {
        "num_classes": kernel.shape[-1],
        "class_names": class_names,
        "classifier_activation": None,
        "task": "single_label",
        "thresholds": None,
        "head": "linear",
    }
    _read_width(model)  # refuses a model of maps
    with blank_weights():
        copy = type(model).from_config({**model.get_config(), **of_head, **fields})
    config, width = copy.config, _read_width(copy)
    is_deeper = config.num_layers > model.config.num_layers
    if kernel.shape[0] != width or not config.is_pooled or is_deeper:
        raise ConfigError(
            f"The head takes vectors of width {kernel.shape[0]} after {config.num_layers} blocks; "
            f"the pre_logits of this model have {width} and pool.kind={config.pool.kind!r}, after "
            f"{model.config.num_layers} blocks. Use the model that the head was trained on."
        )
    _copy_weights(model, copy)
    # Two heads both get the layer: their mean is the layer at the mean of both tokens.
    heads = 2 if copy.config.has_two_heads else 1
    # Copies: JAX donates the memory of trained weights, which the caller's layer still uses.
    values = [np.array(keras.ops.convert_to_numpy(value)) for value in (kernel, bias)]
    copy.get_layer("head").set_weights(values * heads)
    return copy


def _read_width(model: Any) -> int:
    """Returns the width of the vectors that the head of a model reads.

    Raises:
        ConfigError: the model has a dense head.
    """
    if model.config.dense is not None:
        raise ConfigError(
            f"The head reads one vector per image; this model predicts a map ({model.task}). Use "
            "the model before with_dense_head."
        )
    width: int = model.get_layer("pre_logits").output.shape[-1]
    return width


def _copy_weights(model: Any, copy: Any) -> None:
    """Copies the weights of all layers except the head.

    Raises:
        ConfigError: the model has LoRA weights, which the copy lacks.
    """
    if any(weight.name.startswith("lora_") for weight in model.weights):
        raise ConfigError(
            "The model has LoRA weights. Use keras_vit.training.merge_lora(model) instead."
        )
    for layer in copy.layers:
        if layer.name != "head" and layer.weights:
            layer.set_weights(model.get_layer(layer.name).get_weights())
