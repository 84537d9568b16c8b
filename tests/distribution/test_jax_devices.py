"""JAX on 8 virtual devices, in one process: equal to one device, in every way of dividing."""

import keras
import pytest

from keras_vit import distribution
from keras_vit.distribution.layouts import divided_axes
from keras_vit.errors import ConfigError
from tests.distribution.programs import findings
from tests.processes import python
from tests.runs import THOROUGH

pytestmark = pytest.mark.every_backend

# keras.distribution is for JAX alone.
on_jax = pytest.mark.on_backend("jax")


@pytest.fixture(scope="module")
def report():
    """What a process with 8 devices has found."""
    return findings("tests.distribution.on_jax_devices")


@on_jax
@pytest.mark.parametrize("count", [1, 7, 8, 9] if THOROUGH else [9])
def test_any_number_of_images_gives_what_one_device_gives(report, count):
    """All public functions that run a model, and the weights after `fit`."""
    assert report[f"{count} images"] < 1e-5
    assert report["devices"] == 8


@on_jax
@pytest.mark.parametrize(
    ("way", "share"),
    [("data", 1.0), ("tensor", 0.55), ("fully sharded", 0.16), ("tensor and fully sharded", 0.2)],
)
def test_the_recipe_trains_as_on_one_device(report, way, share):
    """Clipping, accumulation and the average act on the whole batch; a device keeps its share."""
    loss, state, part = report[way]
    assert loss < 1e-5
    assert state < 1e-5
    assert part <= share


@on_jax
def test_orbax_loads_in_another_layout(report):
    """Weights and optimizer of `fully_sharded` are bit by bit those of `data_parallel` then."""
    if report["orbax"] is None:
        pytest.skip("needs orbax-checkpoint")
    loaded, next_step = report["orbax"]
    assert loaded == 0
    assert next_step < 1e-5


@on_jax
def test_a_last_batch_that_the_devices_do_not_divide_is_filled_up(report):
    """Weights and scores of a validation are those of one device."""
    assert report["whole passes"] < 1e-5


@on_jax
def test_bad_meshes_are_refused_by_name(report):
    """The message names the weight or the number of devices."""
    assert "num_heads=4" in report["heads"]
    assert "block_0/attention/query/kernel" in report["heads"]
    assert "divides the 8 devices" in report["shards"]


@on_jax
@pytest.mark.parametrize(
    ("path", "shape", "axes"),
    [
        ("block_0/mlp/dense_0/kernel", (8, 32), (None, "batch")),
        ("block_0/mlp/dense_0/bias", (32,), ("batch",)),
        ("block_0/attention/query/kernel", (8, 16, 4), (None, "batch", None)),
    ],
)
def test_without_tensor_parallelism_all_devices_divide_the_longest_axis(path, shape, axes):
    """The heads and the width of an MLP are free for them, as every other axis."""
    assert divided_axes(path, shape, {"batch": 8, "model": 1}, fully_sharded=True) == axes


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX takes a mesh.")
def test_other_backends_are_told_their_own_way():
    """`keras.distribution` would be ignored there."""
    for make in (distribution.data_parallel, distribution.tensor_parallel):
        with pytest.raises(ConfigError, match="JAX alone"):
            make()


NOT_DIVIDED = """
import keras
import numpy as np

keras.distribution.set_distribution(keras.distribution.DataParallel())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.predict(np.ones((9, 4), "float32"), batch_size=8, verbose=0)
"""


@on_jax
def test_canary_keras_refuses_a_batch_that_the_devices_do_not_divide():
    """If this fails, the inference function need not fill batches up.

    Expected: `predict` of nine rows in batches of eight on eight devices gives nine rows.
    Found: `ValueError`, and the model has lost its weights.
    Remedy: fill the batch up with empty rows, and cut them from the outputs.
    """
    flags = "--xla_force_host_platform_device_count=8"
    process = python(NOT_DIVIDED, KERAS_BACKEND="jax", XLA_FLAGS=flags)
    assert "the dimension size is 1" in process.stderr
