"""Which map to believe: deletion and insertion of methods and of two baselines, for vit_digits.

python examples/paper/faithfulness.py

A method that is not better than the baselines `random` and `centre` does not explain the model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.errors import ConfigError
from keras_vit.explanation.curves import BASELINES, areas_below, blur, grey, replace_pixels
from keras_vit.explanation.maps import Target, check_batch, choose_classes
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import AnyMethod


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


class Faithfulness(NamedTuple):
    """The faithfulness of a method, as means over the images.

    Args:
        deletion: area under the deletion curve; small is good.
        insertion: area under the insertion curve; large is good.
    """

    deletion: float
    insertion: float


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
        maps: maps of `keras_vit.explain`, `(batch, height, width)`.
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
    other = np.asarray(grey(model) if baseline is None else baseline, "float32")
    classes = choose_classes(model, images, target, batch_size)
    return _curve(model, images, other, maps, classes, steps, batch_size)


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
    other = blur(model, images) if baseline is None else np.asarray(baseline, "float32")
    classes = choose_classes(model, images, target, batch_size)
    return _curve(model, other, images, maps, classes, steps, batch_size)


def _curve(
    model: VisionTransformer,
    before: np.ndarray,
    after: np.ndarray,
    maps: np.ndarray,
    classes: np.ndarray,
    steps: int,
    batch_size: int,
) -> Curve:
    before, after = np.broadcast_arrays(before, after)
    height_width = before.shape[1:3] if model.data_format == "channels_last" else before.shape[2:]
    if maps.shape != (len(before), *height_width):
        raise ConfigError(
            f"maps has the shape {maps.shape}, expected {(len(before), *height_width)}."
        )
    if steps < 1:
        raise ConfigError(f"steps={steps}: expected at least 1.")
    curves = replace_pixels(model, before, after, maps, classes, steps, batch_size)
    return Curve(np.arange(steps + 1) / steps, curves, areas_below(curves))


def compare_methods(
    model: VisionTransformer,
    images: Any,
    target: Target = None,
    methods: Sequence[AnyMethod] = ("relevance", "integrated_gradients", "gradcam", "rollout"),
    *,
    steps: int = 16,
    baseline: Any = None,
    batch_size: int = 32,
) -> dict[str, Faithfulness]:
    """Returns the faithfulness of each method and of the two baselines on this model.

    Args:
        model, images, target, steps, batch_size: as in `deletion`.
        baseline: baseline of both curves, as in `deletion`; None for their different defaults.
        methods: methods of `keras_vit.explain`, with their default options.
    """
    images = check_batch(images, batch_size)
    classes = choose_classes(model, images, target, batch_size)
    options: dict[str, Any] = {"steps": steps, "baseline": baseline, "batch_size": batch_size}
    faithfulness: dict[str, Faithfulness] = {}
    for method in dict.fromkeys((*methods, *BASELINES)):
        maps = keras_vit.explain(
            model, images, classes, method, batch_size=batch_size, prepared=True
        ).maps
        curves = (curve(model, images, maps, classes, **options) for curve in (deletion, insertion))
        faithfulness[method] = Faithfulness(*(float(curve.areas.mean()) for curve in curves))
    return faithfulness


if __name__ == "__main__":
    model = VisionTransformer.from_preset("vit_digits")
    digits = np.round(load_digits().images[:60] * (255 / 16)).astype("uint8")
    areas = compare_methods(model, model.preprocessor(digits))
    for name, (deleted, inserted) in areas.items():
        print(f"{name:<22} deletion {deleted:.2f}, insertion {inserted:.2f}")
