"""Rearranges arrays by axis strings such as `"m h d"` and `"(qkv h d) m"`, as einops does.

A rearrangement is a pair of axis strings; swapping the two gives its inverse. A letter or
word is an axis, `1` is an axis of length 1, and parentheses merge axes into one.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Groups = tuple[tuple[str, ...], ...]


@functools.cache
def parse(axes: str) -> Groups:
    """Returns one tuple of symbols per array dimension: `"(h d) m"` is `(("h", "d"), ("m",))`."""
    groups = re.findall(r"\(([^()]*)\)|([^\s()]+)", axes)
    return tuple((symbol,) if symbol else tuple(merged.split()) for merged, symbol in groups)


def compute_shape(axes: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the shape of an array with these axes."""
    return tuple(math.prod(_size(s, sizes) for s in group) for group in parse(axes))


def _size(symbol: str, sizes: Mapping[str, int]) -> int:
    return 1 if symbol == "1" else sizes[symbol]


def rearrange(
    array: "np.ndarray", source: str, target: str, sizes: Mapping[str, int]
) -> "np.ndarray":
    """Rearranges an array from the axes `source` to the axes `target`.

    Both strings name the same symbols, except for axes of length 1. The result is a view
    if possible, so that a rearrangement followed by its inverse costs nothing; see `in_order`.
    """
    if source == target:
        return array
    split = [s for group in parse(source) for s in group if s != "1"]
    order = [s for group in parse(target) for s in group if s != "1"]
    array = array.reshape([sizes[s] for s in split]).transpose([split.index(s) for s in order])
    if any(len(group) > 1 for group in parse(target)):
        array = in_order(array)
    return array.reshape(compute_shape(target, sizes))


def in_order(view: "np.ndarray") -> "np.ndarray":
    """Returns the array in C order: the array itself if it is in C order, or else a copy."""
    return view if view.flags.c_contiguous else copy_in_order(view, view.dtype)


def copy_in_order(
    view: "np.ndarray", dtype: Any, allocate: Callable[..., "np.ndarray"] | None = None
) -> "np.ndarray":
    """Returns a copy in C order and in another type, whose memory a backend can take over.

    `allocate` is an argument of `keras_vit.support.memory.aligned`; None stands for `np.empty`.

    The copy takes eight columns at a time. NumPy copies a transposed matrix row by row, and
    would read a cache line of the source again after it has left the cache.
    """
    import numpy as np  # `keras-vit list` starts without it

    from keras_vit.support.memory import aligned

    ordered = aligned(view.shape, dtype, allocate or np.empty)
    if view.flags.c_contiguous or view.strides[-1] == view.itemsize or view.size < 2**14:
        ordered[...] = view
        return ordered
    shape: list[int] = []  # neighbouring axes that are contiguous in memory are merged
    strides: list[int] = []
    for size, stride in zip(view.shape, view.strides, strict=True):
        if strides and strides[-1] == stride * size:
            shape[-1], strides[-1] = shape[-1] * size, stride
        else:
            shape.append(size)
            strides.append(stride)
    source, target = view.reshape(shape), ordered.reshape(shape)  # both are views
    for start in range(0, shape[-1], 8):
        target[..., start : start + 8] = source[..., start : start + 8]
    return ordered


def solve(axes: str, shape: tuple[int, ...]) -> dict[str, int]:
    """Returns the size of each axis in a shape, except of merged axes.

    The result is empty if the shape has another rank.
    """
    groups = parse(axes)
    if len(groups) != len(shape):
        return {}
    return {
        group[0]: size
        for group, size in zip(groups, shape, strict=True)
        if len(group) == 1 and group[0] != "1"
    }
