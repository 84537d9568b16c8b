"""The protocols of `keras_vit.Preprocessor` as operations of a graph that takes images of any size.

A separable resize is two products of matrices, `rows @ image @ columns^T`, whose weights the graph
computes from the sizes of the image. One form serves every filter on every backend and in every
format, and a crop costs nothing: its pixels are the only rows of the matrices.
`keras_vit.images` computes the same on the host; `docs/export.md` states how near they are.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from keras import ops

from keras_vit.images.protocols import complete
from keras_vit.images.resizing import resize_small_for
from keras_vit.interpolate import absolute
from keras_vit.kernels import sizes

Size = tuple[int, int]
Parameters = Mapping[str, Any]


class Axis(NamedTuple):
    """The resize and crop of one side of an image; numbers are floats or float scalars.

    Args:
        first: the first old pixel that is read.
        source: number of old pixels that are read.
        target: number of new pixels that they become.
        begin: the first new pixel of the result.
        length: number of new pixels from `begin` on.
    """

    first: Any
    source: Any
    target: Any
    begin: Any
    length: int


def refusal(protocol: Any, size: Size | None) -> str | None:
    """Returns the part of a protocol that a graph cannot compute, in words, or None."""
    parameters = complete(protocol)
    if size is not None and parameters.get("crop_mode") == "border":
        return "a frame of the mean colour (crop_mode='border')"
    name = parameters.get("interpolation", "bilinear")
    if size is not None and name not in _KERNELS:
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
    axes = _AXES[parameters["name"]](sides, size, parameters)
    weights = _filter(parameters)
    rows = weights(axes[0], sizes.steps(height))
    columns = weights(axes[1], sizes.steps(width))
    between, after = _ROUNDING[parameters["name"]]
    if parameters.get("resize", "pillow") != "pillow":
        between, after = _as_it_is, _to_8_bits if parameters["resize"] == "tensor" else _as_it_is
    # Columns first, as Pillow does unless rows first is cheaper. It rounds to 8 bits after each.
    half = between(ops.matmul(images, ops.transpose(columns)))
    return after(ops.matmul(rows, half))


def scale(images: Any, protocol: Any) -> Any:
    """Returns pixels in the range of the weights; `(batch, channels, height, width)`."""
    mean, std = (_per_channel(complete(protocol)[key]) for key in ("mean", "std"))
    return (images - mean) / std


def _per_channel(numbers: Any) -> Any:
    values = [255.0 * value for value in (numbers if isinstance(numbers, list) else [numbers])]
    return ops.reshape(ops.convert_to_tensor(values, "float32"), (1, -1, 1, 1))


def _squash(sides: tuple[Any, Any], size: Size, target: Size) -> list[Axis]:
    """The whole image at `target`, and of it the middle; an odd margin is smaller at first."""
    return [
        Axis(0.0, have, float(to), float((to - want) // 2), want)
        for have, to, want in zip(sides, target, size, strict=True)
    ]


def _paper(sides: tuple[Any, Any], size: Size, _: Parameters) -> list[Axis]:
    return _squash(sides, size, size)


def _transformers(sides: tuple[Any, Any], size: Size, parameters: Parameters) -> list[Axis]:
    height, width = (round(side / parameters["crop_pct"]) for side in size)
    return _squash(sides, size, (height, width))


def _big_vision(sides: tuple[Any, Any], size: Size, parameters: Parameters) -> list[Axis]:
    factor = float(resize_small_for(size, dict(parameters))) / ops.minimum(*sides)
    axes = []
    for have, want in zip(sides, size, strict=True):
        target = ops.round(have * factor)
        axes.append(Axis(0.0, have, target, ops.floor((target - want) / 2), want))
    return axes


def _timm(sides: tuple[Any, Any], size: Size, parameters: Parameters) -> list[Axis]:
    goal = [math.floor(side / parameters["crop_pct"]) for side in size]
    axes = []
    for have, to, want in zip(sides, goal, size, strict=True):
        if parameters["crop_mode"] == "squash":
            target = ops.convert_to_tensor(float(to), "float32")
        elif goal[0] == goal[1]:
            target = ops.floor(have * float(to) / ops.minimum(*sides))
        else:
            ratio = ops.minimum(sides[0] / float(goal[0]), sides[1] / float(goal[1]))
            target = ops.round(have / ratio)
        axes.append(Axis(0.0, have, target, ops.round((target - want) / 2), want))
    return axes


def _keras_hub(sides: tuple[Any, Any], size: Size, parameters: Parameters) -> list[Axis]:
    axes = []
    for k, (have, want) in enumerate(zip(sides, size, strict=True)):
        part = have
        if parameters["crop_to_aspect_ratio"]:
            fitting = ops.floor(sides[1 - k] * float(want) / float(size[1 - k]))
            part = ops.maximum(ops.minimum(have, fitting), 1.0)
        axes.append(Axis(ops.floor((have - part) / 2), part, float(want), 0.0, want))
    return axes


_AXES: dict[str, Callable[..., list[Axis]]] = {
    "paper": _paper,
    "big_vision": _big_vision,
    "timm": _timm,
    "transformers": _transformers,
    "keras_hub": _keras_hub,
}


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
    if "interpolation" in parameters:
        name = parameters["interpolation"]
        return lambda axis, old: _windowed(axis, old, name)
    if parameters.get("method") == "area":
        return _area
    if parameters.get("antialias"):
        return lambda axis, old: _windowed(axis, old, "bilinear")
    return _bilinear


def _new_pixels(axis: Axis) -> Any:
    return (sizes.steps(axis.length) + axis.begin)[:, None]  # (length, 1)


def _bilinear(axis: Axis, old: Any) -> Any:
    """Half-pixel centres without antialias, `(length, pixels)`."""
    centre = (_new_pixels(axis) + 0.5) * (axis.source / axis.target) - 0.5
    centre = ops.clip(centre, 0.0, axis.source - 1.0)
    return ops.maximum(1.0 - absolute(old[None] - axis.first - centre, ops), 0.0)


def _area(axis: Axis, old: Any) -> Any:
    """The share of each old pixel in the area that a new one covers."""
    scale = axis.source / axis.target
    new, pixel = _new_pixels(axis), old[None] - axis.first
    covered = ops.minimum((new + 1.0) * scale, pixel + 1.0) - ops.maximum(new * scale, pixel)
    return ops.maximum(covered, 0.0) / scale


def _windowed(axis: Axis, old: Any, name: str) -> Any:
    """Returns the weights of Pillow's filter, which widens to a new pixel when an image shrinks."""
    scale = axis.source / axis.target
    centre = (_new_pixels(axis) + 0.5) * scale
    pixel = old[None] - axis.first
    is_there = ops.cast(ops.logical_and(pixel >= 0.0, pixel < axis.source), "float32")
    weights = _KERNELS[name]((pixel + 0.5 - centre) / ops.maximum(scale, 1.0)) * is_there
    return weights / ops.sum(weights, axis=1, keepdims=True)


def _triangle(x: Any) -> Any:
    return ops.maximum(1.0 - absolute(x, ops), 0.0)


def _bicubic(x: Any) -> Any:
    d = ops.minimum(absolute(x, ops), 2.0)
    near = (1.5 * d - 2.5) * d * d + 1.0
    far = ((-0.5 * d + 2.5) * d - 4.0) * d + 2.0
    return ops.where(d <= 1.0, near, far)


_KERNELS: dict[str, Callable[[Any], Any]] = {"bilinear": _triangle, "bicubic": _bicubic}
