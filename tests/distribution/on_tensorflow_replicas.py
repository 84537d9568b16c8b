"""Runs in a process with two virtual CPUs; prints one JSON object of findings.

python -m tests.distribution.on_tensorflow_replicas
"""

import json
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit import finetune
from keras_vit.inference import run
from tests.distribution import training
from tests.distribution.training import distance, model_of
from tests.thorough import THOROUGH, times

COUNTS = (1, 9) if THOROUGH else (9,)
STEPS = times(8, 25)
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((16, 8, 8, 3)).astype("float32")
LABELS = np.arange(16) % 3
PICTURES = list(RNG.integers(0, 256, (9, 8, 8, 3)).astype("uint8"))


def compiled(strategy):
    with strategy.scope():
        model = model_of()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(finetune.LayerwiseSGD(0.1), loss, metrics=["accuracy"])
    return model


def outputs(model, count, folder):
    """Every public function that runs a model, for `count` images."""
    images, labels = IMAGES[:count], LABELS[:count]
    scores = keras_vit.evaluate(model, (images, labels), batch_size=8)
    paths = [folder / f"{k}.png" for k in range(count)]
    out = folder / f"{len(list(folder.iterdir()))}.npy"
    keras_vit.embed(model, paths, out, batch_size=8)
    return [
        run(model, images, batch_size=8),
        np.array([[p for _, p in sorted(row)] for row in model.classify(PICTURES[:count])]),
        model.tokens(images, batch_size=8).patches,
        keras_vit.features(model, images, batch_size=8).values,
        np.array([scores.top1, scores.loss, scores.calibration_error]),
        np.load(out),
        keras_vit.attention_maps(model, images)[0],
        keras_vit.explain(model, images).patches,
    ]


def trained(strategy, recipe, **options):
    """The loss per update, and all weights and optimizer variables, after a short training."""
    with strategy.scope():
        model = model_of()
        made = recipe(model, STEPS, 16 * options.get("accumulate", 1), one_hot=False, **options)
        model.compile(**made.compile_args)
    losses = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"]))
    )
    fit = {**made.fit_args, "callbacks": [*made.fit_args["callbacks"], watch]}
    rows = np.arange(16 * 2 * STEPS) % 16
    model.fit(IMAGES[rows], LABELS[rows], batch_size=16, shuffle=False, verbose=0, **fit)
    # Softmax makes the gradient of the keys' bias zero; Adam amplifies its rounding.
    weights = [w for w in model.weights if not w.path.endswith("key/bias")]
    variables = [*weights, *model.optimizer.variables]
    state = [keras.ops.convert_to_numpy(v).astype("float64") for v in variables]
    local = [strategy.experimental_local_results(v.value) for v in variables]
    apart = max(float(np.abs(np.subtract(copies[0], copies[-1])).max()) for copies in local)
    return losses, state, apart


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    report = {}
    sgd = {"clip_norm": 0.1, "learning_rate": 0.1}
    adam = {"clip_norm": 0.1, "learning_rate": 0.01}
    recipes = {
        "SGD": (finetune.transfer_recipe, sgd),
        "SGD, accumulated, averaged": (
            finetune.transfer_recipe,
            {**sgd, "accumulate": 2, "ema": 0.5},
        ),
        "AdamW": (finetune.augreg_recipe, adam),
    }
    for name in training.RECIPES:
        recipe, options = recipes[name]
        one = trained(tf.distribute.get_strategy(), recipe, **options)
        mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        losses, state, apart = trained(mirrored, recipe, **options)
        report[name] = [distance([losses], [one[0]]), distance(state, one[1]), apart]
    one = training.trained_on_whole_passes()
    with mirrored.scope():
        report["whole passes"] = distance(training.trained_on_whole_passes(), one)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for k, picture in enumerate(PICTURES):
            Image.fromarray(picture).save(folder / f"{k}.png")
        alone, together = compiled(tf.distribute.get_strategy()), compiled(mirrored)
        report["images"] = {}
        for count in COUNTS:
            pairs = zip(
                outputs(together, count, folder), outputs(alone, count, folder), strict=True
            )
            report["images"][count] = [distance([a], [b]) for a, b in pairs]
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
