"""Computes the resize and the crop of each side of an image, by the rules of each protocol.

The host computes them with NumPy (`images.resizing`), and the graph of an export with `keras.ops`
(`exporting.pixels`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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


def compute_axes(sides: tuple[Any, Any], size: Size, parameters: Parameters, xp: Any) -> list[Axis]:
    """Returns the resize and crop of height and width.

    Args:
        sides: height and width of the image, float scalars.
        size: (height, width) of the model.
        parameters: a complete protocol, without a frame (`crop_mode="border"`).
        xp: `numpy` or `keras.ops`.
    """
    return _AXES[parameters["name"]](sides, size, parameters, xp)


def resize_small_for(size: Size, parameters: Parameters) -> int:
    """Returns the length of the smaller side that big_vision resizes to before its crop."""
    small, meant_for = parameters["resize_small"] or 256, parameters["image_size"] or 224
    return round(small * max(size) / meant_for)


def _squash(sides: tuple[Any, Any], size: Size, parameters: Parameters, xp: Any) -> list[Axis]:
    """The whole image, and of it the middle; an odd margin is smaller at first."""
    targets = [round(side / parameters.get("crop_pct", 1.0)) for side in size]
    return [
        Axis(0.0, have, float(to), float((to - want) // 2), want)
        for have, to, want in zip(sides, targets, size, strict=True)
    ]


def _big_vision(sides: tuple[Any, Any], size: Size, parameters: Parameters, xp: Any) -> list[Axis]:
    factor = float(resize_small_for(size, parameters)) / xp.minimum(*sides)
    return _compute_middle(sides, [xp.round(have * factor) for have in sides], size, xp)


def _compute_middle(sides: tuple[Any, Any], targets: list[Any], size: Size, xp: Any) -> list[Axis]:
    """The middle of a resized image; an odd margin is smaller at first."""
    return [
        Axis(0.0, have, target, xp.floor((target - want) / 2), want)
        for have, target, want in zip(sides, targets, size, strict=True)
    ]


def _quotient(dividend: Any, divisor: Any, xp: Any) -> Any:
    """Returns the quotient of whole numbers, rounded down.

    One half more changes no quotient. Without it OpenVINO, which multiplies by the reciprocal,
    gets 247 for 227 * 248 / 227.
    """
    return xp.floor((dividend + 0.5) / divisor)


def _timm(sides: tuple[Any, Any], size: Size, parameters: Parameters, xp: Any) -> list[Axis]:
    goal = [math.floor(side / parameters["crop_pct"]) for side in size]
    axes = []
    for have, to, want in zip(sides, goal, size, strict=True):
        if parameters["crop_mode"] == "squash":
            axes.append(Axis(0.0, have, float(to), float(round((to - want) / 2)), want))
            continue
        if goal[0] == goal[1]:
            target = _quotient(have * float(to), xp.minimum(*sides), xp)
        else:
            ratio = xp.minimum(sides[0] / float(goal[0]), sides[1] / float(goal[1]))
            target = xp.round(have / ratio)
        # torchvision's center_crop rounds half to even.
        axes.append(Axis(0.0, have, target, xp.round((target - want) / 2), want))
    return axes


def _transformers(
    sides: tuple[Any, Any], size: Size, parameters: Parameters, xp: Any
) -> list[Axis]:
    if parameters["crop_mode"] == "squash":
        return _squash(sides, size, parameters, xp)
    edge = float(round(max(size) / parameters["crop_pct"]))
    targets = [_quotient(have * edge, xp.minimum(*sides), xp) for have in sides]
    return _compute_middle(sides, targets, size, xp)


def _keras_hub(sides: tuple[Any, Any], size: Size, parameters: Parameters, xp: Any) -> list[Axis]:
    axes = []
    for k, (have, want) in enumerate(zip(sides, size, strict=True)):
        part = have
        if parameters["crop_to_aspect_ratio"]:
            fitting = _quotient(sides[1 - k] * float(want), float(size[1 - k]), xp)
            part = xp.maximum(xp.minimum(have, fitting), 1.0)
        axes.append(Axis(xp.floor((have - part) / 2), part, float(want), 0.0, want))
    return axes


_AXES: dict[str, Callable[..., list[Axis]]] = {
    "paper": _squash,
    "big_vision": _big_vision,
    "timm": _timm,
    "transformers": _transformers,
    "keras_hub": _keras_hub,
}
