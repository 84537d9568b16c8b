"""Mixup and cutmix: each image of a batch is mixed with its predecessor, and so are the labels."""

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]


def mixup(images: np.ndarray, labels: np.ndarray, alpha: float, rng: np.random.Generator) -> Pair:
    """Mixes each image and its labels with those of another image (Zhang et al. 2018, Eq. 1).

    Args:
        images: `(batch, height, width, channels)`, or channels first.
        labels: `(batch, num_classes)`.
        alpha: parameter of Beta(alpha, alpha), from which the weight is drawn. The image itself
            gets the larger weight, as in big_vision.
        rng: draws one weight for the batch.
    """
    own = np.float32(rng.beta(alpha, alpha))
    own = max(own, 1 - own)
    return _mean(images, own), _mean(labels, own)


def cutmix(
    images: np.ndarray, labels: np.ndarray, alpha: float, rng: np.random.Generator, axis: int = 1
) -> Pair:
    """Returns images with a box of another image, and labels mixed by area.

    Source: Yun et al. 2019, Algorithm 1.

    Args:
        images, labels, alpha, rng: as in `mixup`; one box is drawn for the batch.
        axis: axis of the height; the next axis is the width.
    """
    sides = images.shape[axis : axis + 2]
    part = np.sqrt(1 - rng.beta(alpha, alpha))
    box, area = [slice(None)] * axis, 1
    for side in sides:
        centre, half = rng.integers(side), side * part / 2
        low, high = np.clip([round(centre - half), round(centre + half)], 0, side)
        box.append(slice(low, high))
        area *= high - low
    mixed = images.copy()
    mixed[tuple(box)] = np.roll(images, 1, axis=0)[tuple(box)]
    return mixed, _mean(labels, np.float32(1 - area / np.prod(sides)))


def _mean(values: np.ndarray, own: np.float32) -> np.ndarray:
    return own * values + (1 - own) * np.roll(values, 1, axis=0)
