"""
Custom training loop
====================

Train with the recipe of the ViT paper without ``fit``, in a custom loop for JAX, PyTorch or
TensorFlow::

    python examples/05_own_training_loop.py
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_vit

digits, steps = load_digits(), 40
images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]  # (1797, 8, 8, 1)
has_loop = np.isin(digits.target, (0, 6, 8, 9)).astype("int32")

model = keras_vit.VisionTransformer.from_preset("vit_digits", num_classes=2)
recipe = keras_vit.training.TransferRecipe(steps, batch_size=32)
optimizer, loss = recipe.compile_args(model)["optimizer"], recipe.compile_args(model)["loss"]
optimizer.build(model.trainable_variables)
rows = np.arange(32 * steps).reshape(steps, 32) % 1280
batches = [(model.preprocessor(images[k]), has_loop[k]) for k in rows]

if keras.backend.backend() == "jax":
    import jax

    seeds = [variable.value for variable in model.non_trainable_variables]  # seeds of dropout

    def compute_loss(weights, x, y):
        return loss(y, model.stateless_call(weights, seeds, x, training=True)[0])

    @jax.jit
    def jax_step(weights, state, x, y):
        return optimizer.stateless_apply(state, jax.grad(compute_loss)(weights, x, y), weights)

    weights = [v.value for v in model.trainable_variables]
    state = [v.value for v in optimizer.variables]
    for x, y in batches:
        weights, state = jax_step(weights, state, x, y)
    model.set_weights(weights)
elif keras.backend.backend() == "torch":
    for x, y in batches:
        model.zero_grad()
        loss(y, model(x, training=True)).backward()
        optimizer.apply([weight.value.grad for weight in model.trainable_variables])
else:
    import tensorflow as tf

    @tf.function
    def tf_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply(tape.gradient(value, model.trainable_variables))

    for x, y in batches:
        tf_step(x, y)

answers = model.predict(model.preprocessor(images[1280:]), verbose=0).argmax(axis=1)
print("accuracy on the test images:", (answers == has_loop[1280:]).mean())
