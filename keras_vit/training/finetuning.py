"""`finetune`: trains a preset on a data set, as `keras-vit finetune` does."""

import dataclasses
import datetime
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import keras

from keras_vit.checkpoints import CheckpointInfo, Source, reading
from keras_vit.data import ImageData, ImageSource
from keras_vit.errors import ConfigError
from keras_vit.evaluation.thresholds import choose_thresholds
from keras_vit.images import Preprocessor
from keras_vit.images.class_names import expand, pair_names
from keras_vit.models.builders import Builder
from keras_vit.models.building import Building, Reading
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.support.arguments import check_training
from keras_vit.support.backend import require_training
from keras_vit.support.text import counted
from keras_vit.training.recipes import Recipe, TransferRecipe
from keras_vit.training.trainable import set_head_bias, zero_head
from keras_vit.training.training import BEST, LAST, TrainingResult, save_trained, train

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)

_EPOCHS = 20
"""Largest number of epochs that the steps are divided into; each epoch ends with a validation."""
_LEAST_STEPS = 10
"""Fewest steps of an epoch, unless there are fewer in all: a validation takes time too."""
_TIMED = 10
"""Number of batches after which the time of the training is estimated."""

_USUAL = TransferRecipe(steps=500, batch_size=64, learning_rate=0.01)


def finetune(
    source: str | os.PathLike[str] | Source | Builder,
    data: str | os.PathLike[str] | ImageSource,
    *,
    path: str | os.PathLike[str],
    recipe: Recipe = _USUAL,
    trainable: Callable[[VisionTransformer], object] | None = None,
    resume: bool = False,
    validation: float | str | os.PathLike[str] | None = 0.1,
    pixel_range: tuple[float, float] | None = None,
    progress: bool = False,
    read: Reading | None = None,
    **fields: Any,
) -> TrainingResult:
    """Fine-tunes a preset on labelled images by a recipe, and writes all results into one folder.

    The head of the preset is kept if the data have its task and its classes, by name; otherwise a
    head of zeros replaces it. `train` lists the files of the folder, and takes your own model, data
    and callbacks.

    Args:
        source: a source of `VisionTransformer.from_preset`; or a builder, such as
            `keras_vit.vit_ti16`, to train from random weights, mostly with an `AugregRecipe`.
        data: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`; or
            an `ImageSource`, which has further options, such as `task`. A multi-label preset gets
            decision thresholds by `choose_thresholds` on the validation images. For regression a
            new head starts at the mean of the targets, and the best preset is the one with the
            lowest loss; scale targets to about 1, because gradients are clipped.
        path: folder for the results; new, except with `resume`.
        recipe: steps, optimizer, augmentation and seed; by default 500 updates of 64 images at
            a rate of 0.01. Without `steps_per_epoch` the steps are divided into equal epochs: at
            most 20, each of 10 steps or more.
        trainable: function that chooses the trainable weights of the model, such as `train_head` or
            `lambda model: enable_lora(model, 8)`; None trains all weights.
        resume: whether to continue the training in `path`, which had the same arguments.
        validation: a fraction of the data, such as 0.1; another folder, or split of the data set;
            or None.
        pixel_range: values of black and white in images of more than 8 bits, see `Preprocessor`.
        progress: whether the plan, an estimate of the time after ten batches, and each epoch are
            printed.
        read: as for `VisionTransformer.from_preset`.
        **fields: its other arguments, such as `image_size`, `dtype` and `dropout_rate`; None for
            the preset's values.

    Raises:
        BackendError: the backend is OpenVINO, which computes no gradients.
        ConfigError: an argument is invalid; the message names it.
        PresetError: the preset does not exist.
        CheckpointError: the weights do not fit, or `path` holds another training.
    """
    require_training()
    data = as_source(data, fields, TransferRecipe)
    check_training(data.name, Path(path), resume=resume, validation=validation, **data.labels)
    fields = {k: v for k, v in {**fields, "read": read or None}.items() if v is not None}
    found, description = open_start(source, fields)
    description.config.refuse_map("finetune")
    recipe = divide_into_epochs(recipe)
    images, held_out = data.read_with_validation(
        dataclasses.replace(
            Preprocessor.from_description(description, fields.get("image_size")),
            pixel_range=pixel_range,
        ),
        validation,
        **recipe.data_args,
    )
    fields["task"] = task = images.task
    old = description.prediction
    is_same = old.task == task
    if old.is_binary or not is_same:  # the activation is that of the old head
        fields.setdefault("classifier_activation", None)
    # The head is kept if the data have exactly the classes, or the outputs, of the preset.
    names = expand(description.class_names or ())
    has_names = len(names) == images.num_classes and not pair_names(images.class_names, names)[1]
    keeps_head = found is not None and has_names and is_same and not old.is_binary
    if keeps_head:
        images = images.with_class_names(names)
        held_out = held_out and held_out.with_class_names(names)
    fields |= {"num_classes": images.num_classes, "class_names": images.class_names}
    keras.utils.set_random_seed(recipe.seed % 2**32)  # Keras takes no larger one
    model = build_start(found, description, fields)
    if found is not None and not keeps_head:
        zero_head(model)
    if task == "regression" and not keeps_head:
        set_head_bias(model, images.labels.mean(axis=0))
    if trainable is not None:
        trainable(model)
    if progress:
        _show_plan(model, images, held_out, recipe, keeps_head)
    history = train(
        model,
        images,
        held_out,
        recipe=recipe,
        path=path,
        resume=resume,
        **choose_output(progress),
    )
    if task == "multi_label" and held_out is not None:
        best = VisionTransformer.from_preset(Path(path) / BEST, dtype=fields.get("dtype"))
        best.thresholds = choose_thresholds(best, held_out)
        save_trained(best, Path(path) / BEST)
    return TrainingResult(Path(path) / (LAST if held_out is None else BEST), history)


