"""
A small encoder of your own
===========================

A student of a fifth of the teacher's size learns its features from images without labels::

    python examples/15_own_small_encoder.py

The teacher's tokens are computed once and kept on disk; the training reads them, and no label.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_vit
from keras_vit.evaluation import features

EPOCHS = 20
keras.utils.set_random_seed(0)
digits = load_digits()
pixels = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]  # (1797, 8, 8, 1)
# The teacher was not trained on the test images of this split.
unlabelled, test, _, labels = train_test_split(
    pixels, digits.target, test_size=360, stratify=digits.target, random_state=0
)

# %%
# The tokens of the teacher, the class token before the patches, are ``(1437, 17, 64)``.

teacher = keras_vit.VisionTransformer.from_preset("vit_digits", num_classes=0)
tokens = features(teacher, unlabelled, "encoder_norm", cache="teacher", output_dtype="float16")
student = keras_vit.VisionTransformer(
    image_size=16, patch_size=4, channels=1, hidden_size=48, mlp_dim=96, num_heads=4,
    num_layers=2, num_classes=0, name="student",
)  # fmt: skip
print(f"{student.count_params():,} weights, the teacher has {teacher.count_params():,}")


def nearest_neighbour(values: np.ndarray) -> float:
    """Returns the share of test images whose nearest other image, by cosine, has their label."""
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    return float((labels[cosines.argmax(axis=1)] == labels).mean())


scores = {
    "pixels": nearest_neighbour(test.reshape(len(test), -1) - unlabelled.mean()),
    "student, fresh weights": nearest_neighbour(features(student, test).values),
}

# %%
# One linear layer brings the student's tokens to the teacher's width. The class token learns by
# the cosine, the patches by smooth L1 (``Huber``). The layer is not needed afterwards.

wide = keras.layers.Dense(64)(student.get_layer("encoder_norm").output)
distillation = keras.Model(student.input, [wide[:, 0], wide[:, 1:]])
steps = EPOCHS * -(-len(unlabelled) // 128)
rate = keras.optimizers.schedules.CosineDecay(
    0.0, steps - steps // 10, warmup_target=0.005, warmup_steps=steps // 10
)
distillation.compile(
    keras.optimizers.AdamW(rate), loss=[keras.losses.CosineSimilarity(), keras.losses.Huber()]
)
targets = [tokens.values[:, 0].astype("float32"), tokens.values[:, 1:].astype("float32")]
images = student.preprocessor(unlabelled)
history = distillation.fit(images, targets, batch_size=128, epochs=EPOCHS, verbose=0).history

# %%
# Leave-one-out of the test images: is the nearest of all others the same digit?

scores["student, distilled"] = nearest_neighbour(features(student, test).values)
scores["teacher"] = nearest_neighbour(features(teacher, test).values)
for name, score in scores.items():
    print(f"{name:>22} {score:.1%}")
student.save_to_preset("student")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 2.8), layout="constrained")
left.plot(history["loss"])
left.set(xlabel="epoch", ylabel="loss")
right.barh(list(scores), list(scores.values()))
right.set(xlabel="accuracy of the nearest neighbour", xlim=(0, 1))
