"""
Train on several GPUs or TPUs
=============================

Fine-tune with data parallelism: each device computes a part of every batch::

    KERAS_BACKEND=jax python examples/08_several_devices.py 20
"""

import os
import sys

# Splits the CPU into eight devices, to try the program on a machine without GPUs or TPUs.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_vit

if keras.backend.backend() != "jax":
    print(
        "keras.distribution needs JAX. On TensorFlow, build and compile the model inside "
        "tf.distribute.MirroredStrategy().scope(); on PyTorch, call "
        "keras_vit.distribution.ddp(model) under torchrun. See docs/devices.md."
    )
    sys.exit()

# All GPUs or TPUs, or without these the parts of the CPU.
keras.distribution.set_distribution(keras_vit.distribution.data_parallel())

digits = load_digits()
images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]  # (1797, 8, 8, 1)
is_odd = (digits.target % 2).astype("int32")

# Every device has the weights and the optimizer; gradients are averaged over the devices.
model = keras_vit.VisionTransformer.from_preset(
    "vit_digits", num_classes=2, class_names=("even", "odd")
)
recipe = keras_vit.training.TransferRecipe(int(sys.argv[1]), batch_size=64)
model.compile(**recipe.compile_args(model))
batch = model.preprocessor(images)
rows = np.arange(64 * int(sys.argv[1])) % 1280
fit = {"batch_size": 64, "shuffle": False, "verbose": 2, **recipe.fit_args(model)}
model.fit(batch[rows], is_odd[rows], **fit)

where = {str(d) for d in model.get_layer("head").kernel.value.devices()}
print(f"{len(where)} devices; accuracy on the test images:", end=" ")
print(f"{model.evaluate(batch[1285:], is_odd[1285:], batch_size=64, verbose=0)[1]:.3f}")
