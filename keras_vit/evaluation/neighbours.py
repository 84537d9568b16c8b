"""Accuracy of k nearest neighbours on frozen features, by DINO's protocol."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.probes import as_features, as_labels

_ROWS = 1024
"""Test features per step: memory is `_ROWS` times the number of training features."""


def nearest_neighbours(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    k: Sequence[int] = (10, 20, 100, 200),
    *,
    temperature: float = 0.07,
) -> dict[int, float]:
    """Returns the accuracy of weighted k nearest neighbours (DINO, arXiv 2104.14294, appendix F).

    Features are scaled to length 1. Each of the k training images that are most similar to a test
    image votes for its class with the weight `exp(similarity / temperature)`; between equal
    votes the lower class wins. DINO's `eval_knn.py` does the same, with k = 20 for ImageNet.

    Args:
        train: features `(images, width)` and labels that vote, as `keras_vit.features` returns.
        test: features and labels to measure on.
        k: numbers of neighbours.
        temperature: scale of the similarity; a small one gives near neighbours more weight.

    Returns:
        The accuracy for each number of neighbours, `{k: accuracy}`.

    Raises:
        ConfigError: the features differ in width, a k exceeds the number of training images, or
            the temperature is not positive.

    >>> import numpy as np
    >>> from keras_vit.evaluation import nearest_neighbours
    >>> features, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 1]
    >>> nearest_neighbours((features, labels), (features + 0.1, labels), k=(1,))
    {1: 1.0}
    """
    features, labels = _normalise(*train)
    queries, truth = _normalise(*test)
    if features.shape[1] != queries.shape[1]:
        raise ConfigError(
            f"The training features have width {features.shape[1]}, the test features "
            f"{queries.shape[1]}."
        )
    if not k or min(k) < 1 or max(k) > len(features):
        raise ConfigError(f"k={tuple(k)}: expected numbers from 1 to {len(features)}, the images.")
    if temperature <= 0:
        raise ConfigError(f"temperature={temperature}: expected a positive number.")
    classes = int(max(labels.max(), truth.max())) + 1
    right = dict.fromkeys(k, 0)
    for start in range(0, len(queries), _ROWS):
        similarity = queries[start : start + _ROWS] @ features.T
        order = np.argsort(-similarity, axis=1, kind="stable")[:, : max(k)]
        weights = np.exp(np.take_along_axis(similarity, order, axis=1) / temperature)
        rows = np.arange(len(order))[:, None]
        for count in k:
            votes = np.zeros((len(order), classes))
            np.add.at(votes, (rows, labels[order[:, :count]]), weights[:, :count])
            right[count] += int((votes.argmax(axis=1) == truth[start : start + _ROWS]).sum())
    return {count: right[count] / len(queries) for count in k}


def _normalise(features: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(as_features(features), "float64")
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.maximum(lengths, 1e-12), as_labels(labels, len(values))
