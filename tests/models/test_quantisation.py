"""Models with 8-bit and 4-bit weights, made by Keras's `model.quantize`."""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.models.inference import run
from tests.families import FAMILIES
from tests.helpers import random_tiny, to_numpy
from tests.plain import normal, through_json
from tests.runs import THOROUGH

pytestmark = [
    pytest.mark.usefixtures("nothing_frozen"),
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize"),
]

IMAGES = normal(4, 16, 16, 3)
CASES = {"int8": {}, "int4": {}, **{f"int8, {name}": FAMILIES[name] for name in FAMILIES}}
SHORT = ("int8", "int4", "int8, eva02")
LARGEST = {"int8": 0.05, "int4": 0.5}
"""Error of plain models, relative to the largest logit; that of families is below 0.3."""


@pytest.mark.parametrize("name", CASES if THOROUGH else SHORT)
def test_every_projection_is_quantised_and_logits_stay_close_also_in_a_file(name, tmp_path):
    """`.keras` and `from_config` keep modes and dtypes; the logits are equal bit by bit."""
    model, mode = random_tiny(**CASES[name]), name[:4]
    expected = run(model, IMAGES)
    model.quantize(mode)
    attention = model.get_layer("block_0").attention
    kinds = (keras.layers.Dense, keras.layers.EinsumDense)
    dense = [part for part in attention._layers if isinstance(part, kinds)]
    assert len(dense) == 4
    assert {part.quantization_mode for part in dense} == {mode}
    error = np.abs(run(model, IMAGES) - expected).max() / np.abs(expected).max()
    assert 0 < error < LARGEST.get(name, 0.3)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert through_json(loaded.get_config()) == through_json(model.get_config())
    rebuilt = VisionTransformer.from_config(through_json(model.get_config()))
    assert [w.dtype for w in rebuilt.weights] == [w.dtype for w in model.weights]
    np.testing.assert_array_equal(to_numpy(loaded(IMAGES)), to_numpy(model(IMAGES)))


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
