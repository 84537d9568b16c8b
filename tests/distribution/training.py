"""The training and the functions that all programs of this folder compare."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit import training
from keras_vit.data import Augmentation, Views, from_arrays
from keras_vit.distribution.processes import whole
from keras_vit.models.inference import run
from tests.runs import THOROUGH, times

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
PREPARED = RNG.standard_normal((16, 8, 8, 3)).astype("float32")
LABELS = np.arange(20) % 3
RECIPE = {"learning_rate": 0.1, "clip_norm": 0.1, "accumulate": 2, "ema": 0.5}
LEJEPA: dict[str, Any] = {
    "kind": training.PretrainRecipe,
    "optimizer": "sgd",
    "views": Views(8, 4, local_views=1),
    "projector": (8, 4),
    "directions": 16,
}
EPOCHS, STEPS, BATCH_SIZE = 3, times(4, 10), 8
COUNTS = (1, 7, 8, 9) if THOROUGH else (9,)
"""Numbers of images for which one device and several are compared."""


WAYS = ("tensor", "fully sharded", "data")[: times(2, 3)]
"""How two processes of JAX divide a model and its batches."""


class Trained(NamedTuple):
    """The loss of every batch, and all weights and optimizer variables, after a training."""

    model: Any
    shard: tuple[int, int]
    losses: list[float]
    variables: list[np.ndarray]


class StoppedError(Exception):
    """The training was to stop here."""


def make_model(seed: int = 1, recipe: training.PretrainRecipe | None = None, **fields: Any) -> Any:
    """A small model, or one that trains without labels, with the same weights in every call."""
    model: Any = keras_vit.VisionTransformer(**{**SIZES, **fields}, name="vit")
    if recipe is not None:
        model = training.SelfSupervised(model, recipe.views, **recipe.loss_args, name="model")
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(0.3 * rng.standard_normal(weight.shape))
    return model


def compiled() -> keras_vit.VisionTransformer:
    """A small model with SGD."""
    model = make_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(training.LayerwiseSGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return model


def values(model: Any) -> list[np.ndarray]:
    """All weights and optimizer variables."""
    return [np.array(whole(v), "float64") for v in [*model.weights, *model.optimizer.variables]]


def counted(data: Any) -> keras.callbacks.Callback:
    """A strategy of TensorFlow reads a whole pass of the data before the first epoch begins."""
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: setattr(data, "epoch", epoch)
    )


def trained(
    folder: Path | None = None,
    shard: tuple[int, int] | None = None,
    *,
    seed: int = 1,
    connect: Callable[[Any], object] = lambda model: None,
    on_batch: Callable[[int], object] = lambda batch: None,
    stop_after: int | None = None,
    epochs: int = EPOCHS,
    kind: type[training.Recipe] = training.TransferRecipe,
    **options: Any,
) -> Trained:
    """Trains by the recipe: clipped gradients, two batches per update, and a moving average.

    Raises:
        StoppedError: the epoch `stop_after` has ended.
    """
    options = {**RECIPE, **options}
    count, labels = options["accumulate"], kind is not training.PretrainRecipe
    lengths = {"one_hot": labels, "steps_per_epoch": STEPS}
    recipe: Any = kind(epochs * STEPS // count, count * BATCH_SIZE, **options, **lengths)
    any_size = {"num_classes": 0, "image_size": (None, None)}
    model = make_model(seed) if labels else make_model(seed, recipe, **any_size)
    model.compile(**recipe.compile_args(model))
    augmentation = Augmentation(crop=None, mixup=0.3, cutmix=1.0) if labels else model.views
    how = {"augmentation": augmentation, "steps_per_epoch": STEPS, "shard": shard}
    data = from_arrays(IMAGES, LABELS, model if labels else model.encoder, BATCH_SIZE, **how)
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
        counted(data),
        keras.callbacks.LambdaCallback(on_train_batch_end=batch_ended, on_epoch_end=epoch_ended),
    ]
    if folder is not None:
        resume = training.Resume(folder, data)
        callbacks.append(resume)
        fit["initial_epoch"] = resume.epoch
    model.fit(data, shuffle=False, verbose=0, callbacks=callbacks, **fit)
    return Trained(model, data.shard, losses, values(model))


def stopped(folder: Path, **options: Any) -> list[str]:
    """Ends a training in its second epoch, as a kill would; returns the files of its state."""
    try:
        trained(folder, stop_after=1, **options)
    except StoppedError:
        return sorted(path.name for path in folder.iterdir())
    raise AssertionError("The training was to stop.")


def trained_on_whole_passes(
    connect: Callable[[Any], object] = lambda model: None, shard: tuple[int, int] | None = None
) -> list[np.ndarray]:
    """The weights and the scores of the validation, where the last batch has 3 of 8 images."""
    model, arrays = make_model(), (IMAGES[:19], LABELS[:19])
    data = from_arrays(*arrays, model, 8, augmentation=Augmentation(mixup=0.3), shard=shard)
    validation = from_arrays(*arrays, model, 8, one_hot=True)
    recipe = training.TransferRecipe(
        6, 8, learning_rate=0.1, one_hot=True, steps_per_epoch=len(data)
    )
    model.compile(**recipe.compile_args(model))
    connect(model)
    fit = {"shuffle": False, "verbose": 0, **recipe.fit_args(model)}
    fit["callbacks"] = [*fit["callbacks"], counted(data)]
    history = model.fit(data, validation_data=validation, **fit).history
    scores = keras_vit.evaluate(model, validation)
    assert scores.count == 19
    np.testing.assert_allclose(history["val_loss"][-1], scores.loss, rtol=1e-5)
    np.testing.assert_allclose(history["val_accuracy"][-1], scores.top1, rtol=1e-5)
    return values(model)[: len(model.weights)]


def outputs(model: Any, folder: Path) -> dict[str, list[np.ndarray]]:
    """What each function that runs a model gives for the same images in every process.

    Args:
        folder: a new folder, or one of another process for the same model.
    """
    folder.mkdir(exist_ok=True, parents=True)
    found, files = {}, [folder / f"{k}.png" for k in range(max(COUNTS))]
    for file, picture in zip(files, IMAGES, strict=False):
        if not file.exists():
            Image.fromarray(picture).save(file)
    for count in COUNTS:
        images, labels, out = PREPARED[:count], LABELS[:count], folder / f"{count}.npy"
        options: dict[str, Any] = {"batch_size": 8, "prepared": True}
        scores = keras_vit.evaluate(model, (images, labels), **options)
        keras_vit.embed(model, files[:count], out, batch_size=8)
        found[f"{count} images"] = [
            run(model, images, batch_size=8),
            np.array([[p for _, p in sorted(row)] for row in model.classify(list(IMAGES[:count]))]),
            model.tokens(images, **options).patches,
            keras_vit.evaluation.features(
                model, images, cache=out.with_suffix(".cache"), **options
            ).values,
            np.array([scores.top1, scores.loss, scores.calibration_error]),
            np.load(out),
            keras_vit.explanation.attention_maps(model, images, prepared=True)["block_0/attention"],
            keras_vit.explain(model, images, prepared=True).patches,
        ]
    return found


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
