"""Runs in a process with 8 virtual CPU devices; prints one JSON object of findings.

python -m tests.distribution.on_jax_devices
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.light_compilation import FLAG

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {FLAG}"

import jax
import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit import distribution, finetune
from keras_vit.errors import ConfigError
from keras_vit.inference import run
from tests.distribution.training import trained_on_whole_passes
from tests.thorough import THOROUGH, times

COUNTS = (1, 7, 8, 9) if THOROUGH else (9,)
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
IMAGES = RNG.standard_normal((16, 8, 8, 3)).astype("float32")
LABELS = np.arange(16) % 3
PICTURES = list(RNG.integers(0, 256, (9, 8, 8, 3)).astype("uint8"))
STEPS = times(8, 25)


def model_of(**fields):
    """A small model with the same random weights in every call."""
    model = keras_vit.VisionTransformer(**{**SIZES, **fields}, name="vit")
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(0.3 * rng.standard_normal(weight.shape))
    return model


def trained():
    """The loss per update and the weights after a short training by the recipe."""
    model = model_of()
    recipe = finetune.transfer_recipe(
        model, STEPS, 32, learning_rate=0.1, clip_norm=0.1, accumulate=2, ema=0.5
    )
    model.compile(**recipe.compile_args)
    losses = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"]))
    )
    fit = {**recipe.fit_args, "callbacks": [*recipe.fit_args["callbacks"], watch]}
    rows = np.arange(16 * 2 * STEPS) % 16
    model.fit(IMAGES[rows], LABELS[rows], batch_size=16, shuffle=False, verbose=0, **fit)
    everything = [*model.weights, *model.optimizer.variables]
    parts = sum(v.value.addressable_shards[0].data.nbytes for v in everything)
    share = parts / sum(v.value.nbytes for v in everything)
    return losses, [np.asarray(v.value, "float64") for v in everything], share


def distance(actual, expected):
    pairs = zip(actual, expected, strict=True)
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


def compiled():
    model = model_of()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(finetune.LayerwiseSGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return model


def outputs(model, count, folder):
    """Every public function that runs a model, for `count` images, as one list of arrays."""
    images, labels = IMAGES[:count], LABELS[:count]
    scores = keras_vit.evaluate(model, (images, labels), batch_size=8)
    out = folder / f"{len(list(folder.iterdir()))}.npy"
    paths = []
    for k, picture in enumerate(PICTURES[:count]):
        paths.append(folder.parent / f"{k}.png")
        Image.fromarray(picture).save(paths[-1])
    keras_vit.embed(model, paths, out, batch_size=8)
    actual = [
        run(model, images, batch_size=8),
        np.array([[p for _, p in sorted(row)] for row in model.classify(PICTURES[:count])]),
        model.tokens(images, batch_size=8).patches,
        keras_vit.features(model, images, batch_size=8).values,
        np.array([scores.top1, scores.loss, scores.calibration_error]),
        np.load(out),
        keras_vit.attention_maps(model, images)[0],
        keras_vit.explain(model, images).patches,
    ]
    history = model.fit(IMAGES, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    actual += [np.array(history.history["loss"]), np.array(history.history["accuracy"])]
    return [*actual, *(np.asarray(w.value) for w in model.weights)]


def message(act):
    try:
        act()
    except ConfigError as error:
        return str(error)
    return "no error"


def main():
    jax.config.update("jax_disable_most_optimizations", True)  # the script mostly compiles
    one = trained()
    report = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "out"
        folder.mkdir()
        model = compiled()
        alone = {count: outputs(model, count, folder) for count in COUNTS}
        with distribution.data_parallel().scope():
            model = compiled()
            for count in COUNTS:
                report[f"{count} images"] = distance(outputs(model, count, folder), alone[count])
            report["devices"] = len(model.get_layer("head").kernel.value.devices())
    ways = {
        "data": distribution.data_parallel,
        "tensor": lambda: distribution.tensor_parallel(4),
        "fully sharded": distribution.fully_sharded,
        "tensor and fully sharded": lambda: distribution.fully_sharded(2),
    }
    for way, make in ways.items():
        with make().scope():
            losses, weights, share = trained()
        report[way] = [distance([losses], [one[0]]), distance(weights, one[1]), share]
    whole_passes = trained_on_whole_passes()
    with distribution.data_parallel().scope():
        report["whole passes"] = distance(trained_on_whole_passes(), whole_passes)
    with distribution.tensor_parallel(8).scope():
        report["heads"] = message(lambda: model_of(num_heads=4))
    report["shards"] = message(lambda: distribution.tensor_parallel(3))
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    np.testing.assert_equal(keras.backend.backend(), "jax")
    main()
