"""What keras_vit/keras_fixes/jax_devices.py leans on."""

import inspect

import keras
import pytest

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="keras.distribution is for JAX alone."
)


def test_canary_keras_cannot_divide_a_batch_and_weighs_it_by_its_images():
    """When Keras fills batches up itself, the workaround can go."""
    from keras.src.backend.jax import trainer

    source = inspect.getsource(trainer)
    parameters = inspect.signature(trainer.JAXTrainer._update_metrics_variables).parameters
    assert list(parameters)[1:] == [
        "metrics_variables",
        "unscaled_loss",
        "x",
        "y",
        "y_pred",
        "sample_weight",
    ]
    assert source.count("self._update_metrics_variables(") == 2
    divide = inspect.getsource(trainer._distribute_data)
    assert "pad" not in divide
    assert "get_data_layout" in divide
