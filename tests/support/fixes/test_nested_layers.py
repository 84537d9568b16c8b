"""Every layer inside a layer is found; see keras_vit/support/fixes/nested_layers.py."""

import keras
import pytest

from keras_vit.support.fixes.nested_layers import all_layers
from tests.support.fixes.models import vit

pytestmark = pytest.mark.every_backend


class Parts(keras.layers.Layer):
    """Layers in every place that Keras tracks, one of them twice."""

    def __init__(self, number):
        super().__init__()
        self.alone = keras.layers.Dense(number)
        self.listed = [self.alone, (keras.layers.Dense(number), {"in": keras.layers.Dense(number)})]


def test_all_layers_reaches_every_depth_and_each_layer_once():
    inner = Parts(1)
    found = list(all_layers(keras.Sequential([inner, Parts(2)])))
    assert len({id(layer) for layer in found}) == len(found)
    assert sum(isinstance(layer, keras.layers.Dense) for layer in found) == 6
    assert found.index(inner) < found.index(inner.alone)
    assert len(list(all_layers(inner))) == 4


def test_canary_layers_of_a_model_stop_one_level_down():
    """If this fails, `Model.layers` can replace `keras_vit/support/fixes/nested_layers.py`."""
    model = vit()
    assert "block_0/mlp/dense_0" in {layer.path for layer in all_layers(model)}
    assert "block_0/mlp/dense_0" not in {layer.path for layer in model.layers}
