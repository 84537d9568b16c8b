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


def by_torch(mode, antialias=False):
    """Along one axis: `torch.nn.functional.interpolate`."""
    resize = torch_resize(mode, antialias)
    return lambda points, target: resize(points, (1, len(points)), (1, target))[:, 0]


REFERENCES = {
    # `scipy.ndimage.zoom` of order 1, which vit_jax calls
    "bilinear_align_corners": lambda p, target: ndimage.zoom(p, target / len(p), order=1),
    "bilinear_half_pixel": by_torch("bilinear"),
    "bilinear_antialias": by_torch("bilinear", antialias=True),
    "bicubic": by_torch("bicubic"),
    "bicubic_antialias": by_torch("bicubic", antialias=True),
}


@pytest.mark.parametrize(("source", "target"), LENGTHS)
@pytest.mark.parametrize("method", REFERENCES)
def test_a_matrix_equals_the_library_of_its_method(method, source, target):
    points = normal(source).astype("float64")
    expected = REFERENCES[method](points, target)
    assert expected.shape == (target,)
    actual = resampling_matrix(source, target, method) @ points
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.every_backend
@pytest.mark.openvino
@pytest.mark.parametrize("method", POSITION_RESIZES)
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
