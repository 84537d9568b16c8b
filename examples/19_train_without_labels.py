"""
Training an encoder without labels
==================================

Self-supervised learning with LeJEPA: an encoder learns from unlabeled images::

    python examples/19_train_without_labels.py

For folders of photos, ``keras-vit pretrain`` does the same with the authors' settings; see
:doc:`/pretraining`.
"""

from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_vit
from keras_vit.data import Views
from keras_vit.evaluation import features, knn_accuracy
from keras_vit.training import SelfSupervised

STEPS, EPOCHS = 1200, 10
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
digits = load_digits()
frames = np.zeros((len(digits.images), 20, 20), "uint8")
for frame, image in zip(frames, digits.images, strict=True):
    row, column = rng.integers(0, 9, 2)
    digit = Image.fromarray(np.round(image * (255 / 16)).astype("uint8")).resize((12, 12))
    frame[row : row + 12, column : column + 12] = np.array(digit)
unlabelled, test, _, labels = train_test_split(
    frames, digits.target, test_size=360, stratify=digits.target, random_state=0
)
folder = Path("unlabelled")
folder.mkdir(exist_ok=True)
for k, frame in enumerate(unlabelled):
    Image.fromarray(frame).save(folder / f"{k:04d}.png")

# %%
# The digits are at random places, so the pixels of two equal digits have little in common. The
# accuracy of 20 nearest neighbors among the test images measures how well features group them.
# Labels are used only for this measurement.

encoder = keras_vit.VisionTransformer(
    image_size=20, patch_size=5, channels=1, hidden_size=64, mlp_dim=192, num_heads=4,
    num_layers=4, position="sincos2d", pool={"kind": "gap"}, num_classes=0,
)  # fmt: skip
scores = {
    "raw pixels": knn_accuracy(test.reshape(len(test), -1), labels),
    "random weights": knn_accuracy(features(encoder, test).values, labels),
}

# %%
# Each image has four views, random crops with different brightness and contrast. Views are not
# mirrored, because a mirrored digit is not a digit; blur and solarization would destroy strokes of
# a few pixels.

views = Views(
    20, global_views=4, local_views=0, global_crop=(0.4, 1.0), flip=False, blur=0, solarise=0
)
model = SelfSupervised(encoder, views, projector=(256, 64), directions=256)
data = keras_vit.data.from_folder(
    folder, encoder, 64, augmentation=views, steps_per_epoch=STEPS // EPOCHS
)
warmup = STEPS // 10
rate = keras.optimizers.schedules.CosineDecay(
    0.0, STEPS - warmup, warmup_target=3e-3, warmup_steps=warmup
)
model.compile(keras.optimizers.AdamW(rate, weight_decay=0.05))
history = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=2).history

# %%
# The encoder is trained in place. Compare the accuracies:

scores["self-supervised"] = knn_accuracy(features(encoder, test).values, labels)
for name, score in scores.items():
    print(f"{name:>22} {score:.1%}")
encoder.save_to_preset("encoder")

# %%
# The loss is 0.95 times the invariance, the distance between views of an image, plus 0.05 times
# SIGReg, the distance of the projections from a normal distribution.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 2.8), layout="constrained")
for name, share in {"loss": 1, "invariance": 0.95, "sigreg": 0.05}.items():
    left.plot(share * np.array(history[name]), label=name if share == 1 else f"{share} {name}")
left.set(xlabel="epoch", ylim=(0, None))
left.legend()
right.barh(list(scores), list(scores.values()))
right.set(xlabel="accuracy of 20 nearest neighbors", xlim=(0, 1))
