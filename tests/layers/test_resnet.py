"""Standardised convolutions, bottleneck units and the root of the hybrids."""

import numpy as np
import pytest

from keras_vit.layers import BottleneckUnit, ResNetRoot, StdConv2D
from keras_vit.layers.norms import GroupNorm
from tests import formulas
from tests.helpers import assert_close, randomise, read_dtype, read_weights, run, to_numpy
from tests.plain import MIXED_POLICIES, POLICIES, ROUNDING, normal

pytestmark = pytest.mark.every_backend

ODD_AND_EVEN = [(9, 6), (8, 7), (1, 2)]


def built(layer_class, images, *arguments, **keywords):
    """A channels-last layer with random weights, built for the images."""
    layer = layer_class(*arguments, data_format="channels_last", name="layer", **keywords)
    layer.build(images.shape)
    return randomise(layer)


def conv_norm(x, w, strides, suffix=""):
    """A standardised convolution and its GroupNorm."""
    kernel = formulas.standardise(w[f"conv{suffix}/kernel"])
    return formulas.group_norm(formulas.conv(x, kernel, strides), w, f"norm{suffix}")


@pytest.mark.parametrize("sides", ODD_AND_EVEN, ids=str)
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("arithmetic", ["resnet", "resnet_timm"])
def test_std_conv_equals_the_formula(arithmetic, strides, sides):
    """The kernel is standardised per filter, the padding is SAME on odd and even sides."""
    images = normal(2, *sides, 3)
    layer = built(StdConv2D, images, 4, 3, strides, arithmetic=arithmetic)
    kernel = formulas.standardise(read_weights(layer)["kernel"], arithmetic)
    assert_close(run(layer, images), formulas.conv(images, kernel, strides))


def test_the_forms_of_standardisation_differ_where_kernels_are_small():
    """For kernels with a standard deviation of 1e-4, each form equals its own formula."""
    images = normal(1, 5, 5, 3)
    kernels = []
    for arithmetic in ("resnet", "resnet_timm"):
        layer = built(StdConv2D, images, 4, 3, arithmetic=arithmetic)
        layer.kernel.assign(1e-4 * normal(3, 3, 3, 4))
        actual = to_numpy(layer.standardised_kernel())
        assert_close(actual, formulas.standardise(read_weights(layer)["kernel"], arithmetic))
        kernels.append(actual)
    assert abs(kernels[0].std() - 1 / 1.1) < 0.01
    assert abs(kernels[1].std() - 0.7) < 0.05


@pytest.mark.parametrize("policy", MIXED_POLICIES)
def test_kernels_are_standardised_in_float32(policy):
    """For kernels of 100 plus noise of 0.05, 16 bits would lose the noise or overflow."""
    images = normal(2, 5, 5, 3)
    layer = built(StdConv2D, images, 4, 3, dtype=policy)
    layer.kernel.assign(100 + 0.05 * normal(3, 3, 3, 4))
    kernel = formulas.standardise(read_weights(layer)["kernel"])
    assert read_dtype(layer.standardised_kernel()) == "float32"
    assert_close(run(layer, images), formulas.conv(images, kernel, 1), ROUNDING[policy])


@pytest.mark.parametrize(("sides", "strides"), [((9, 6), 1), ((9, 6), 2), ((8, 10), 2)], ids=str)
def test_a_bottleneck_unit_equals_the_formula(strides, sides):
    """Post-activation; the 3x3 convolution and the projected shortcut have the stride."""
    images = normal(2, *sides, 16)
    unit = built(BottleneckUnit, images, 32, strides)
    w = read_weights(unit)
    x = np.maximum(conv_norm(images, w, 1, "1"), 0)
    x = np.maximum(conv_norm(x, w, strides, "2"), 0)
    x = conv_norm(x, w, 1, "3") + conv_norm(images, w, strides, "_proj")
    assert_close(run(unit, images), np.maximum(x, 0))


def test_a_new_unit_passes_its_shortcut_through():
    """The scale of the last norm starts at zero, the other scales at one."""
    images = normal(1, 4, 4, 128)
    unit = BottleneckUnit(32, data_format="channels_last", name="layer")
    np.testing.assert_array_equal(run(unit, images), np.maximum(images, 0))
    w = read_weights(unit)
    assert not w["norm3/gamma"].any()
    assert (w["norm1/gamma"] == 1).all()
    assert (w["norm2/gamma"] == 1).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("sides", [(9, 6), (16, 13), (8, 8)], ids=str)
def test_the_root_equals_the_formula_for_large_images(sides, policy):
    """7x7/2 convolution, norm, ReLU, 3x3/2 max pool, with SAME padding throughout.

    The squares of activations near 10,000 overflow float16.
    """
    images = 1000 * normal(2, *sides, 3)
    root = built(ResNetRoot, images, 64, dtype=policy)
    x = np.maximum(conv_norm(images, read_weights(root), 2), 0)
    tolerance = 2e-6 if policy == "float32" else ROUNDING[policy]
    assert_close(run(root, images), formulas.max_pool(x, 3, 2), tolerance)


@pytest.mark.parametrize("policy", MIXED_POLICIES)
def test_norms_are_float32(policy):
    """Under a mixed policy every norm computes and returns float32."""
    root = built(ResNetRoot, normal(1, 9, 6, 3), 32, dtype=policy)
    unit = built(BottleneckUnit, normal(1, 9, 6, 16), 32, dtype=policy)
    parts = {"norm": root, "norm_proj": unit, "norm1": unit, "norm2": unit, "norm3": unit}
    for name, layer in parts.items():
        norm = getattr(layer, name)
        x = 20 + normal(2, 5, 3, norm.gamma.shape[0])  # 16 bits resolve 20 in 1/64 or 1/8
        normed = norm(x)
        assert read_dtype(normed) == "float32"
        assert_close(
            normed, formulas.group_norm(x.astype("float64"), read_weights(layer), name), 5e-4
        )


def test_the_statistics_of_a_group_norm_are_as_exact_as_float32_allows():
    """Of 112 x 112 pixels; sums into one float32 number would be wrong by 4e-6."""
    images = normal(1, 112, 112, 64) * 0.3 + 0.1
    layer = GroupNorm(groups=32, axis=-1, epsilon=1e-5)
    layer.build(images.shape)
    groups = images.astype("float64").reshape(-1, 32, 2)
    centred = groups - groups.mean((0, 2), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((0, 2), keepdims=True) + 1e-5)
    actual = to_numpy(layer(images)).reshape(-1, 32, 2)
    # The slope of the difference on the value is the relative error of the deviation.
    slopes = ((actual - expected) * expected).mean((0, 2)) / (expected**2).mean((0, 2))
    assert np.abs(slopes).max() < 6e-7
    assert np.abs((actual - expected).mean((0, 2))).max() < 6e-7
