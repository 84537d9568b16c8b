"""Resampling matrices against scipy, torch and a plain formula."""

import functools

import keras
import numpy as np
import pytest
from scipy import ndimage

from keras_vit.config.vit import POSITION_RESIZES
from keras_vit.kernels.sizes import number, steps
from keras_vit.support.interpolation import resampling_matrix, resampling_weights
from tests.formulas import torch_resize
from tests.helpers import assert_close
from tests.plain import normal
from tests.runs import sample

LENGTHS = [(1, 1), (1, 4), (4, 1), (4, 4), (4, 7), (7, 4), (14, 24), (24, 14), (3, 100)]
every_length = pytest.mark.parametrize(("source", "target"), LENGTHS)
every_method = pytest.mark.parametrize("method", POSITION_RESIZES)


@every_length
def test_align_corners_equals_scipy_zoom(source, target):
    """Along one axis: `scipy.ndimage.zoom` of order 1, which vit_jax calls."""
    points = normal(source).astype("float64")
    expected = ndimage.zoom(points, target / source, order=1)
    assert expected.shape == (target,)
    actual = resampling_matrix(source, target, "bilinear_align_corners") @ points
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@every_length
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_other_methods_equal_torch(mode, antialias, source, target):
    """Along one axis: `torch.nn.functional.interpolate`, with and without antialiasing."""
    points = normal(source, 1).astype("float64")
    expected = torch_resize(mode, antialias)(points, (1, source), (1, target))
    plain = {"bilinear": "bilinear_half_pixel", "bicubic": "bicubic"}[mode]
    method = f"{mode}_antialias" if antialias else plain
    actual = resampling_matrix(source, target, method) @ points
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.every_backend
@pytest.mark.openvino
@every_method
@pytest.mark.parametrize(("source", "target"), sample([(1, 4), (4, 1), (7, 4), (14, 24)], (7, 4)))
def test_the_matrix_computed_in_the_graph_equals_the_matrix_in_numpy(method, source, target):
    """`keras.ops` computes the same matrix in float32, from an int or a scalar tensor."""
    expected = resampling_matrix(source, target, method)
    for sides in (target, keras.ops.convert_to_tensor(target, dtype="int32")):
        if sides is not target and keras.backend.backend() == "jax":
            continue  # sizes are never tensors on JAX
        points = steps(source), steps(sides)[:, None]
        actual = resampling_weights(source, number(sides), *points, method, keras.ops)
        assert_close(actual, expected, 1e-5)


def test_canary_torch_resizes_to_one_column_wrongly():
    """If this fails, torch's own antialiased resize may be called for images of one column.

    Expected: a column of five numbers is resized as a row of them is.
    Found: ten zeros.
    Remedy: look at the vertical pass of the antialiased kernels for CPUs, for a width of 1.
    """
    import torch

    resize = functools.partial(
        torch.nn.functional.interpolate, mode="bilinear", antialias=True, align_corners=False
    )
    row, column = torch.arange(5.0).view(1, 1, 1, 5), torch.arange(5.0).view(1, 1, 5, 1)
    assert resize(row, (1, 10)).max() > 3
    assert resize(column, (10, 1)).max() == 0
