"""`MirroredStrategy` on two virtual CPUs trains as one device does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Only TensorFlow has strategies."
)


def test_a_recipe_trains_on_two_replicas_as_on_one_device():
    """The summed gradient is clipped; accumulation and averages are the same in each replica.

    Adam divides gradients by their size, and so amplifies the rounding of small ones.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.distribution.on_tensorflow_replicas"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, (loss, state, apart) in json.loads(done.stdout).items():
        assert loss < (1e-4 if name == "AdamW" else 1e-5), name
        assert state < (2e-3 if name == "AdamW" else 1e-5), name
        assert apart == 0, f"{name}: the replicas have different variables"


def test_canary_keras_clips_before_it_sums():
    """When Keras sums the gradients of replicas first, finetune/mirrored.py can go."""
    import inspect

    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    assert "_all_reduce_sum_gradients" in inspect.getsource(TFOptimizer._backend_update_step)
