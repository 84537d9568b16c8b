"""`train`: a complete training in one call, with a log, best and last preset, and resuming."""

import csv
import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import keras

from keras_vit.data.augmentation import find_augmentation
from keras_vit.data.inspection import describe_mismatch
from keras_vit.distribution.processes import process, process_group, write_on_first_process
from keras_vit.distribution.torchrun import ddp
from keras_vit.errors import ConfigError
from keras_vit.support.arguments import check_new
from keras_vit.support.files import failure_named, replace_file
from keras_vit.training.lora import merge_lora
from keras_vit.training.recipes import Recipe
from keras_vit.training.resume import Resume

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer

BEST, LAST = "best", "last"
"""Presets in the folder of a training."""


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """The results of `keras_vit.finetune` and `keras_vit.pretrain`.

    Args:
        path: folder of the preset: the best one after fine-tuning with validation, else the last.
        history: metrics of each epoch by name, from the first epoch on.
    """

    path: Path
    history: dict[str, list[float]]


def train(
    model: "VisionTransformer",
    data: Any,
    validation: Any = None,
    *,
    recipe: Recipe,
    path: str | os.PathLike[str],
    resume: bool = False,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    verbose: Any = "auto",
) -> dict[str, list[float]]:
    """Trains a model by a recipe, and writes all results into one folder.

    The folder `path` gets `log.csv` (one row per epoch), the presets `best/` (highest validation
    accuracy so far, `pr_auc` for a multi-label model, and then lowest loss) and `last/`, and
    `resume/`, from which an interrupted training resumes. A training without validation writes no
    `best/`. The provenance of a preset has source, data, recipe and scores, and that of the source
    as `base`.

    Args:
        model: the model, with the classes of the data.
        data: a `keras_vit.data.ImageData`.
        validation: an `ImageData` prepared for evaluation, or None.
        recipe: a `TransferRecipe`, an `AugregRecipe`, or another `Recipe`; the data decide its
            `one_hot`.
        path: folder for the results; new, except with `resume`.
        resume: whether to continue the training in `path`, which had the same arguments; a
            complete training is not continued.
        callbacks: further callbacks for `fit`.
        verbose: argument of `fit`.

    Returns:
        The history, `{name: value per epoch}`, from the first epoch on.

    Raises:
        ConfigError: the data do not fit the model or the recipe, or `path` is not empty and
            `resume` is False.
        CheckpointError: `path` holds another training.
        WriteError: the system refuses to write in `path`, or has no space left.
    """
    path = Path(path)
    write_on_first_process(lambda: check_new(path, resume), path)
    for part in (data, validation):
        if part is not None:
            part.check(model)
    recipe = dataclasses.replace(recipe, one_hot=data.one_hot)  # as mixup and cutmix make them
    _check_recipe(recipe, data, model)
    origin = describe_origin(model, data, recipe) | {"classes": data.num_classes}
    best = _BestPreset(path / BEST, origin)
    # The best preset comes first, because at the end of a validation callbacks of the recipe
    # remove the averaged weights from the model.
    history = fit_in(path, model, data, recipe, callbacks, verbose, validation, [best])
    scores = {k.removeprefix("val_"): v[-1] for k, v in history.items() if k[:4] == "val_"}
    state_origin(model, origin, validation=scores)
    save_trained(model, path / LAST)
    return history


def fit_in(
    path: Path,
    model: Any,
    data: Any,
    recipe: Recipe,
    callbacks: Iterable[keras.callbacks.Callback],
    verbose: Any,
    validation: Any = None,
    resumed: Sequence[keras.callbacks.Callback] = (),
) -> dict[str, list[float]]:
    """Compiles and fits a model by a recipe, with the log and the state in a folder.

    Args:
        path: the folder.
        model, data, recipe, verbose, validation: as for `train`; or a `SelfSupervised` and its
            data and recipe.
        callbacks: callbacks after those of the recipe.
        resumed: callbacks before those of the recipe, whose state is saved too.

    Returns:
        The history, `{name: value per epoch}`, from the first epoch on.
    """
    fit = recipe.fit_args(model)
    kept = [*resumed, *fit.pop("callbacks")]
    compile_args = recipe.compile_args(model)  # refuses a recipe before the folder is made
    write_on_first_process(lambda: _make(path), path)
    # Of several processes the first writes.
    log = [_CsvLog(path / "log.csv")] if process()[0] == 0 else []
    model.compile(**compile_args)
    if keras.backend.backend() == "torch" and process()[1] > 1:
        ddp(model)
    continued = Resume(path / "resume", data, kept)
    history = model.fit(
        data,
        validation_data=validation,
        shuffle=False,  # ImageData shuffles by itself, repeatably
        verbose=verbose,
        initial_epoch=continued.epoch,
        callbacks=[*kept, *log, *callbacks, continued],
        **fit,
    )
    found: dict[str, list[float]] = history.history
    return found


