"""`explain`: heatmaps of the evidence for a class in an image."""

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.config.rules import COUNT, choice
from keras_vit.errors import ConfigError, expect_model
from keras_vit.explanation.methods import METHODS, weigh_outputs
from keras_vit.images.class_names import class_index
from keras_vit.models.image_checks import prepare
from keras_vit.models.inference import run
from keras_vit.models.losses import per_class
from keras_vit.models.tokens import compute_grid, image_axes
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import AnyMethod

Target = int | str | np.ndarray | None


class Explanation(NamedTuple):
    """Heatmaps of the evidence for a class; higher values mean stronger evidence.

    Args:
        maps: float32 `(batch, height, width)` at the size of the images. A pixel has the value of
            its patch; `"integrated_gradients"` has separate values for pixels.
        patches: float32 `(batch, rows, columns)`; for `"integrated_gradients"` the sums over the
            pixels of a patch.
        classes: int32 `(batch,)`, the class that is explained; None for the methods without a
            class: `"attention"`, `"rollout"`, `"random"` and `"centre"`.
    """

    maps: np.ndarray
    patches: np.ndarray
    classes: np.ndarray | None


def explain(
    model: VisionTransformer,
    images: Any,
    target: Target = None,
    method: AnyMethod = "relevance",
    *,
    batch_size: int = 32,
    prepared: bool = False,
    **options: Any,
) -> Explanation:
    """Explains predictions by heatmaps: the evidence for a class in each part of an image.

    Attention is not explanation: a map of weights shows where a model looked, not which change
    would alter its prediction. The report of `keras-vit explain` and the example
    `examples/paper/faithfulness.py` measure the methods.

    | method | map | options |
    |---|---|---|
    | `"relevance"` | gradient times attention, all blocks (arXiv 2103.15679) | |
    | `"integrated_gradients"` | Sundararajan et al. 2017, signed | `steps=32`, `baseline` |
    | `"gradcam"` | Selvaraju et al. 2017, tokens that enter a block | `stage` |
    | `"occlusion"` | fall of the score without a patch, signed | `baseline` |
    | `"rollout"` | attention, all blocks (arXiv 2005.00928) | |
    | `"attention"` | attention of the head's input, one block | `stage`, `head` |
    | `"random"` | uniform random values, as a baseline | `seed=0` |
    | `"centre"` | the middle of the image, as a baseline | |

    `stage` is a name such as `"block_3/input"` (gradcam) or `"block_3/attention"` (attention); the
    default is the last block's, and for attention with `pooling="map"` that of the pooling,
    `"pool/attention"`. `head=None` is the mean over the heads. `baseline` is a pixel or an image in
    the model's range; the default is black. `occlusion` runs the model once for every patch.

    Args:
        model: a `VisionTransformer`.
        images: paths, PIL images or arrays, as for `model.preprocessor`.
        target: the class, by index or label; an integer array `(batch,)` with one class per image;
            None for the predicted class.
        method: a method of the table.
        batch_size: images per step. A step takes as much memory as a training step, and
            `"relevance"` and `"rollout"` also keep the attention weights of all blocks.
        prepared: whether `images` is a batch that `model.preprocessor` has made.
        **options: options of the method.

    Returns:
        The maps, and the class that they explain.

    Raises:
        ConfigError: the method, option, class, stage or head is unknown; the model is quantised
            and the method needs gradients; the map has NaN, because a weight has; an image cannot
            be read; or the images may be a prepared batch, and `prepared` is False.

    >>> import numpy as np, keras_vit
    >>> model = keras_vit.VisionTransformer.from_preset("vit_digits")
    >>> images = np.zeros((2, 8, 8), "uint8")
    >>> keras_vit.explain(model, images, target="3").maps.shape
    (2, 16, 16)
    """
    expect_model(model).config.refuse_packed("An explanation")
    model.config.refuse_map("An explanation")
    images = check_batch(prepare(model, images, prepared), batch_size)
    choice(*METHODS).check("method", method)
    make, asks_class, gives_pixels = METHODS[method]
    names = list(inspect.signature(make).parameters)[1:]
    if odd := [name for name in options if name not in names]:
        raise ConfigError(
            f"method={method!r} has no option {odd[0]!r}; it has {', '.join(names) or 'none'}."
        )
    one_batch = make(model, **options)

    classes = None
    if asks_class or target is not None:
        classes = choose_classes(model, images, target, batch_size)
    evidence = _in_batches(model, one_batch, images, classes, batch_size)
    if not np.isfinite(evidence).all():
        raise ConfigError(_why_not_finite(model, method))
    if gives_pixels:
        sums = _per_patch(evidence, compute_grid(model, images), model.config)
        return Explanation(evidence, sums, classes)
    height, width = (images.shape[axis] for axis in image_axes(model))
    maps = spread(evidence, (height, width), model.config)
    return Explanation(maps, evidence, classes if asks_class else None)


