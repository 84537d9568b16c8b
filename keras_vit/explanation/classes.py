"""The class of an explanation, and the model's output for it."""

from typing import Any

import keras
import numpy as np

from keras_vit.errors import ConfigError, nearest, shown
from keras_vit.graph import Stages
from keras_vit.inference import run
from keras_vit.model import VisionTransformer

Target = int | str | np.ndarray | None


def class_index(model: VisionTransformer, target: int | str) -> int:
    """Returns the index of a class that is given by index or label.

    A label is a label of the model, or one of the names in a label such as `"tench, Tinca tinca"`.
    A string of digits is an index if no label equals it.

    Raises:
        ConfigError: the model has no such class, or several classes with that name.
    """
    num_classes = model.config.num_classes
    if isinstance(target, str):
        labels = model.labels or ()
        matches = [k for k, label in enumerate(labels) if label == target]
        matches = matches or [k for k, label in enumerate(labels) if target in label.split(", ")]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ConfigError(
                f"target={shown(target)} names the classes {', '.join(map(str, matches))}. "
                "Give one of these numbers."
            )
        if not target.isdecimal() or len(target) >= 10:
            raise ConfigError(
                f"target={shown(target)} is no label of the model"
                f"{'' if labels else ', which has none'}.{nearest(target, labels)} "
                f"An index from 0 to {num_classes - 1} names a class too."
            )
        target = int(target)
    if isinstance(target, bool) or not isinstance(target, (int, np.integer)):
        raise ConfigError(f"target={shown(target)}: expected an index, a label or None.")
    if not 0 <= target < num_classes:
        raise ConfigError(
            f"target={shown(int(target))} is no class: the model has {num_classes}, "
            f"from 0 to {num_classes - 1}."
        )
    return int(target)


def choose_classes(
    model: VisionTransformer, images: np.ndarray, target: Target, batch_size: int
) -> np.ndarray:
    """Returns the class that is explained for each image, int32 `(batch,)`.

    Args:
        model: a model with one prediction per image.
        images: a float batch in the model's size and range.
        target: a class for all images, by index or label; an integer array `(batch,)` with one
            class per image; or None for the predicted class.
        batch_size: images per step.

    Raises:
        ConfigError: the model has no such class, or the numbers of classes and images differ.
    """
    config = model.config
    if not config.has_one_prediction:
        raise ConfigError(
            "An explanation of a class needs a model with one prediction per image; this model has "
            f"num_classes={config.num_classes} and classifier={config.classifier!r}."
        )
    if target is None:
        return run(model, images, batch_size=batch_size).argmax(-1).astype("int32")
    if isinstance(target, np.ndarray) and target.ndim:
        if target.shape != (len(images),):
            raise ConfigError(
                f"target has the shape {target.shape}, expected ({len(images)},): one class for "
                "each image."
            )
        return np.asarray([class_index(model, k) for k in target], "int32")
    target = target.item() if isinstance(target, np.ndarray) else target
    return np.full(len(images), class_index(model, target), "int32")


def score_classes(
    model: VisionTransformer, images: Any, chosen: Any, stages: Stages | None = None
) -> Any:
    """Returns the outputs of the chosen classes, float32 tensor `(batch,)`.

    Args:
        model: a model with one prediction per image.
        images: a tensor of images.
        chosen: one-hot classes, float32 `(batch, num_classes)`.
        stages: intermediate results to read and change, or None.

    Raises:
        ConfigError: a stage is the weights of an attention layer that the user has replaced.
    """
    further = {} if stages is None else {"stages": stages}
    outputs = keras.ops.cast(model(images, training=False, **further), "float32")
    return keras.ops.sum(outputs * chosen, axis=-1)


def black(model: VisionTransformer) -> np.ndarray:
    """Returns a black pixel in the model's range, to be broadcast over a batch of images."""
    mean, std = (np.atleast_1d(np.float32(x)) for x in model.preprocessor.normalisation)
    pixel = -mean / std if model.preprocessor.scaled else np.zeros_like(mean)
    return pixel if model.data_format == "channels_last" else pixel[:, None, None]
