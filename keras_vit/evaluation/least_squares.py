"""Ridge regression on standardised features, in float64 with NumPy.

Features x of mean m and standard deviation s (plus 1e-5) become z = (x - m) / s. Targets y are -1
and 1, one column per class, or the targets of a regression. The solution for a strength l2 is the
minimum over W of

    |(Y - mean(Y)) - Z W|^2 + l2 |W|^2,    W = (Z'Z + l2 I)^-1 Z'Y = Z'(ZZ' + l2 I)^-1 Y.

The bias is not regularised. Source: section 4.1 of the paper; `evaluators/fewshot_lsr.py` of
big_vision, which regularises the bias a little.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

_CHUNK = 8192
"""Rows per step in float64: features may lie on the disk and be larger than memory."""


class LeastSquares:
    """The solutions for all strengths of l2, from one eigendecomposition.

    Args:
        features: features of the images, `(images, width)`.
        labels: integers `(images,)` from 0; multi-label, bool `(images, classes)`; regression,
            floats `(images, outputs)`, the targets themselves.
        num_classes: number of columns of the targets.
        rows: indices of the images to fit, `(images,)`; None for all.

    Attributes:
        target_mean: mean of the targets, `(classes,)`.
        values: eigenvalues of Z'Z, or of ZZ' for fewer images than features.
        right: coordinates of the targets, `(eigenvalues, classes)`.
    """

    def __init__(
        self, features: np.ndarray, labels: Any, num_classes: int, rows: Any = None
    ) -> None:
        rows = np.arange(len(features)) if rows is None else np.sort(rows)
        labels = np.asarray(labels)
        count, width = len(rows), features.shape[1]
        self._mean, self.target_mean = np.zeros(width), np.zeros(num_classes)
        for x, place in _chunks(features, rows):
            self._mean += x.sum(axis=0) / count
            self.target_mean += make_targets(labels[rows[place]], num_classes).sum(axis=0) / count
        if count >= width:  # the (width, width) form
            gram, product = np.zeros((width, width)), np.zeros((width, num_classes))
            for x, place in _chunks(features, rows):
                centred = x - self._mean
                gram += centred.T @ centred
                product += centred.T @ make_targets(labels[rows[place]], num_classes)
            self._std = np.sqrt(np.diag(gram) / count) + 1e-5
            gram /= np.outer(self._std, self._std)
            values, vectors = np.linalg.eigh(gram)
            self._left, self.right = vectors, vectors.T @ (product / self._std[:, None])
        else:  # the (images, images) form
            centred = features[rows].astype("float64") - self._mean
            self._std = np.sqrt((centred**2).mean(axis=0)) + 1e-5
            z = centred / self._std
            values, vectors = np.linalg.eigh(z @ z.T)
            targets = make_targets(labels[rows], num_classes) - self.target_mean
            self._left, self.right = z.T @ vectors, vectors.T @ targets
        self._is_square = count >= width
        self.values = np.maximum(values, 0)  # rounding makes eigenvalues of 0 slightly negative

    @property
    def has_signal(self) -> bool:
        """Whether any feature differs between images by more than the rounding of float32."""
        return bool((self._std - 1e-5 > 1e-5 * (1 + np.abs(self._mean))).any())

    def coordinates(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns two arrays `(images, eigenvalues)` for the fitted images.

        With s = 1 / (values + l2), the estimates are `target_mean + first @ (s * right)`, and
        `1 / images + second @ s` is the leverage of each image.
        """
        rows = np.arange(len(features))
        first = np.concatenate(
            [((x - self._mean) / self._std) @ self._left for x, _ in _chunks(features, rows)]
        )
        if self._is_square:
            return first, first**2
        return first, first**2 / np.where(self.values > 0, self.values, np.inf)

    def solve(self, l2: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns kernel `(width, classes)` and bias `(classes,)` for features as given."""
        scaled = self.right / (self.values + l2)[:, None]
        kernel = (self._left @ scaled) / self._std[:, None]
        return kernel, self.target_mean - self._mean @ kernel


def make_targets(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns 1 for the classes of each image and -1 for the others, `(images, num_classes)`.

    Floats are returned as they are.
    """
    if labels.dtype.kind == "f":
        return labels
    right = labels if labels.ndim == 2 else labels[:, None] == np.arange(num_classes)
    return np.where(right, 1.0, -1.0)


def estimate(
    features: np.ndarray, kernel: np.ndarray, bias: np.ndarray, rows: Any = None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields estimates of the targets, float64 `(images, classes)`, and their place in `rows`."""
    rows = np.arange(len(features)) if rows is None else rows
    for x, place in _chunks(features, rows):
        yield place, x @ kernel + bias


def _chunks(features: np.ndarray, rows: np.ndarray) -> Iterator[tuple[np.ndarray, slice]]:
    for start in range(0, len(rows), _CHUNK):
        place = slice(start, start + _CHUNK)
        yield features[rows[place]].astype("float64"), place
