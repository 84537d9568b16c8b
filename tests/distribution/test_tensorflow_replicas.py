"""`MirroredStrategy` on two virtual CPUs trains as one device does."""

import pytest

from tests.distribution.programs import findings
from tests.distribution.training import COUNTS

# Only TensorFlow has strategies.
pytestmark = pytest.mark.on_backend("tensorflow")


@pytest.fixture(scope="module")
def report():
    """What a process with two replicas has found."""
    return findings("tests.distribution.on_tensorflow_replicas")


@pytest.mark.parametrize("recipe", ["SGD, averaged", "AdamW"])
def test_a_recipe_trains_on_two_replicas_as_on_one_device(report, recipe):
    """The summed gradient is clipped; averages are the same in each replica.

    Adam divides gradients by their size, and so amplifies the rounding of small ones.
    """
    loss, state, apart = report[recipe]
    assert loss < (1e-4 if recipe == "AdamW" else 1e-5)
    assert state < (2e-3 if recipe == "AdamW" else 1e-5)
    assert apart == 0, "the replicas have different variables"


def test_accumulation_on_replicas_is_refused(report):
    assert "Keras accumulates no gradients on 2 replicas" in report["accumulated"]


def test_a_last_batch_that_the_replicas_do_not_divide_is_filled_up(report):
    """Weights and scores of a validation are those of one device."""
    assert report["whole passes"] < 1e-5


@pytest.mark.parametrize("count", COUNTS)
def test_any_number_of_images_gives_what_one_device_gives(report, count):
    """All functions of keras_vit that run a model; one replica computes all images."""
    assert report["images"][str(count)] < 1e-5


def test_canary_keras_clips_before_it_sums():
    """When Keras sums the gradients of replicas first, the sum in optimizers.py can go.

    `BaseOptimizer` clips the gradients of each replica, and `TFOptimizer` sums them in
    `_backend_update_step` afterwards. With `gradient_accumulation_steps` its `merge_call` raises.

    Expected: under a `MirroredStrategy` of two devices an update with `global_clipnorm=1` has the
    norm 1, as on one device.
    Found: it has the norm 2, without a word.
    Remedy: sum at the start of `_backend_apply_gradients`; then clip, accumulate and update.
    """
    import inspect

    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    assert "_all_reduce_sum_gradients" in inspect.getsource(TFOptimizer._backend_update_step)
