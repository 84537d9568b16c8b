"""How many of a user's images an artefact gets right, beside the model itself."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import ConfigError, nearest
from keras_vit.exporting.formats.base import Format
from keras_vit.exporting.inputs import graph_input, pictures
from keras_vit.exporting.plan import Plan

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Answers of an artefact and of its model to the same images.

    Args:
        images: number of them.
        right: whose most probable class is the given one, by the artefact.
        model_right: likewise by the model, in float32.
        same_class: to which both give the same class.
    """

    images: int
    right: int
    model_right: int
    same_class: int


def classes_of(
    model: "VisionTransformer", outputs: str, examples: tuple[Any, Sequence[int | str]]
) -> list[int]:
    """Returns the class numbers of examples, which have numbers or labels.

    Raises:
        ConfigError: the examples are no pair or empty, the export gives no classes, or a class is
            none of the model's.
    """
    if not (isinstance(examples, tuple) and len(examples) == 2):
        raise ConfigError(
            "examples: expected a tuple of images and their classes, found "
            f"{type(examples).__name__}."
        )
    if outputs == "features" or not model.config.has_one_prediction:
        raise ConfigError("examples are for exports with one prediction per image.")
    labels, found = list(model.labels or ()), []
    for name in examples[1]:
        if isinstance(name, str) and name in labels:
            found.append(labels.index(name))
        elif not isinstance(name, str) and 0 <= int(name) < model.config.num_classes:
            found.append(int(name))
        else:
            raise ConfigError(
                f"examples: {name!r} is no class of the model.{nearest(str(name), labels)}"
            )
    if not found:
        raise ConfigError("examples: expected at least one image with its class.")
    return found


def score(
    form: Format,
    plan: Plan,
    model: "VisionTransformer",
    examples: tuple[Any, list[int]],
    folder: Path,
) -> Accuracy:
    """Returns how many images the artefact of a folder and the model get right.

    Args:
        form: the format.
        plan: of the export.
        model: at the plan's size.
        examples: images of any kind that `model.preprocessor` takes, and their classes.
        folder: of the artefact.

    Raises:
        ConfigError: an image cannot be read, or there are not as many images as classes.
    """
    given, classes = examples
    run, preprocessor = form.open(folder, plan), model.preprocessor
    found, own = [], []
    for picture in pictures(preprocessor, given):
        batch = np.repeat(graph_input(preprocessor, plan, picture)[None], plan.batch or 1, axis=0)
        found.append(int(run(batch)[0].argmax()))
        prepared = preprocessor.stack([preprocessor.scale(preprocessor.resize(picture))])
        own.append(int(np.argmax(model.predict_on_batch(prepared)[0])))
    if len(found) != len(classes):
        raise ConfigError(f"examples: {len(found)} images, but {len(classes)} classes.")
    return Accuracy(
        images=len(found),
        right=sum(a == b for a, b in zip(found, classes, strict=True)),
        model_right=sum(a == b for a, b in zip(own, classes, strict=True)),
        same_class=sum(a == b for a, b in zip(found, own, strict=True)),
    )
