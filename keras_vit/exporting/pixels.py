"""The preprocessing of `keras_vit.Preprocessor` in an exported graph, for images of any size.

A separable resize is two products of matrices, `rows @ image @ columns^T`, whose weights the graph
computes from the size of the image. One form serves every filter on every backend and in every
format, and a crop costs nothing: the matrices have only the rows of its pixels.
`keras_vit.images` computes the same on the host; `docs/export.md` states how closely they agree.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.images.geometry import Axis, Parameters, Size, compute_axes
from keras_vit.images.protocols import complete
from keras_vit.kernels import sizes
from keras_vit.support.interpolation import resampling_weights


def refusal(protocol: Any, size: Size | None) -> str | None:
    """Returns the part of a protocol that a graph cannot compute, as text, or None."""
    parameters = complete(protocol)
    if size is not None and parameters.get("crop_mode") == "border":
        return "a frame of the mean colour (crop_mode='border')"
    name = parameters.get("interpolation", "bilinear")
    if size is not None and name not in _ANTIALIASED:
        return f"Pillow's filter {name} (interpolation={name!r})"
    return None


def rounds(protocol: Any) -> bool:
    """Whether the protocol rounds resized pixels to whole numbers."""
    parameters = complete(protocol)
    return parameters["name"] != "paper" and parameters.get("resize") != "float"


def resize(images: Any, size: Size, protocol: Any) -> Any:
    """Returns images at the model's size, float32 `(batch, channels, height, width)` in [0, 255].

    Args:
        images: float32 whole numbers in [0, 255], `(batch, channels, height, width)`; height and
            width may be symbols or tensors.
        size: (height, width) of the model.
        protocol: see `keras_vit.images.protocols`.
    """
    parameters = complete(protocol)
    height, width = ops.shape(images)[2:]
    sides = sizes.number(height), sizes.number(width)
    axes = compute_axes(sides, size, parameters, ops)
    weights = _filter(parameters)
    rows = weights(axes[0], sizes.steps(height))
    columns = weights(axes[1], sizes.steps(width))
    between, after = _ROUNDING[parameters["name"]]
    if parameters.get("resize", "pillow") != "pillow":
        between, after = _as_it_is, _to_8_bits if parameters["resize"] == "tensor" else _as_it_is
    # Columns first, as Pillow does unless rows first is cheaper. It rounds to 8 bits after each.
    if keras.backend.backend() == "tensorflow":  # a fault, see tests/exporting/test_pixels.py
        half = ops.tensordot(images, ops.transpose(columns), 1)
    else:
        half = ops.matmul(images, ops.transpose(columns))
    return after(ops.matmul(rows, between(half)))


def scale(images: Any, protocol: Any) -> Any:
    """Returns pixels in the range of the weights; `(batch, channels, height, width)`."""
    mean, std = (_per_channel(complete(protocol)[key]) for key in ("mean", "std"))
    return (images - mean) / std


def _per_channel(numbers: Any) -> Any:
    values = [255.0 * value for value in (numbers if isinstance(numbers, list) else [numbers])]
    return ops.reshape(ops.convert_to_tensor(values, "float32"), (1, -1, 1, 1))


def _to_8_bits(x: Any) -> Any:
    return ops.clip(ops.floor(x + 0.5), 0.0, 255.0)


def _as_it_is(x: Any) -> Any:
    return x


_ROUNDING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "paper": (_as_it_is, _as_it_is),
    "big_vision": (_as_it_is, lambda x: ops.floor(ops.clip(x, 0.0, 255.0))),
    "timm": (_to_8_bits, _to_8_bits),
    "transformers": (_to_8_bits, _to_8_bits),
    "keras_hub": (_as_it_is, ops.round),
}
"""The functions of pixels between the two products, and after them."""


def _filter(parameters: Parameters) -> Callable[[Axis, Any], Any]:
    if parameters.get("method") == "area":
        return _area
    method = "bilinear_antialias" if parameters.get("antialias") else "bilinear_half_pixel"
    method = _ANTIALIASED.get(parameters.get("interpolation", ""), method)
    return lambda axis, old: _resample(axis, old, method)


def _new_pixels(axis: Axis) -> Any:
    return (sizes.steps(axis.length) + axis.begin)[:, None]  # (length, 1)


def _area(axis: Axis, old: Any) -> Any:
    """Returns the fraction of each new pixel's area that is in each old pixel."""
    scale = axis.source / axis.target
    new, pixel = _new_pixels(axis), old[None] - axis.first
    covered = ops.minimum((new + 1.0) * scale, pixel + 1.0) - ops.maximum(new * scale, pixel)
    return ops.maximum(covered, 0.0) / scale


def _resample(axis: Axis, old: Any, method: str) -> Any:
    """Returns the weight of each old pixel in each new one; 0 for pixels outside the crop."""
    pixel = old[None] - axis.first
    weights = resampling_weights(axis.source, axis.target, pixel, _new_pixels(axis), method, ops)
    if method == "bilinear_half_pixel":
        return weights
    is_there = ops.cast(ops.logical_and(pixel >= 0.0, pixel < axis.source), "float32")
    weights = weights * is_there
    return weights / ops.sum(weights, axis=1, keepdims=True)


_ANTIALIASED = {"bilinear": "bilinear_antialias", "bicubic": "bicubic_antialias"}
"""The filters of Pillow that a graph can compute, and the method of `resampling_weights`."""
