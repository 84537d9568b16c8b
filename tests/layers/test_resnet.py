"""Standardised convolutions, bottleneck units and the root of the hybrids."""

import numpy as np
import pytest

from keras_vit.layers import BottleneckUnit, ResNetRoot, StdConv2D
from keras_vit.layers.norms import GroupNorm
from tests import formulas
from tests.helpers import assert_close, randomise, read_dtype, read_weights, run, to_numpy
from tests.plain import MIXED_POLICIES, POLICIES, ROUNDING, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend


def built(layer_class, images, *arguments, **keywords):
    """A channels-last layer with random weights, built for the images."""
    layer = layer_class(*arguments, data_format="channels_last", name="layer", **keywords)
    layer.build(images.shape)
    return randomise(layer)


SIDES = [((9, 6), 1), ((9, 6), 2), ((8, 7), 1), ((8, 7), 2), ((1, 2), 1), ((1, 2), 2)]
"""Odd and even sides of images, and strides."""


@pytest.mark.parametrize(("sides", "strides"), sample(SIDES, SIDES[1], SIDES[3]), ids=str)
@pytest.mark.parametrize("arithmetic", ["resnet", "resnet_timm"])
def test_std_conv_equals_the_formula(arithmetic, strides, sides):
    """The kernel is standardised per filter, the padding is SAME on odd and even sides.

    The forms of standardisation differ for a kernel with a standard deviation of 1e-4.
    """
    images = normal(2, *sides, 3)
    layer = built(StdConv2D, images, 4, 3, strides, arithmetic=arithmetic)
    kernel = formulas.standardise(read_weights(layer)["kernel"], arithmetic)
    assert_close(run(layer, images), formulas.conv(images, kernel, strides))
    layer.kernel.assign(1e-4 * normal(3, 3, 3, 4))
    actual = to_numpy(layer.standardised_kernel())
    assert_close(actual, formulas.standardise(read_weights(layer)["kernel"], arithmetic))
    assert abs(actual.std() - (1 / 1.1 if arithmetic == "resnet" else 0.7)) < 0.05


@pytest.mark.parametrize("policy", MIXED_POLICIES)
def test_kernels_are_standardised_in_float32(policy):
    """For kernels of 100 plus noise of 0.05, 16 bits would lose the noise or overflow."""
    images = normal(2, 5, 5, 3)
    layer = built(StdConv2D, images, 4, 3, dtype=policy)
    layer.kernel.assign(100 + 0.05 * normal(3, 3, 3, 4))
    kernel = formulas.standardise(read_weights(layer)["kernel"])
    assert read_dtype(layer.standardised_kernel()) == "float32"
    assert_close(run(layer, images), formulas.conv(images, kernel, 1), ROUNDING[policy])


UNITS = [((9, 6), 1), ((9, 6), 2), ((8, 10), 2)]


@pytest.mark.parametrize(("sides", "strides"), sample(UNITS, UNITS[1]), ids=str)
def test_a_bottleneck_unit_equals_the_formula(strides, sides):
    """Post-activation; the 3x3 convolution and the projected shortcut have the stride."""
    images = normal(2, *sides, 16)
    unit = built(BottleneckUnit, images, 32, strides)
    assert_close(run(unit, images), formulas.bottleneck(images, read_weights(unit), strides))


def test_a_new_unit_passes_its_shortcut_through():
    """The scale of the last norm starts at zero, the other scales at one."""
    images = normal(1, 4, 4, 128)
    unit = BottleneckUnit(32, data_format="channels_last", name="layer")
    np.testing.assert_array_equal(run(unit, images), np.maximum(images, 0))
    scales = [set(read_weights(unit)[f"norm{k}/gamma"]) for k in (1, 2, 3)]
    assert scales == [{1}, {1}, {0}]


ROOTS = [(sides, policy) for sides in ((9, 6), (16, 13), (8, 8)) for policy in POLICIES]


@pytest.mark.parametrize(("sides", "policy"), sample(ROOTS, *ROOTS[:3]), ids=str)
def test_the_root_equals_the_formula_for_large_images(sides, policy):
    """7x7/2 convolution, norm, ReLU, 3x3/2 max pool, with SAME padding throughout.

    The squares of activations near 10,000 overflow float16.
    """
    images = 1000 * normal(2, *sides, 3)
    root = built(ResNetRoot, images, 64, dtype=policy)
    x = np.maximum(formulas.conv_norm(images, read_weights(root), 2), 0)
    tolerance = 2e-6 if policy == "float32" else ROUNDING[policy]
    assert_close(run(root, images), formulas.max_pool(x, 3, 2), tolerance)


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
