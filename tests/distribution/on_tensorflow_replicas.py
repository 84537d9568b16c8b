"""Runs in a process with two virtual CPUs; prints one JSON object of findings.

python -m tests.distribution.on_tensorflow_replicas
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit import finetune

STEPS = 25
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((16, 8, 8, 3)).astype("float32")
LABELS = np.arange(16) % 3
SIZES = {
    "image_size": 8,
    "patch_size": 4,
    "hidden_size": 16,
    "mlp_dim": 32,
    "num_heads": 4,
    "num_layers": 1,
    "num_classes": 3,
}


def trained(strategy, recipe, **options):
    """The loss per update, and all weights and optimizer variables, after a short training."""
    with strategy.scope():
        model = keras_vit.VisionTransformer(**SIZES, name="vit")
        rng = np.random.default_rng(1)
        for weight in model.weights:
            weight.assign(0.3 * rng.standard_normal(weight.shape))
        made = recipe(model, STEPS, 16 * options.get("accumulate", 1), one_hot=False, **options)
        model.compile(**made.compile_args)
    losses = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"]))
    )
    fit = {**made.fit_args, "callbacks": [*made.fit_args["callbacks"], watch]}
    rows = np.arange(16 * 2 * STEPS) % 16  # 50 batches
    model.fit(IMAGES[rows], LABELS[rows], batch_size=16, shuffle=False, verbose=0, **fit)
    # Softmax makes the gradient of the keys' bias zero; Adam amplifies its rounding.
    weights = [w for w in model.weights if not w.path.endswith("key/bias")]
    variables = [*weights, *model.optimizer.variables]
    found = [keras.ops.convert_to_numpy(v).astype("float64") for v in variables]
    local = [strategy.experimental_local_results(v.value) for v in variables]
    apart = max(float(np.abs(np.subtract(copies[0], copies[-1])).max()) for copies in local)
    return losses, found, apart


def distance(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    report = {}
    for name, recipe, options in (
        ("SGD", finetune.transfer_recipe, {"clip_norm": 0.1, "learning_rate": 0.1}),
        (
            "SGD, accumulated, averaged",
            finetune.transfer_recipe,
            {"clip_norm": 0.1, "learning_rate": 0.1, "accumulate": 2, "ema": 0.5},
        ),
        ("AdamW", finetune.augreg_recipe, {"clip_norm": 0.1, "learning_rate": 0.01}),
    ):
        one = trained(tf.distribute.get_strategy(), recipe, **options)
        mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        losses, found, apart = trained(mirrored, recipe, **options)
        report[name] = [distance([losses], [one[0]]), distance(found, one[1]), apart]
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
