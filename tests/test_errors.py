"""Every public function refuses what is no `VisionTransformer` by one rule."""

import functools

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import checkpoints, evaluation, explanation, serving, training
from keras_vit.data import from_arrays
from keras_vit.errors import KerasViTError, expect_model
from tests.helpers import tiny

IMAGES, LABELS = np.zeros((4, 16, 16, 3), "uint8"), np.array([0, 1] * 2)
PROBE = evaluation.LinearProbe(np.zeros((8, 2)), np.zeros(2), 1.0)
RECIPE = training.TransferRecipe(2, 2)
DATA = from_arrays(IMAGES, LABELS, tiny(), batch_size=2)
CALLS = [
    *((function, IMAGES) for function in (keras_vit.explain, explanation.attention_maps)),
    *((function, IMAGES) for function in (explanation.read_tokens, evaluation.features)),
    (keras_vit.embed, ["a.png"], "out.npy"),
    *((function, DATA) for function in (keras_vit.evaluate, evaluation.choose_thresholds)),
    (keras_vit.probe, "folder"),
    *((function,) for function in (PROBE.build_model, keras_vit.models.flops)),
    *((function, "out.npz") for function in (keras_vit.export, checkpoints.save)),
    (functools.partial(training.train, path="out", recipe=RECIPE), DATA),
    *((function,) for function in (RECIPE.compile_args, training.AugregRecipe(2, 2).fit_args)),
    *((function, 1) for function in (training.enable_lora, training.train_last_blocks)),
    *((function,) for function in (training.merge_lora, training.train_head, training.zero_head)),
    (training.layer_decay_multipliers, 0.5),
    (serving.application,),
    (training.train_only, ["head"]),
]
PLAIN = keras.Sequential([keras.layers.Dense(2, name="head")], name="other")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: getattr(call[0], "__name__", "train"))
def test_a_function_of_models_names_what_it_found_instead(call, tmp_path, monkeypatch):
    """A model of Keras, nothing, and the name of a preset; no file is written."""
    monkeypatch.chdir(tmp_path)
    found = {"keras.Sequential named 'other'": PLAIN, "None": None, "'vit_digits'": "vit_digits"}
    if call[0] is training.train_only:  # it takes any model of Keras
        del found["keras.Sequential named 'other'"]
    for words, other in found.items():
        with pytest.raises(KerasViTError, match=f"model: expected .*, found (a )?{words}"):
            call[0](other, *call[1:])
    assert not list(tmp_path.iterdir())


def test_objects_of_subclasses_are_models_and_classes_and_configurations_are_not():
    """The last two have names that a model has."""
    model = type("Own", (keras_vit.VisionTransformer,), {})(tiny().config)
    assert expect_model(model) is model
    for other in (keras_vit.VisionTransformer, model.config):
        with pytest.raises(KerasViTError, match="expected a keras_vit.VisionTransformer"):
            expect_model(other)
