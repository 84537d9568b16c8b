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

from keras_vit import training as recipes
from keras_vit.errors import ConfigError
from tests.distribution import training
from tests.distribution.functions import IMAGES, LABELS, compiled, outputs, write_pictures
from tests.distribution.training import COUNTS, distance, make_model
from tests.runs import times

STEPS = times(8, 25)


def trained(strategy, recipe, **options):
    """The loss per update, and all weights and optimizer variables, after a short training."""
    with strategy.scope():
        model = make_model()
        made = recipe(STEPS, 16, one_hot=False, **options)
        model.compile(**made.compile_args(model))
    losses = training.losses_of_fit(model, made, IMAGES, LABELS, STEPS)
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
    tried = {
        "SGD, averaged": (recipes.TransferRecipe, {**sgd, "ema": 0.5}),
        "AdamW": (recipes.AugregRecipe, adam),
    }
    for name, (recipe, options) in tried.items():
        one = trained(tf.distribute.get_strategy(), recipe, **options)
        mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        losses, state, apart = trained(mirrored, recipe, **options)
        report[name] = [distance([losses], [one[0]]), distance(state, one[1]), apart]
    one = training.trained_on_whole_passes()
    try:
        trained(mirrored, recipes.TransferRecipe, accumulate=2)
    except ConfigError as refusal:
        report["accumulated"] = str(refusal)
    with mirrored.scope():
        report["whole passes"] = distance(training.trained_on_whole_passes(), one)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_pictures(folder)
        alone = compiled()
        with mirrored.scope():
            together = compiled()
        report["images"] = {}
        for count in COUNTS:
            report["images"][count] = distance(
                outputs(together, count, folder, folder / f"{count}.npy"),
                outputs(alone, count, folder, folder / f"{count} alone.npy"),
            )
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
