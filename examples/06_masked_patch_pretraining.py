"""
Masked patch prediction: pretraining from scratch
=================================================

Pretrain on digits without labels, then fine-tune on 500 digits with labels (appendix B.1.2 of the
ViT paper)::

    python examples/06_masked_patch_pretraining.py 60 20

The arguments are the steps of pretraining, the steps of fine-tuning and, optionally, a seed.
:doc:`/paper` lists accuracies.
"""

import sys
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from keras_vit import ViTConfig

sys.path.append(str(Path(__file__).parent / "paper"))
from masked_patches import MaskedPatchPrediction

pretraining_steps, steps, seed = map(int, [*sys.argv[1:], "0"][:3])
keras.utils.set_random_seed(seed)
random = np.random.default_rng(seed)
sizes: dict = {"hidden_size": 48, "mlp_dim": 96, "num_heads": 4, "num_layers": 3}
config = ViTConfig(image_size=(16, 16), patch_size=(4, 4), channels=1, **sizes)
task = MaskedPatchPrediction(config)  # one channel in 3 bits: 8 colours to predict
data = load_digits()
images = np.round(data.images * (255 / 16)).astype("uint8")[..., None]
images = task.encoder.preprocessor(images)  # 8x8 to 16x16 pixels
split = train_test_split(images, data.target, test_size=360, stratify=data.target, random_state=0)
rest, test, digits, test_digits = split
split = train_test_split(rest, digits, test_size=500, stratify=digits, random_state=seed)
unlabelled, labelled, _, digits = split


def draw_rows(count, batches, size):
    """Returns indices for `batches` batches, from shuffled passes over `count` images."""
    passes = [random.permutation(count) for _ in range(-(-batches * size // count))]
    return np.concatenate(passes)[: batches * size]


def rate(peak, steps):
    cosine, warm = keras.optimizers.schedules.CosineDecay, steps // 10
    return cosine(0.0, steps - warm, warmup_target=peak, warmup_steps=warm)


def accuracy(model):
    """Fine-tunes as in appendix B.1.1, with few steps; returns the accuracy on the test digits."""
    optimizer = keras.optimizers.SGD(rate(0.03, steps), momentum=0.9, global_clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    chosen = draw_rows(500, steps, 50)
    model.fit(labelled[chosen], digits[chosen], batch_size=50, shuffle=False, verbose=0)
    return model.evaluate(test, test_digits, verbose=0)[1]


scratch = accuracy(task.classifier(num_classes=10))
task.compile(keras.optimizers.AdamW(rate(3e-3, pretraining_steps), 0.03, global_clipnorm=1.0))
chosen = draw_rows(len(unlabelled), pretraining_steps, 128)
task.fit(unlabelled[chosen], batch_size=128, shuffle=False, verbose=2)
pretrained = accuracy(task.classifier(num_classes=10))
print(f"after {steps} steps: {scratch:.1%} from scratch, {pretrained:.1%} pre-trained")
