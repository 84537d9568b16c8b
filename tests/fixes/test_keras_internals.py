"""Canaries of private names of Keras; see keras_vit/fixes/keras_internals.py."""

import keras
import pytest

from keras_vit.fixes import keras_internals
from tests.fixes.models import vit
from tests.helpers import dtype_of


def test_all_layers_reaches_every_depth():
    """`Model.layers` does not; a public way to do so would replace `_flatten_layers`."""
    model = vit()
    paths = {layer.path for layer in keras_internals.all_layers(model)}
    assert "block_0/mlp/dense_0" in paths
    assert "block_0/mlp/dense_0" not in {layer.path for layer in model.layers}


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="kernels/torch.py asks it.")
def test_torch_says_whether_a_transform_is_active():
    """`torch._C._are_functorch_transforms_active` is true inside `torch.func` alone."""
    import torch

    answers = []
    active = torch._C._are_functorch_transforms_active
    torch.func.vmap(lambda x: answers.append(active()) or x)(torch.ones(2))
    assert answers == [True]
    assert not active()


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
