"""
Multispectral images: more than three channels
==============================================

Adapt the weights of a model to images with five channels::

    python examples/17_other_channels.py

The gain is not certain: on medical images, weights of photos helped little (arXiv 1902.07208). So
compare with random weights on your own images, as this program does. ``"repeated"`` is what timm
does.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import keras_vit

CHANNELS = 5
source = keras_vit.VisionTransformer.from_preset("vit_digits")  # any preset, of any channels


def with_channels(kernel: np.ndarray, start: str) -> np.ndarray:
    """Returns a patch embedding kernel `(rows, columns, CHANNELS, hidden_size)`.

    Args:
        kernel: the kernel for fewer channels.
        start: `"repeated"` repeats the kernel over the channels and keeps its sum; `"zeros"`
            keeps it in the first channels and sets zeros in the rest.
    """
    count = kernel.shape[2]
    if start == "zeros":
        return np.pad(kernel, ((0, 0), (0, 0), (0, CHANNELS - count), (0, 0)))
    return np.take(kernel, np.arange(CHANNELS) % count, axis=2) * (count / CHANNELS)


def build(start: str, num_classes: int) -> keras_vit.VisionTransformer:
    """Returns a model for `CHANNELS` channels with the source's weights, or with random ones."""
    config = source.config.replace(channels=CHANNELS, num_classes=num_classes)
    model = keras_vit.VisionTransformer(config)
    for new, old in zip(model.weights, source.weights, strict=True):
        value = keras.ops.convert_to_numpy(old)
        if start == "fresh" or new.path.startswith("head/"):
            continue
        is_kernel = new.path.endswith("patch_embedding/kernel")
        new.assign(with_channels(value, start) if is_kernel else value)
    return model


# %%
# Two tasks have images with five channels. In the first, the channels show the same digit with
# different brightness, and the label is the digit. In the second, the label is the spectrum: how
# the brightness changes from channel to channel.

rng, digits = np.random.default_rng(0), load_digits()
ink, count = digits.images[..., None] / 16, len(digits.images)  # (1797, 8, 8, 1)
strengths = rng.uniform(0.3, 1, (count, 1, 1, CHANNELS))
spectra = np.array([[5, 4, 3, 2, 1], [1, 2, 3, 4, 5], [5, 2, 1, 2, 5], [1, 4, 5, 4, 1], [3] * 5])
spectrum = rng.integers(0, len(spectra), count)
tasks = {
    "which digit": (strengths, digits.target),
    "which spectrum": (spectra[spectrum][:, None, None] / 5, spectrum),
}

# %%
# Each model is trained on 200 images and tested on 300 others.

scores: dict[str, list[float]] = {start: [] for start in ("fresh", "zeros", "repeated")}
for task, (factors, labels) in tasks.items():
    light = 60 + 150 * ink * factors + rng.normal(0, 40, (count, 8, 8, CHANNELS))
    pixels = np.clip(light, 0, 255).astype("uint8")
    for start, results in scores.items():
        keras.utils.set_random_seed(0)
        model = build(start, len(np.unique(labels)))
        model.compile(keras.optimizers.AdamW(2e-3), loss="auto")
        images = model.preprocessor(pixels[:200])
        model.fit(images, labels[:200], batch_size=50, epochs=6, verbose=0)
        results.append(keras_vit.evaluate(model, (pixels[-300:], labels[-300:])).top1)
        print(f"{task:>14}, kernel {start:>8}: {results[-1]:.1%}")

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for k, (start, results) in enumerate(scores.items()):
    axis.bar(np.arange(len(tasks)) + 0.25 * (k - 1), results, 0.22, label=start)
axis.set_xticks(range(len(tasks)), list(tasks))
axis.set(ylabel="accuracy", ylim=(0, 1))
axis.legend(title="kernel", loc="upper left", bbox_to_anchor=(1, 1))
