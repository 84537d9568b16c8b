"""
Knowledge distillation: train a small encoder
=============================================

Distill a large encoder into one of a fifth of its size, on images without labels::

    python examples/15_own_small_encoder.py

The teacher's tokens are computed once and stored on disk.
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
# The teacher's tokens have the shape ``(1437, 17, 64)``: the class token, then the patches.

teacher = keras_vit.VisionTransformer.from_preset("vit_digits", num_classes=0)
tokens = features(teacher, unlabelled, "encoder_norm", cache="teacher", output_dtype="float16")
student = keras_vit.VisionTransformer(
    image_size=16, patch_size=4, channels=1, hidden_size=48, mlp_dim=96, num_heads=4,
    num_layers=2, num_classes=0, name="student",
)  # fmt: skip
print(f"{student.count_params():,} weights, the teacher has {teacher.count_params():,}")


def nearest_neighbour(values: np.ndarray) -> float:
    """Returns the fraction of test images whose nearest neighbor, by cosine, has their label."""
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    return float((labels[cosines.argmax(axis=1)] == labels).mean())


scores = {
    "pixels": nearest_neighbour(test.reshape(len(test), -1) - unlabelled.mean()),
    "student, fresh weights": nearest_neighbour(features(student, test).values),
}

# %%
# A linear layer projects the student's tokens to the teacher's width. The loss is the cosine
# similarity for the class token, and smooth L1 (``Huber``) for the patches. The layer is not needed
# after training.

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
# The score is the leave-one-out accuracy of the nearest neighbor among the test images.

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
