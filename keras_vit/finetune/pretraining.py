"""From the names of a published recipe and a data set to a trained model: `keras-vit pretrain`."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras

from keras_vit.data import ImageData
from keras_vit.data.by_name import training_and_validation
from keras_vit.environment.backend import require_training
from keras_vit.errors import ConfigError
from keras_vit.evaluation import Evaluation, evaluate
from keras_vit.finetune.published import Pretraining, pretraining_recipe, published_recipe
from keras_vit.finetune.recipes import Recipe
from keras_vit.finetune.training import LAST, check_out, train
from keras_vit.images import Preprocessor
from keras_vit.model import VisionTransformer
from keras_vit.sources.preset_config import PresetConfig
from keras_vit.variants import variant as variant_named


@dataclasses.dataclass(frozen=True)
class PretrainingPlan:
    """The data, model and settings of a pre-training, before its first step.

    Args:
        published: the recipe as its paper states it.
        model: the model, with fresh weights.
        data: the training data.
        validation: held-out data, or None.
        recipe: arguments of `compile` and `fit`.
        epochs: passes over the data.
    """

    published: Pretraining
    model: VisionTransformer
    data: ImageData
    validation: ImageData | None
    recipe: Recipe
    epochs: int


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """The results of a pre-training.

    Args:
        preset: folder of the model after the last update, which papers report.
        history: values of each epoch by name, from the first epoch on.
        evaluation: scores of that model on the held-out data; None without held-out data.
    """

    preset: Path
    history: dict[str, list[float]]
    evaluation: Evaluation | None


def pretrain(
    data: str | os.PathLike[str],
    recipe: str,
    *,
    out: str | os.PathLike[str],
    resume: bool = False,
    variant: str | None = None,
    epochs: int | None = None,
    split: str = "train",
    validation: float | str | os.PathLike[str] | None = 0.1,
    image_size: int | tuple[int, int] = 224,
    dtype: Any = None,
    batch_size: int | None = None,
    accumulate: int = 1,
    unreadable: str = "raise",
    seed: int = 0,
    announce: Callable[[PretrainingPlan], object] = lambda plan: None,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    verbose: Any = 0,
    fields: dict[str, Any] | None = None,
    **changes: Any,
) -> Pretrained:
    """Trains a fresh model by a published recipe, and scores it on held-out images.

    An epoch is one pass over the training data in full batches. `train` lists the files of the
    folder; its preset `last/` is the model that a paper would report.

    Args:
        data: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`.
        recipe: name in `PRETRAINING`, such as `"plain_s16_i1k"`, or in `augreg_search()`.
        out: folder for the results; new, except with `resume`.
        resume: whether to continue the training in `out`, which had the same arguments.
        variant: name of the model's builder; None for the first variant of the recipe.
        epochs: passes over the data; None for the longest training that the paper reports.
        split: split of a `tfds:` or `hf:` data set.
        validation: a share of the data, such as 0.1; another folder, or split of the data set;
            or None.
        image_size: pixels, an int or (height, width).
        dtype: a Keras dtype or policy, such as `"mixed_bfloat16"`.
        batch_size: images per weight update; None for the paper's number. The learning rate
            does not change with it: give `learning_rate` for a much smaller batch.
        accumulate: batches per weight update.
        unreadable: `"raise"`, or `"skip"` to leave out images that cannot be read.
        seed: seed of weights, order and augmentation.
        announce: called once, before the first step.
        callbacks, verbose: arguments of `fit`.
        fields: fields of `ViTConfig` in which the model differs from its variant, such as
            `{"patch_size": 4}` for small images.
        **changes: other arguments of `augreg_recipe`, such as `learning_rate` or `ema`.

    Raises:
        BackendError: the backend is OpenVINO, which computes no gradients.
        ConfigError: an argument is invalid; the message names it.
        CheckpointError: `out` holds another training.
    """
    require_training()
    check_out(Path(out), resume)  # before any data are read
    published = published_recipe(recipe)
    builder = variant_named(variant or published.variants[0])
    fields = {**published.fields, **(fields or {})}
    config = builder.config(image_size, 1, **fields)  # the number of classes is not known yet
    batch_size = batch_size or published.batch_size
    if accumulate < 1 or batch_size % accumulate:
        raise ConfigError(f"batch_size={batch_size} is not divisible by accumulate={accumulate}.")
    images, held_out = training_and_validation(
        data,
        Preprocessor.described(PresetConfig(config, published.protocol)),
        split=split,
        validation=validation,
        batch_size=batch_size // accumulate,
        augmentation=published.augmentation,
        one_hot=published.loss == "sigmoid" or changes.get("label_smoothing", 0) > 0,
        seed=seed,
        unreadable=unreadable,
    )
    images = images.in_epochs_of(max(1, round(images.num_images / images.batch_size)))
    epochs = epochs or max(published.epochs)
    keras.utils.set_random_seed(seed)
    model = builder(
        image_size,
        images.num_classes,
        labels=images.class_names,
        protocol=published.protocol,
        dtype=dtype,
        **fields,
    )
    chosen = pretraining_recipe(
        model,
        recipe,
        images.num_images,
        epochs,
        # A whole number of epochs, so that the schedule ends with the last of them.
        steps=max(1, len(images) * epochs // accumulate),
        batch_size=batch_size,
        accumulate=accumulate,
        one_hot=images.one_hot,
        steps_per_epoch=len(images),
        **changes,
    )
    announce(PretrainingPlan(published, model, images, held_out, chosen, epochs))
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
    scores = None if held_out is None else evaluate(model, held_out)
    return Pretrained(Path(out) / LAST, history, scores)
