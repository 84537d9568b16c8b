"""Runs in a process with 8 virtual CPU devices; prints one JSON object of findings.

python -m tests.distribution.on_jax_devices
"""

import importlib
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

from keras_vit import distribution, training
from tests.distribution import functions
from tests.distribution.functions import IMAGES, LABELS, compiled
from tests.distribution.training import (
    distance,
    losses_of_fit,
    make_model,
    message,
    trained_on_whole_passes,
)
from tests.runs import THOROUGH, times

COUNTS = (1, 7, 8, 9) if THOROUGH else (9,)
STEPS = times(8, 25)


def trained():
    """The loss per update and the weights after a short training by the recipe."""
    model = make_model()
    recipe = training.TransferRecipe(
        STEPS, 32, learning_rate=0.1, clip_norm=0.1, accumulate=2, ema=0.5
    )
    model.compile(**recipe.compile_args(model))
    losses = losses_of_fit(model, recipe, IMAGES, LABELS, STEPS)
    everything = [*model.weights, *model.optimizer.variables]
    parts = sum(v.value.addressable_shards[0].data.nbytes for v in everything)
    share = parts / sum(v.value.nbytes for v in everything)
    return losses, [np.asarray(v.value, "float64") for v in everything], share


def outputs(model, count, folder):
    """What the public functions give, and the history and weights of a `fit`."""
    out = folder / f"{len(list(folder.iterdir()))}.npy"
    values = functions.outputs(model, count, folder, out)
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(functions.IMAGES, functions.LABELS, **fit).history
    scores = [np.array(history["loss"]), np.array(history["accuracy"])]
    return [*values, *scores, *(np.asarray(w.value) for w in model.weights)]


def state(model):
    return [np.asarray(v.value, "float64") for v in [*model.weights, *model.optimizer.variables]]


def through_orbax(folder):
    """A state that eight devices divided, in a model that each device has whole; and its next step.

    Returns:
        the differences of the loaded state, and of the state behind one more batch; None without
        orbax.
    """
    try:
        importlib.import_module("orbax.checkpoint")
    except ModuleNotFoundError:
        return None
    fit = {"batch_size": 16, "shuffle": False, "verbose": 0}
    with distribution.fully_sharded().scope():
        model = compiled()
        save = keras.callbacks.OrbaxCheckpoint(str(folder), save_on_background=False)
        model.fit(functions.IMAGES, functions.LABELS, callbacks=[save], **fit)
        saved = state(model)
        model.fit(functions.IMAGES, functions.LABELS, **fit)
    with distribution.data_parallel().scope():
        loaded = keras.saving.load_model(folder)
        differences = [distance(state(loaded), saved)]
        loaded.fit(functions.IMAGES, functions.LABELS, **fit)
    return [*differences, distance(state(loaded), state(model))]


def main():
    jax.config.update("jax_disable_most_optimizations", True)  # the script mostly compiles
    one = trained()
    report = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        functions.write_pictures(folder)
        model = compiled()
        alone = {count: outputs(model, count, folder) for count in COUNTS}
        with distribution.data_parallel().scope():
            model = compiled()
            for count in COUNTS:
                report[f"{count} images"] = distance(outputs(model, count, folder), alone[count])
            report["devices"] = len(model.get_layer("head").kernel.value.devices())
        report["orbax"] = through_orbax(folder / "orbax")
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
        report["heads"] = message(lambda: make_model(num_heads=4))
    report["shards"] = message(lambda: distribution.tensor_parallel(3))
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    np.testing.assert_equal(keras.backend.backend(), "jax")
    main()
