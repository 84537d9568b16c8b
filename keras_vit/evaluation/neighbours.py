"""Measures features without training: accuracy of nearest neighbours (k-NN) and effective rank."""

from typing import Any

import numpy as np

from keras_vit.config.rules import COUNT
from keras_vit.errors import ConfigError
from keras_vit.evaluation.probes import as_features, as_labels

_TEMPERATURE = 0.07
"""Temperature of the neighbours' votes (Wu et al. 2018, arXiv 1805.01978), as in DINO."""


def knn_accuracy(features: Any, labels: Any, neighbours: int = 20) -> float:
    """Returns the k-NN accuracy of features: each image is predicted by its nearest neighbours.

    A neighbour's vote is exp(cosine / 0.07), as in DINO (arXiv 2104.14294, section 4.1). Every
    image is predicted from all other images (leave-one-out).

    Args:
        features: `(images, width)`, as `keras_vit.evaluation.features` returns them.
        labels: integers `(images,)`.
        neighbours: number of images that vote.

    Raises:
        ConfigError: there are fewer than two images, `neighbours` is below 1, or features and
            labels do not fit.
    """
    COUNT.check("neighbours", neighbours)
    features = as_features(features).astype("float32")  # squares overflow in float16
    labels = as_labels(labels, len(features))
    if labels.ndim != 1 or len(features) < 2:
        raise ConfigError(
            "knn_accuracy needs two or more images with one label each, found "
            f"{len(features)} images and labels of shape {labels.shape}."
        )
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    classes, right = np.eye(int(labels.max()) + 1), 0
    for start in range(0, len(unit), 1024):
        cosines = unit[start : start + 1024] @ unit.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :neighbours]
        votes = np.exp((np.take_along_axis(cosines, nearest, axis=1) - 1) / _TEMPERATURE)
        scores = (votes[..., None] * classes[labels[nearest]]).sum(axis=1)
        right += int((scores.argmax(axis=1) == labels[start + rows]).sum())
    return right / len(unit)


def effective_rank(features: Any) -> float:
    """Returns the effective rank of features: in how many directions they vary.

    It lies between 1 and the width of the features, and is exp(entropy) of the singular values of
    the centred features (RankMe, Garrido et al. 2023, arXiv 2210.02885). Features that are the same
    for all images have rank 0.

    Raises:
        ConfigError: features are not finite values `(images, width)`.
    """
    features = as_features(features).astype("float64")
    centred = features - features.mean(axis=0)
    if np.square(centred).sum() <= 1e-10 * np.square(features).sum():  # rounding alone
        return 0.0
    shares = np.linalg.svd(centred, compute_uv=False)
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
