"""Models with 8-bit and 4-bit weights, made by Keras's `model.quantize`."""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from tests.families import FAMILIES
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal, through_json
from tests.runs import sample

pytestmark = [
    pytest.mark.usefixtures("nothing_frozen"),
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize"),
]

IMAGES = normal(4, 16, 16, 3)
MODES = sample(("int8", "int4"), "int8")


@pytest.fixture(scope="module", params=MODES)
def pair(request, nothing_frozen):
    """A model, a quantised copy of it, and the mode."""
    model = random_tiny()
    quantised = VisionTransformer.from_config(model.get_config())
    quantised.set_weights(model.get_weights())
    quantised.quantize(request.param)
    return model, quantised, request.param


def test_every_projection_is_quantised_and_logits_stay_close(pair):
    """The error is below 5 % with 8 bits and below 50 % with 4 bits."""
    model, quantised, mode = pair
    parts = [*quantised.get_layer("block_0").attention._layers, quantised.get_layer("head")]
    dense = [
        part for part in parts if isinstance(part, (keras.layers.Dense, keras.layers.EinsumDense))
    ]
    assert len(dense) == 5
    assert {part.quantization_mode for part in dense} == {mode}
    expected = to_numpy(model(IMAGES))
    error = np.abs(to_numpy(quantised(IMAGES)) - expected).max() / np.abs(expected).max()
    assert 0 < error < {"int8": 0.05, "int4": 0.5}[mode]


def test_a_quantised_model_is_saved_and_loaded(pair, tmp_path):
    """`.keras` and `from_config` keep modes and dtypes; the logits are equal bit by bit."""
    _, quantised, _ = pair
    quantised.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert through_json(loaded.get_config()) == through_json(quantised.get_config())
    rebuilt = VisionTransformer.from_config(through_json(quantised.get_config()))
    assert [w.dtype for w in rebuilt.weights] == [w.dtype for w in quantised.weights]
    np.testing.assert_array_equal(to_numpy(loaded(IMAGES)), to_numpy(quantised(IMAGES)))


@pytest.mark.on_backend("torch")
@pytest.mark.parametrize("name", ["deit", "eva02"])
def test_a_quantised_model_of_a_family_is_saved_and_loaded(name, tmp_path):
    """Two heads; a gated MLP with a norm inside, and a head that pools by attention."""
    model = random_tiny(**FAMILIES[name])
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(IMAGES)), to_numpy(model(IMAGES)))


@pytest.mark.on_backend("torch")
def test_a_quantised_block_in_another_keras_model_is_saved_and_loaded(tmp_path):
    """The config of each keras_vit layer records its quantisation."""
    vit = random_tiny()
    tokens = keras.Input((3, 16))
    model = keras.Model(tokens, vit.get_layer("block_0")(tokens))
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs = normal(2, 3, 16)
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(model(inputs)))


def test_checkpoints_and_presets_refuse_quantised_weights(tmp_path):
    """The message names the layers and the mode; no file is written."""
    model = tiny()
    model.quantize("int8", filters="head")
    with pytest.raises(CheckpointError, match=r"quantised \(head and others: int8\)"):
        model.save_to_preset(tmp_path / "preset")
    assert not list(tmp_path.iterdir())