def choose_classes(
    model: VisionTransformer, images: np.ndarray, target: Target, batch_size: int
) -> np.ndarray:
    """Returns the class that is explained for each image, int32 `(batch,)`.

    Args:
        model: a model with one prediction per image.
        images: a float batch in the model's size and range.
        target: a class for all images, by index or label; an integer array `(batch,)` with one
            class per image; or None for the predicted class.
        batch_size: images per step.

    Raises:
        ConfigError: the model has no such class, or `target` does not have one class per image.
    """
    model.config.demand_prediction("An explanation of a class")
    model.prediction.demand_classes("An explanation of a class")
    if target is None:
        answers = per_class(run(model, images, batch_size=batch_size), model.prediction)
        return answers.argmax(-1).astype("int32")
    if isinstance(target, np.ndarray) and target.ndim:
        if target.shape != (len(images),):
            raise ConfigError(
                f"target has the shape {target.shape}, expected ({len(images)},): one class for "
                "each image."
            )
        targets: Iterable[Any] = target
    else:
        targets = [target.item() if isinstance(target, np.ndarray) else target] * len(images)
    count = model.prediction.num_answers
    classes = [class_index(each, model.class_names, count) for each in targets]
    return np.asarray(classes, "int32")


def check_batch(images: Any, batch_size: int) -> np.ndarray:
    """Returns the images as float32; raises `ConfigError` unless they have four axes."""
    COUNT.check("batch_size", batch_size)
    images = np.asarray(keras.ops.convert_to_numpy(images), "float32")
    if images.ndim != 4 or not len(images):
        raise ConfigError(
            f"images has the shape {images.shape}; expected a batch as the model takes it, with "
            "four axes: model.preprocessor makes one of files and arrays."
        )
    return images


def _in_batches(
    model: VisionTransformer,
    one_batch: Any,
    images: np.ndarray,
    classes: np.ndarray | None,
    batch_size: int,
) -> np.ndarray:
    """Runs a method over all images in batches of one size, so that it is compiled once."""
    chosen = np.zeros((len(images), 1), "float32")  # of methods that ask for no class
    if classes is not None:
        chosen = weigh_outputs(model.prediction, classes)
    size = min(batch_size, len(images))
    parts = []
    for start in range(0, len(images), size):
        part = np.s_[start : start + size]
        count = len(images[part])
        batch, one_hot = (
            np.pad(x[part], [(0, size - count)] + [(0, 0)] * (x.ndim - 1)) for x in (images, chosen)
        )
        parts.append(one_batch(batch, one_hot)[:count])
    return np.concatenate(parts).astype("float32", copy=False)


def _why_not_finite(model: VisionTransformer, method: str) -> str:
    """Returns the message for a map with NaN or infinity, which names the cause."""
    for weight in model.weights:
        if not np.isfinite(keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))).all():
            return f"method={method!r} gave NaN: the weight {weight.path} is not finite."
    return f"method={method!r} gave NaN although all weights are finite; are the images?"


def spread(patches: np.ndarray, image_size: tuple[int, int], config: ViTConfig) -> np.ndarray:
    """Returns `(batch, height, width)`, in which each pixel has the value of its patch.

    Pixels at the right and lower edge that fill no patch are 0: the model does not read them.
    """
    high, wide = config.stride
    maps = patches.repeat(high, axis=1).repeat(wide, axis=2)[:, : image_size[0], : image_size[1]]
    missing = [(0, side - seen) for side, seen in zip(image_size, maps.shape[1:], strict=True)]
    return np.pad(maps, [(0, 0), *missing])


def _per_patch(maps: np.ndarray, grid: tuple[int, int], config: ViTConfig) -> np.ndarray:
    """Returns `(batch, rows, columns)`, the sums over the pixels of each patch."""
    high, wide = config.stride
    sides = grid[0] * high, grid[1] * wide
    maps = maps[:, : sides[0], : sides[1]]
    missing = [(0, side - seen) for side, seen in zip(sides, maps.shape[1:], strict=True)]
    maps = np.pad(maps, [(0, 0), *missing])
    return maps.reshape(len(maps), grid[0], high, grid[1], wide).sum(axis=(2, 4))
