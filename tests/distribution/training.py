"""The training that all programs of this folder compare: recipe, mixed batches, resuming."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_vit
from keras_vit import training
from keras_vit.data import Augmentation, from_arrays
from keras_vit.distribution.processes import whole
from tests.runs import THOROUGH

SIZES = {
    "image_size": 8,
    "patch_size": 4,
    "hidden_size": 16,
    "mlp_dim": 32,
    "num_heads": 4,
    "num_layers": 1,
    "num_classes": 3,
}
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 8, 8, 3), "uint8")
LABELS = np.arange(20) % 3
RECIPES = ("SGD, accumulated, averaged", "AdamW", *(("SGD",) if THOROUGH else ()))
"""Those that the two replicas of TensorFlow are compared by."""
EPOCHS, STEPS_PER_EPOCH, BATCH_SIZE = 5, 10, 8
COUNTS = (1, 9) if THOROUGH else (9,)
"""Numbers of images for which one device and several are compared."""


class Trained(NamedTuple):
    """The loss of every batch, and all weights and optimizer variables, after a training."""

    shard: tuple[int, int]
    losses: list[float]
    variables: list[np.ndarray]


class StoppedError(Exception):
    """The training was to stop here."""


def make_model(seed: int = 1, **fields: Any) -> keras_vit.VisionTransformer:
    """A small model with the same random weights in every call."""
    model = keras_vit.VisionTransformer(**{**SIZES, **fields}, name="vit")
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(0.3 * rng.standard_normal(weight.shape))
    return model


def trained(
    folder: Path | None = None,
    shard: tuple[int, int] | None = None,
    *,
    seed: int = 1,
    connect: Callable[[Any], object] = lambda model: None,
    on_batch: Callable[[int], object] = lambda batch: None,
    stop_after: int | None = None,
    epochs: int = EPOCHS,
    steps_per_epoch: int = STEPS_PER_EPOCH,
) -> Trained:
    """Trains by the recipe: clipped gradients, two batches per update, and a moving average.

    Raises:
        StoppedError: the epoch `stop_after` has ended.
    """
    model = make_model(seed)
    recipe = training.TransferRecipe(
        epochs * steps_per_epoch // 2,
        2 * BATCH_SIZE,
        learning_rate=0.1,
        clip_norm=0.1,
        accumulate=2,
        ema=0.5,
        one_hot=True,
        steps_per_epoch=steps_per_epoch,
    )
    model.compile(**recipe.compile_args(model))
    data = from_arrays(
        IMAGES,
        LABELS,
        model,
        BATCH_SIZE,
        augmentation=Augmentation(crop=None, mixup=0.3, cutmix=1.0),
        steps_per_epoch=steps_per_epoch,
        shard=shard,
    )
    connect(model)
    losses: list[float] = []

    def batch_ended(batch: int, logs: Any) -> None:
        losses.append(float(logs["loss"]))
        on_batch(batch)

    def epoch_ended(epoch: int, logs: Any) -> None:
        if epoch == stop_after:
            raise StoppedError

    fit = recipe.fit_args(model)
    callbacks = [
        *fit.pop("callbacks"),
        keras.callbacks.LambdaCallback(on_train_batch_end=batch_ended, on_epoch_end=epoch_ended),
    ]
    if folder is not None:
        resume = training.Resume(folder, data)
        callbacks.append(resume)
        fit["initial_epoch"] = resume.epoch
    model.fit(data, shuffle=False, verbose=0, callbacks=callbacks, **fit)
    variables = [*model.weights, *model.optimizer.variables]
    return Trained(data.shard, losses, [np.array(whole(v), "float64") for v in variables])


def stopped(folder: Path, **options: Any) -> list[str]:
    """Ends a training in its second epoch, as a kill would; returns the files of its state."""
    try:
        trained(folder, stop_after=1, **options)
    except StoppedError:
        return sorted(path.name for path in folder.iterdir())
    raise AssertionError("The training was to stop.")


def losses_of_fit(model: Any, recipe: Any, images: Any, labels: Any, steps: int) -> list[float]:
    """Fits `2 * steps` batches of the 16 images by a recipe; returns the loss of each batch."""
    losses: list[float] = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"]))
    )
    fit = recipe.fit_args(model)
    fit["callbacks"].append(watch)
    rows = np.arange(16 * 2 * steps) % 16
    model.fit(images[rows], labels[rows], batch_size=16, shuffle=False, verbose=0, **fit)
    return losses


def trained_on_whole_passes(
    connect: Callable[[Any], object] = lambda model: None, shard: tuple[int, int] | None = None
) -> list[np.ndarray]:
    """The weights and the scores of the validation, where the last batch has 3 of 8 images."""
    model = make_model()
    data = from_arrays(
        IMAGES[:19], LABELS[:19], model, 8, augmentation=Augmentation(mixup=0.3), shard=shard
    )
    validation = from_arrays(IMAGES[:19], LABELS[:19], model, 8, one_hot=True)
    recipe = training.TransferRecipe(
        6, 8, learning_rate=0.1, one_hot=True, steps_per_epoch=len(data)
    )
    model.compile(**recipe.compile_args(model))
    connect(model)
    # A strategy of TensorFlow reads a whole pass before the first epoch begins.
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: setattr(data, "epoch", epoch)
    )
    fit = {"shuffle": False, "verbose": 0, **recipe.fit_args(model)}
    fit["callbacks"] = [*fit["callbacks"], count]
    history = model.fit(data, validation_data=validation, **fit).history
    scores = keras_vit.evaluate(model, validation)
    assert scores.count == 19
    np.testing.assert_allclose(history["val_loss"][-1], scores.loss, rtol=1e-5)
    np.testing.assert_allclose(history["val_accuracy"][-1], scores.top1, rtol=1e-5)
    return [np.array(whole(v), "float64") for v in model.weights]


def distance(actual: Any, expected: Any) -> float:
    """The largest difference of two lists of arrays of the same shapes."""
    pairs = list(zip(actual, expected, strict=True))
    assert [np.shape(a) for a, _ in pairs] == [np.shape(b) for _, b in pairs]
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


def message(act: Callable[[], object]) -> str:
    """What a refusal says."""
    try:
        act()
    except keras_vit.KerasViTError as error:
        return str(error)
    return "no error"
