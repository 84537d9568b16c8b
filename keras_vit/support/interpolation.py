"""Resamples one axis with a matrix: the core of every resize of position embeddings.

A grid is resized as `rows @ grid @ columns^T`. The same function is used for a checkpoint on the
host (NumPy) and for a layer in the graph (`keras.ops`).
"""

from typing import Any

import numpy as np


def resampling_matrix(source: int, target: int, method: str) -> np.ndarray:
    """Returns the `(target, source)` matrix that resamples `source` points to `target`, float64.

    Args:
        source, target: number of points, at least 1.
        method: see `resampling_weights`.
    """
    points = np.arange(source, dtype="float64"), np.arange(target, dtype="float64")[:, None]
    return np.asarray(resampling_weights(source, target, *points, method, np))


def resampling_weights(
    source: int, target: Any, source_points: Any, target_points: Any, method: str, xp: Any
) -> Any:
    """Returns the interpolation weights `(..., source)` for new points `(..., 1)`.

    Args:
        source: number of points, at least 1.
        target: number of new points, at least 1; in a graph of any size a float scalar, or an
            array with the axes of `target_points` for several grids at once.
        source_points: the indices from 0 to `source - 1`.
        target_points: indices from 0 to `target - 1`, `(..., 1)`.
        method: `"bilinear_align_corners"` maps the first and last points onto each
            other (`scipy.ndimage.zoom` of order 1). All further methods align the outer edges
            of the points' cells: `"bilinear_half_pixel"` (`jax.image.resize` without
            antialias), `"bilinear_antialias"`, `"bicubic"` and `"bicubic_antialias"`
            (`torch.nn.functional.interpolate`, whose cubic has a = -0.75, and with
            antialias a = -0.5), and `"bicubic_catmull_rom"` (`jax.image.resize`
            without antialias: a = -0.5). `"bilinear_longer_side"` is `"bilinear_half_pixel"` with
            the longer side of the new grid as `target` of both sides.
        xp: `numpy` or `keras.ops`.
    """
    if method == "bilinear_align_corners":
        position = target_points * (source - 1) / xp.maximum(target - 1, 1)
        return triangle(position - source_points, xp)
    ratio = source / target
    position = (target_points + 0.5) * ratio - 0.5
    if method in ("bilinear_half_pixel", "bilinear_longer_side"):
        return triangle(xp.clip(position, 0.0, source - 1.0) - source_points, xp)
    if method == "bicubic":
        first = xp.floor(position)
        matrix = 0.0
        for tap in (-1, 0, 1, 2):  # taps beyond the edge read the edge
            read = xp.clip(first + tap, 0.0, source - 1.0)
            weight = cubic(position - first - tap, -0.75, xp)
            matrix = matrix + weight * triangle(read - source_points, xp)
        return matrix
    # Antialias: a shrinking resize widens the kernel.
    scale = xp.maximum(ratio, 1.0) if method.endswith("antialias") else 1.0
    distance = (position - source_points) / scale
    is_linear = method == "bilinear_antialias"
    matrix = triangle(distance, xp) if is_linear else cubic(distance, -0.5, xp)
    return matrix / xp.sum(matrix, axis=-1, keepdims=True)


def triangle(distance: Any, xp: Any) -> Any:
    """Returns the linear kernel, zero from distance 1 on, in the given precision."""
    return xp.maximum(1.0 - absolute(distance, xp), 0.0)


def cubic(distance: Any, a: float, xp: Any) -> Any:
    """Returns Keys' cubic convolution kernel, zero from distance 2 on, in the given precision."""
    d = xp.minimum(absolute(distance, xp), 2.0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return xp.where(d <= 1, near, far)


def absolute(x: Any, xp: Any) -> Any:
    """Returns |x|. OpenVINO drops the `abs` of a difference of constants."""
    return xp.maximum(x, -x)