def describe_origin(model: "VisionTransformer", data: Any, recipe: Recipe) -> dict[str, Any]:
    """Returns the facts of a training for the provenance of its presets, as plain JSON types."""
    return {
        "source": model.title,
        "data": Path(data.name).name if Path(data.name).is_dir() else data.name,
        "images": data.num_images,
        "recipe": {name: value for name, value in recipe.settings.items() if value is not None},
        "base": dict(model.provenance),
    }


def state_origin(model: "VisionTransformer", origin: dict[str, Any], **measured: Any) -> None:
    """Replaces the provenance of a model by the origin of its weights and its measured scores."""
    for name, values in measured.items():
        measured[name] = {key: float(value) for key, value in values.items()}
    facts = {name: fact for name, fact in {**origin, **measured}.items() if fact}
    model.provenance = MappingProxyType(facts)


def _make(path: Path) -> None:
    with failure_named(path):
        path.mkdir(parents=True, exist_ok=True)


class _CsvLog(keras.callbacks.Callback):
    """Writes the whole history as CSV, one row per epoch, with the learning rate.

    Each write replaces the whole file, and `Resume` restores the history. So the file of a resumed
    training has every row once; `keras.callbacks.CSVLogger` would append.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._write()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:  # as Keras's LearningRateScheduler does
            rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
            logs["learning_rate"] = float(rate)

    def on_train_end(self, logs: Any = None) -> None:
        self._write()

    def _write(self) -> None:
        history = self.model.history.history
        with replace_file(self.path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", "step", *history])
            for epoch, row in enumerate(zip(*history.values(), strict=True), start=1):
                writer.writerow([epoch, epoch * self.params["steps"], *row])


class _BestPreset(keras.callbacks.Callback):
    """Saves the preset with the best validation score, with the weights that were validated."""

    def __init__(self, folder: Path, origin: dict[str, Any]) -> None:
        super().__init__()
        self.folder, self.origin = folder, origin
        self.best_accuracy = -1.0
        self.best_loss = float("inf")

    def on_test_end(self, logs: Any = None) -> None:
        accuracy, loss = logs.get("pr_auc", logs.get("accuracy", 0.0)), logs["loss"]
        if (accuracy, -loss) > (self.best_accuracy, -self.best_loss):
            self.best_accuracy, self.best_loss = accuracy, loss
            state_origin(self.model, self.origin, validation=logs)
            save_trained(self.model, self.folder)


def save_trained(model: "VisionTransformer", folder: Path) -> None:
    """Writes a preset, with LoRA merged; of several processes the first writes."""
    adapted = any(weight.name.startswith("lora_kernel") for weight in model.weights)
    saved = merge_lora(model) if adapted else model
    if process_group()[1] > 1:
        saved.save_to_preset(folder)  # gathers the weights of all processes
    else:
        write_on_first_process(lambda: saved.save_to_preset(folder), folder)


def _check_recipe(recipe: Recipe, data: Any, model: "VisionTransformer") -> None:
    """Raises `ConfigError` if recipe, data and model were made for different labels or batches."""
    if data.task != model.task:
        raise ConfigError(f"The data do not fit: {describe_mismatch(model, data.task)}.")
    actual = {name: getattr(data, name, None) for name in recipe.data_args}
    actual["steps_per_epoch"] = len(data)
    stated = recipe.data_args
    expected = {**stated, "augmentation": find_augmentation(recipe.augmentation)}
    for name, value in expected.items():
        if stated[name] is not None and value != actual[name]:
            raise ConfigError(
                f"The recipe has {name}={value}, the data have {name}={actual[name]}; make the "
                "data by the recipe: from_folder(..., **recipe.data_args)."
            )
