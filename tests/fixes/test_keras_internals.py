"""Canaries of private names of Keras; see keras_vit/fixes/keras_internals.py."""

import keras
import numpy as np
import pytest

from keras_vit.finetune import LayerwiseAdamW, LayerwiseSGD
from keras_vit.fixes import keras_internals
from tests.fixes.models import IMAGES, LABELS, compiled, vit
from tests.helpers import dtype_of


def test_all_layers_reaches_every_depth():
    """`Model.layers` does not; a public way to do so would replace `_flatten_layers`."""
    model = vit()
    paths = {layer.path for layer in keras_internals.all_layers(model)}
    assert "block_0/mlp/dense_0" in paths
    assert "block_0/mlp/dense_0" not in {layer.path for layer in model.layers}


def test_fit_begins_at_the_epoch_that_a_callback_sets():
    """Keras reads `_initial_epoch` after `on_train_begin`."""
    model, epochs = vit(), []
    callback = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: keras_internals.continue_fit_at(model, 2),
        on_epoch_begin=lambda epoch, logs: epochs.append(epoch),
    )
    model.fit(IMAGES, LABELS, epochs=3, verbose=0, callbacks=[callback])
    assert epochs == [2], "Keras no longer reads _initial_epoch after on_train_begin."


def test_index_and_moments_belong_to_the_variable():
    """Covers `_get_variable_index`, `_momentums` and `_velocities`."""
    variables = [keras.Variable(np.ones((k + 1,), "float32")) for k in range(3)]
    optimizer = LayerwiseAdamW(0.1)
    optimizer.build(variables)
    for k, variable in enumerate(variables):
        index = keras_internals.index_of(optimizer, variable)
        assert index == k
        for moment in keras_internals.adam_moments(optimizer, index):
            assert moment.shape == variable.shape
            assert any(moment is known for known in optimizer.variables)


def test_keras_calls_the_methods_that_the_optimizers_replace(monkeypatch):
    """Covers `_apply_weight_decay`, `_clip_gradients`, `_backend_update_step` and its caller."""
    called = []
    names = (
        "_apply_weight_decay",
        "_clip_gradients",
        "_backend_apply_gradients",
        "_backend_update_step",
    )
    for name in names:
        method = getattr(LayerwiseSGD, name)

        def record(self, *args, _name=name, _method=method):
            called.append(_name)
            return _method(self, *args)

        monkeypatch.setattr(LayerwiseSGD, name, record)
    optimizer = LayerwiseSGD(0.1, weight_decay=0.1, global_clipnorm=1.0)
    compiled(vit(), optimizer=optimizer, run_eagerly=True).train_on_batch(IMAGES, LABELS)
    assert set(called) == set(names), f"Keras calls {called} only: see finetune/optimizers.py."


def test_canary_keras_decays_all_variables_at_one_rate():
    """Fails when Keras's decay follows a rate per variable: simplify optimizers.py then."""
    variable = keras.Variable(np.ones((2,), "float32"))
    optimizer = keras.optimizers.SGD(0.5, weight_decay=0.1)
    optimizer.build([variable])
    optimizer.apply([keras.ops.zeros((2,))])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), [0.95, 0.95], rtol=1e-6)


def test_an_optimizer_keeps_the_averages_of_its_variables():
    """Covers `_model_variables_moving_average` and `_trainable_variables`, in the same order."""
    variable = keras.Variable(np.ones((2,), "float32"))
    optimizer = keras.optimizers.SGD(0.5, use_ema=True)
    optimizer.build([variable])
    assert [id(v) for v in optimizer._trainable_variables] == [id(variable)]
    (average,) = optimizer._model_variables_moving_average
    assert average.shape == variable.shape


def test_an_optimizer_keeps_a_sum_for_each_variable():
    """Covers `_accumulated_gradients`."""
    variables = [keras.Variable(np.ones((k + 1,), "float32")) for k in range(2)]
    optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    optimizer.build(variables)
    found = keras_internals.accumulators(optimizer, variables[::-1])
    assert [tuple(total.shape) for total in found] == [(2,), (1,)]


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="kernels/torch.py asks it.")
def test_torch_says_whether_a_transform_is_active():
    """`torch._C._are_functorch_transforms_active` is true inside `torch.func` alone."""
    import torch

    answers = []
    active = torch._C._are_functorch_transforms_active
    torch.func.vmap(lambda x: answers.append(active()) or x)(torch.ones(2))
    assert answers == [True]
    assert not active()


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="keras.distribution is for JAX alone.")
def test_an_optimizer_gives_its_variables_the_layouts_of_the_weights():
    """`Variable._layout` holds the layout of a variable that is made under a distribution."""
    with keras.distribution.DataParallel().scope():
        weight = keras.Variable(np.ones((2,), "float32"))
        optimizer = LayerwiseSGD(0.1, momentum=0.9, momentum_dtype="bfloat16")
        optimizer.build([weight])
    assert weight._layout is not None
    assert keras_internals.layout_of(optimizer.momentums[0]) is weight._layout


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="reads weights of torch")
def test_a_weight_on_torch_has_the_value_that_a_scope_gives_it():
    """Casting, stateless calls, devices and subclasses; also after Keras forgot its state."""
    from keras_vit import kernels

    class Doubled(keras.Variable):
        @property
        def value(self):
            return 2 * super().value

    weight, doubled = keras.Variable([1.0]), Doubled([1.0])
    keras.utils.clear_session()
    assert kernels.tensor(weight) is weight.value
    assert float(kernels.tensor(doubled)) == 2
    with keras.src.backend.AutocastScope("float16"):
        assert dtype_of(kernels.tensor(weight)) == "float16"
    with keras.StatelessScope([(weight, keras.ops.convert_to_tensor([3.0]))]):
        assert float(kernels.tensor(weight)) == 3
    with keras.device("meta"):
        assert kernels.tensor(weight).device.type == "meta"
    weight.assign([4.0])
    assert float(kernels.tensor(weight)) == 4