def as_source(data: Any, fields: dict[str, Any], recipe: type[Recipe]) -> ImageSource:
    """Returns the source of the data; refuses arguments of data and recipe among the fields."""
    for word in (field.name for field in dataclasses.fields(recipe)):
        if word in fields:
            call = f"recipe={recipe.__name__}(..., {word}=...)"
            raise ConfigError(f"{word}= is an argument of the recipe: {call}.")
    for word in ("num_classes", "class_names", "dense"):
        if word in fields:
            raise ConfigError(
                f"Omit {word}=: the head gets the classes of the data, and training without labels "
                "has no head. For segmentation and depth, fit a model of with_dense_head."
            )
    for word in (field.name for field in dataclasses.fields(ImageSource)):
        if word in fields and word != "name":  # the model's name
            raise ConfigError(
                f"{word}= is an argument of the data: give data=ImageSource(..., {word}=...)."
            )
    return data if isinstance(data, ImageSource) else ImageSource(data)


def count_epochs(steps: int) -> int:
    """Returns the number of epochs of equal length that have exactly these steps together."""
    most = max(1, min(_EPOCHS, steps // _LEAST_STEPS))
    return next(epochs for epochs in range(most, 0, -1) if steps % epochs == 0)


def divide_into_epochs(recipe: AnyRecipe) -> AnyRecipe:
    """Returns a recipe with equal epochs, unless it states the length of an epoch."""
    if recipe.steps_per_epoch is not None:
        return recipe
    length = recipe.steps // count_epochs(recipe.steps) * recipe.accumulate
    return recipe.replace(steps_per_epoch=length)


def choose_output(progress: bool) -> dict[str, Any]:
    """Returns the arguments of `train` for printing its progress, or for a silent training."""
    if not progress:
        return {"callbacks": (), "verbose": 0}
    return {"callbacks": [_Estimate()], "verbose": 1 if sys.stdout.isatty() else 2}


def open_start(
    source: Any, fields: dict[str, Any]
) -> tuple[Source | None, PresetConfig | CheckpointInfo]:
    """Returns the source of the weights, None for random weights, and its description."""
    if isinstance(source, Builder):
        return None, PresetConfig(source.config(fields.get("image_size", 224)))
    found = Source.parse(source)
    of_files = {k: v for k, v in fields.items() if k not in Building.__annotations__}
    return found, reading.info(found, **of_files)


def build_start(
    found: Source | None, description: PresetConfig | CheckpointInfo, fields: dict[str, Any]
) -> VisionTransformer:
    """Returns the model that a training starts from, see `open_start`."""
    if found is None:
        return VisionTransformer(description.config, protocol=description.protocol, **fields)
    return VisionTransformer.from_preset(found, **fields)


class _Estimate(keras.callbacks.Callback):
    """Estimates the remaining time after ten batches; the first compiles, and is not timed."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._timed = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._timed += 1
        if self._timed == 1:
            self._start = time.perf_counter()
        rest = (self.params["epochs"] - self._epoch) * self.params["steps"] - batch - 1
        if self._timed == _TIMED and rest:
            seconds = rest * (time.perf_counter() - self._start) / (_TIMED - 1)
            left = datetime.timedelta(seconds=math.ceil(seconds))
            print(f"\n{'time':<12} about {left} for {rest:,} more batches, plus validation")


def _show_plan(
    model: VisionTransformer,
    data: ImageData,
    validation: ImageData | None,
    recipe: Recipe,
    keeps_head: bool,
) -> None:
    size, is_regression = model.config.image_size, data.task == "regression"
    labels = "outputs" if is_regression else "classes"
    held_out = 0 if validation is None else validation.num_images
    learning = sum(math.prod(tuple(weight.shape)) for weight in model.trainable_weights)
    facts = {
        "model": f"{model.title}, {model.count_params():,} parameters, {learning:,} trainable",
        "images": f"{data.num_images:,} to train on, {held_out:,} to validate",
        labels: ", ".join(data.class_names) if is_regression else _counts_in_words(data),
        "pixels": "any size" if size is None else f"{size[0]} x {size[1]}",
        "steps": f"{recipe.steps:,} of {counted(recipe.batch_size, 'image')}; "
        f"batches in an epoch: {len(data):,}",
    }
    if data.unreadable:
        facts["skipped"] = f"{counted(len(data.unreadable), 'image')} that cannot be read"
    facts["head"] = f"of the preset, which has these {labels}" if keeps_head else "new"
    show_plan(facts)


def show_plan(facts: Mapping[str, str]) -> None:
    """Prints facts about a training, one per line."""
    for name, fact in facts.items():
        print(f"{name:<12} {fact}")


def _counts_in_words(data: ImageData) -> str:
    counts = sorted(data.class_counts.values())
    return f"{data.num_classes:,}, of {counts[0]:,} to {counts[-1]:,} images each"
