"""Measures of an explanation: deletion and insertion, with two baselines."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.explanation.attention import image_axes
from keras_vit.explanation.classes import Target, choose_classes
from keras_vit.explanation.maps import check_batch, explain
from keras_vit.model import VisionTransformer


class Curve(NamedTuple):
    """The probability of a class while pixels are inserted or deleted, the most important first.

    Args:
        shares: shares of the pixels that are inserted or deleted, from 0 to 1, `(steps + 1,)`.
        probabilities: probabilities of the class, float32 `(batch, steps + 1)`.
        areas: areas under the curves, by trapezoids, float32 `(batch,)`, in [0, 1].
    """

    shares: np.ndarray
    probabilities: np.ndarray
    areas: np.ndarray


def deletion(
    model: VisionTransformer,
    images: Any,
    maps: np.ndarray,
    target: Target = None,
    *,
    steps: int = 16,
    baseline: Any = None,
    batch_size: int = 32,
) -> Curve:
    """Deletes the most important pixels first (Petsiuk, Das and Saenko 2018); small is good.

    Args:
        model: a `VisionTransformer` with one prediction per image.
        images: a float batch in the model's size and range.
        maps: maps of `explain`, `(batch, height, width)`; of equal pixels the upper left goes
            first.
        target: the class of the probability, as in `explain`; None for the prediction for the
            complete image.
        steps: number of equal parts of the pixels that are deleted one after the other.
        baseline: the replacement of a pixel: a pixel or a batch in the model's range; None for the
            middle of the model's range, which is the mean colour if the protocol has one.
        batch_size: images per step of the model.

    Raises:
        ConfigError: maps and images differ in size, the model has no such class, or `steps` is
            below 1.
    """
    images = check_batch(images, batch_size)
    grey = 0.0 if model.preprocessor.scaled else 127.5
    other = np.asarray(grey if baseline is None else baseline, "float32")
    other = np.broadcast_to(other, images.shape)
    return _curve(model, images, other, maps, target, steps, batch_size)


def insertion(
    model: VisionTransformer,
    images: Any,
    maps: np.ndarray,
    target: Target = None,
    *,
    steps: int = 16,
    baseline: Any = None,
    batch_size: int = 32,
) -> Curve:
    """Inserts the most important pixels first (Petsiuk, Das and Saenko 2018); large is good.

    The arguments are the same as in `deletion`, but `baseline=None` starts from the blurred image,
    as the paper does, because the edges of uniform squares would be shapes themselves.
    """
    images = check_batch(images, batch_size)
    if target is None:
        target = choose_classes(model, images, None, batch_size)
    other = blur(model, images) if baseline is None else np.asarray(baseline, "float32")
    other = np.broadcast_to(other, images.shape)
    return _curve(model, other, images, maps, target, steps, batch_size)


def _curve(
    model: VisionTransformer,
    before: np.ndarray,
    after: np.ndarray,
    maps: np.ndarray,
    target: Target,
    steps: int,
    batch_size: int,
) -> Curve:
    """Returns the probabilities while more and more pixels of `before` become those of `after`."""
    classes = choose_classes(model, before, target, batch_size)
    size = tuple(before.shape[axis] for axis in image_axes(model))
    if maps.shape != (len(before), *size):
        raise ConfigError(f"maps has the shape {maps.shape}, expected {(len(before), *size)}.")
    if steps < 1:
        raise ConfigError(f"steps={steps}: expected at least 1.")
    order = np.argsort(-maps.reshape(len(maps), -1), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    channels = -1 if model.data_format == "channels_last" else 1
    rank = np.expand_dims(rank.reshape(maps.shape), channels)
    shares = np.arange(steps + 1) / steps
    probabilities = []
    for share in shares:
        images = np.where(rank < round(share * order.shape[1]), after, before)
        outputs = model.probabilities(images, batch_size)
        probabilities.append(outputs[np.arange(len(images)), classes])
    curves = np.stack(probabilities, axis=1)
    areas = (curves[:, 1:] + curves[:, :-1]).mean(axis=1) / 2
    return Curve(shares, curves, areas)


def blur(model: VisionTransformer, images: np.ndarray) -> np.ndarray:
    """Returns images after a Gaussian blur whose deviation is 5/224 of a side.

    Petsiuk et al. blur images of 224 pixels in this way (kernel 11, deviation 5); edges are
    repeated. The deviation is at least 4 pixels: a small digit is still read after less.
    """
    for axis in image_axes(model):
        sigma = max(4.0, 5 / 224 * images.shape[axis])
        reach = max(1, round(1.1 * sigma))
        weights = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
        widths = [(0, 0)] * 4
        widths[axis] = (reach, reach)
        padded = np.pad(images, widths, mode="edge")
        count = images.shape[axis]
        parts = [
            np.float32(w / weights.sum()) * padded.take(range(k, k + count), axis)
            for k, w in enumerate(weights)
        ]
        images = np.sum(parts, axis=0)
    return np.asarray(images, "float32")


class Faithfulness(NamedTuple):
    """The faithfulness of a method, as means over the images.

    Args:
        deletion: area under the deletion curve; small is good.
        insertion: area under the insertion curve; large is good.
    """

    deletion: float
    insertion: float


BASELINES = ("random", "centre")


def compare_methods(
    model: VisionTransformer,
    images: Any,
    target: Target = None,
    methods: Sequence[str] = ("relevance", "integrated_gradients", "gradcam", "rollout"),
    *,
    steps: int = 16,
    baseline: Any = None,
    batch_size: int = 32,
) -> dict[str, Faithfulness]:
    """Returns the faithfulness of each method and of the two baselines on this model.

    A method that is not better than `"random"` and `"centre"` does not explain this model.

    Args:
        model, images, target, steps, batch_size: as in `deletion`.
        baseline: baseline of both curves, as in `deletion`; None for their different defaults.
        methods: methods of `explain`, with their default options.
    """
    images = check_batch(images, batch_size)
    classes = choose_classes(model, images, target, batch_size)
    options: dict[str, Any] = {"steps": steps, "baseline": baseline, "batch_size": batch_size}
    faithfulness = {}
    for method in dict.fromkeys((*methods, *BASELINES)):
        maps = explain(model, images, classes, method, batch_size=batch_size).maps
        areas = (
            curve(model, images, maps, classes, **options).areas for curve in (deletion, insertion)
        )
        faithfulness[method] = Faithfulness(*(float(area.mean()) for area in areas))
    return faithfulness
