"""From a preset and the name of a data set to a trained preset: `keras-vit finetune`."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras

from keras_vit.arguments import check_training
from keras_vit.checkpoints import CheckpointInfo, Source, inspect
from keras_vit.data import ImageData
from keras_vit.data.by_name import training_and_validation
from keras_vit.environment.backend import require_training
from keras_vit.evaluation.many_labels import choose_thresholds
from keras_vit.finetune.recipes import Recipe, augreg_recipe, transfer_recipe
from keras_vit.finetune.training import BEST, LAST, save_trained, train
from keras_vit.images import Preprocessor
from keras_vit.labels import expand
from keras_vit.model import VisionTransformer
from keras_vit.sources.preset_config import PresetConfig
from keras_vit.variants import variant

_EPOCHS = 20
"""Most epochs that the steps are divided into; each epoch ends with a validation."""
_LEAST_STEPS = 10
"""Fewest steps of an epoch, unless the training has fewer: a validation costs as much as some."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The data, model and settings of a fine-tuning, before its first step.

    Args:
        model: the model, ready to train.
        data: the training data.
        validation: held-out data, or None.
        recipe: arguments of `compile` and `fit`.
        keeps_head: whether the data have the classes of the preset, so that its head stays.
    """

    model: VisionTransformer
    data: ImageData
    validation: ImageData | None
    recipe: Recipe
    keeps_head: bool


@dataclasses.dataclass(frozen=True)
class Finetuned:
    """The results of a fine-tuning.

    Args:
        preset: folder of the best preset, or of the last preset without validation.
        history: values of each epoch by name, from the first epoch on.
    """

    preset: Path
    history: dict[str, list[float]]


def finetune_preset(
    preset: str | os.PathLike[str] | Source,
    data: str | os.PathLike[str],
    *,
    labels: str | None = None,
    multi_label: bool = False,
    out: str | os.PathLike[str],
    resume: bool = False,
    from_scratch: bool = False,
    split: str = "train",
    validation: float | str | os.PathLike[str] | None = 0.1,
    image_size: int | tuple[int, int] | None = None,
    dtype: Any = None,
    dropout_rate: float | None = None,
    steps: int = 500,
    batch_size: int = 64,
    accumulate: int = 1,
    augmentation: str | None = None,
    label_smoothing: float = 0.0,
    unreadable: str = "raise",
    seed: int = 0,
    announce: Callable[[Plan], object] = lambda plan: None,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    verbose: Any = 0,
    **recipe: Any,
) -> Finetuned:
    """Trains a preset on images by the paper's recipe, and writes all results into one folder.

    The head of the preset stays if the data have its classes, in its order; for other data a
    head of zeros replaces it. `train` lists the files of the folder.

    Args:
        preset: a source of `VisionTransformer.from_preset`; with `from_scratch` a variant's name.
        data: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`.
        labels: a CSV or JSON table of the labels of a folder, see `keras_vit.data.from_folder`; or
            the name of the feature or column of labels.
        multi_label: whether images have many labels. The best preset then has a threshold for each
            class, by `choose_thresholds` on the validation images.
        out: folder for the results; new, except with `resume`.
        resume: whether to continue the training in `out`, which had the same arguments.
        from_scratch: whether to train fresh weights, by the recipe of AugReg.
        split: split of a `tfds:` or `hf:` data set.
        validation: a share of the data, such as 0.1; another folder, or split of the data set;
            or None.
        image_size: pixels, an int or (height, width); None for the preset's size.
        dtype: a Keras dtype or policy, such as `"mixed_bfloat16"`.
        dropout_rate: dropout of the model; None for the preset's rate.
        steps, batch_size, accumulate: weight updates, images per update, batches per update.
        augmentation: a name in `AUGREG`, such as `"light1"`; None does not change images.
        label_smoothing: share of the label that is divided among all classes.
        unreadable: `"raise"`, or `"skip"` to leave out images that cannot be read.
        seed: seed of weights, order and augmentation.
        announce: called once, before the first step.
        callbacks, verbose: arguments of `fit`.
        **recipe: other arguments of `transfer_recipe`, or of `augreg_recipe` with `from_scratch`.
            The default learning rate is 0.01, and 0.001 from scratch or with Muon.

    Raises:
        BackendError: the backend is OpenVINO, which computes no gradients.
        ConfigError: an argument is invalid; the message names it.
        PresetError: the preset does not exist.
        CheckpointError: the weights do not fit, or `out` holds another training.
    """
    require_training()
    check_training(
        data, Path(out), resume=resume, split=split, validation=validation, labels=labels
    )
    source, description = _start(preset, from_scratch, image_size)
    images, held_out = training_and_validation(
        data,
        Preprocessor.from_description(description, image_size),
        split=split,
        validation=validation,
        labels=labels,
        multi_label=multi_label,
        batch_size=batch_size // accumulate or 1,
        steps_per_epoch=accumulate * max(1, min(steps, max(_LEAST_STEPS, steps // _EPOCHS))),
        augmentation=augmentation,
        one_hot=label_smoothing > 0 or multi_label,
        seed=seed,
        unreadable=unreadable,
    )
    fields: dict[str, Any] = {"image_size": image_size, "dropout_rate": dropout_rate}
    fields = {name: value for name, value in fields.items() if value is not None}
    fields |= {"num_classes": images.num_classes, "labels": images.class_names, "dtype": dtype}
    common: dict[str, Any] = {
        "one_hot": images.one_hot,
        "multi_label": multi_label,
        "steps_per_epoch": len(images),
        "label_smoothing": label_smoothing,
        "accumulate": accumulate,
    }
    # The head stays if the data have exactly the classes of the preset.
    keeps_head = source is not None and expand(description.labels or ()) == images.class_names

    keras.utils.set_random_seed(seed % 2**32)  # Keras takes no larger one
    if source is None:
        model = VisionTransformer(description.config, protocol=description.protocol, **fields)
        loss = "sigmoid" if multi_label else "softmax"
        chosen = augreg_recipe(model, steps, batch_size, loss=loss, **common, **recipe)
    else:
        model = VisionTransformer.from_preset(source, **fields)
        usual = {} if recipe.get("optimizer") == "muon" else {"learning_rate": 0.01}
        options = {**usual, **common, **recipe, "new_head": not keeps_head}
        chosen = transfer_recipe(model, steps, batch_size, **options)
    announce(Plan(model, images, held_out, chosen, keeps_head))
    history = train(
        model,
        images,
        held_out,
        recipe=chosen,
        out=out,
        resume=resume,
        callbacks=callbacks,
        verbose=verbose,
    )
    if multi_label and held_out is not None:
        best = VisionTransformer.from_preset(Path(out) / BEST, dtype=dtype)
        best.thresholds = choose_thresholds(best, held_out)
        save_trained(best, Path(out) / BEST)
    return Finetuned(Path(out) / (LAST if held_out is None else BEST), history)


def _start(
    preset: Any, from_scratch: bool, image_size: Any
) -> tuple[Source | None, PresetConfig | CheckpointInfo]:
    """Returns the source of the weights, None for fresh weights, and its description."""
    if from_scratch:
        return None, PresetConfig(variant(str(preset)).config(image_size or 224))
    source = Source.of(preset)
    fields = {} if image_size is None else {"image_size": image_size}
    return source, inspect(source, **fields)
