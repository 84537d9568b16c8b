"""Chooses the decision thresholds of a multi-label classifier."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError, expect_model
from keras_vit.evaluation.metrics import cuts
from keras_vit.evaluation.targets import match_columns, predict_targets
from keras_vit.models.losses import compute_probabilities
from keras_vit.models.vision_transformer import VisionTransformer


def choose_thresholds(
    model: VisionTransformer, data: Any, *, batch_size: int = 32, prepared: bool = False
) -> tuple[float, ...]:
    """Chooses the decision threshold of each class with the highest F1 on held-out images.

    It lies midway between the probabilities of two images. Set them by
    `model.thresholds = choose_thresholds(model, validation)`; a preset keeps them.

    Args:
        model: a multi-label model.
        data: images and labels as for `evaluate`, which the model was not trained on.
        batch_size: images per step; a data set has its own batches.
        prepared: whether the images are an array that `model.preprocessor` has prepared.

    Returns:
        One threshold per class of the model; a class without images keeps its threshold.

    Raises:
        ConfigError: the model is not multi-label, or the data do not fit it or have no labels.

    >>> import numpy as np, keras_vit
    >>> from keras_vit.evaluation import choose_thresholds
    >>> model = keras_vit.vit_ti16(image_size=32, num_classes=2, task="multi_label", thresholds=0.4)
    >>> images, labels = np.zeros((4, 32, 32, 3), "float32"), np.array([[1, 0], [0, 0]] * 2)
    >>> choose_thresholds(model, (images, labels))  # a head of zeros: every probability is 0.5
    (0.25, 0.4)
    """
    if (thresholds := expect_model(model).thresholds) is None:
        raise ConfigError('The model has no thresholds: load it with task="multi_label".')
    columns = match_columns(model, data, None)
    batches = predict_targets(model, data, *columns, batch_size, prepared)
    logits, rights = map(np.concatenate, zip(*batches, strict=True))
    return best_thresholds(compute_probabilities(logits, task="multi_label"), rights, thresholds)


def best_thresholds(
    shares: np.ndarray, rights: np.ndarray, defaults: Sequence[float]
) -> tuple[float, ...]:
    """Returns the threshold of each class with the highest F1; see `choose_thresholds`.

    Args:
        shares: probability of each class, `(images, classes)`.
        rights: bool `(images, classes)`.
        defaults: thresholds of classes without images.
    """
    thresholds = list(defaults)
    for k, right in enumerate(rights.T):
        if right.any():
            values, taken, hits = cuts(shares[:, k], right)
            best = int(np.argmax(2 * hits / (taken + right.sum())))
            thresholds[k] = float((values[best] + [*values[1:], 0.0][best]) / 2)
    return tuple(thresholds)
