"""Deletion and insertion: the probability of a class while pixels are replaced, in a map's order.

Petsiuk, Das and Saenko 2018. The report draws the curves; `examples/paper/faithfulness.py` compares
methods by the areas below them.
"""

import numpy as np

from keras_vit.models.tokens import image_axes
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import AnyMethod

BASELINES: tuple[AnyMethod, ...] = ("random", "centre")
"""The methods of `explain` that a useful map has to beat."""


def replace_pixels(
    model: VisionTransformer,
    before: np.ndarray,
    after: np.ndarray,
    maps: np.ndarray,
    classes: np.ndarray,
    steps: int,
    batch_size: int = 32,
) -> np.ndarray:
    """Returns the probabilities while more and more pixels of `before` become those of `after`.

    Args:
        model: a `VisionTransformer` with one prediction per image.
        before: a float batch in the model's size and range.
        after: another batch of the same shape.
        maps: `(batch, height, width)`; the pixel of the largest value is replaced first, and of
            equal pixels the upper left.
        classes: the class of each image, int32 `(batch,)`.
        steps: number of equal parts of the pixels that are replaced one after the other.
        batch_size: images per step of the model.

    Returns:
        The probability of the class at each step, float32 `(batch, steps + 1)`.
    """
    order = np.argsort(-maps.reshape(len(maps), -1), axis=1, kind="stable")
    rank = np.argsort(order, axis=1).reshape(maps.shape)
    rank = np.expand_dims(rank, -1 if model.data_format == "channels_last" else 1)
    probabilities = []
    for step in range(steps + 1):
        images = np.where(rank < round(step / steps * order.shape[1]), after, before)
        outputs = model.probabilities(images, batch_size, prepared=True)
        probabilities.append(outputs[np.arange(len(images)), classes])
    return np.stack(probabilities, axis=1)


def areas_below(curves: np.ndarray) -> np.ndarray:
    """Returns the area below each curve by trapezoids, `(batch,)`, in [0, 1]."""
    return (curves[:, 1:] + curves[:, :-1]).mean(axis=1) / 2


def grey(model: VisionTransformer) -> float:
    """Returns the middle of the model's range: the mean colour if the protocol has one."""
    return 0.0 if model.preprocessor.scaled else 127.5


def blur(model: VisionTransformer, images: np.ndarray) -> np.ndarray:
    """Returns images after a Gaussian blur whose deviation is 5/224 of a side.

    Petsiuk et al. blur images of 224 pixels in this way (kernel 11, deviation 5); edges are
    repeated. The deviation is at least 4 pixels: a small digit is still read after less.
    """
    for axis in image_axes(model):
        sigma = max(4.0, 5 / 224 * images.shape[axis])
        reach = max(1, round(1.1 * sigma))
        weights = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
        padded = np.pad(
            images, [(reach, reach) if k == axis else (0, 0) for k in range(4)], mode="edge"
        )
        windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights), axis)
        images = windows @ (weights / weights.sum()).astype("float32")
    return images
