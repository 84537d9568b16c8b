"""Every public function refuses what is no `VisionTransformer` by one rule."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import checkpoints, evaluation, explanation, serving, training
from keras_vit.data import from_arrays
from keras_vit.errors import KerasViTError, expect_model
from keras_vit.explanation.report import write_report
from tests.helpers import tiny

IMAGES, LABELS = np.zeros((4, 8, 8, 3), "float32"), np.array([0, 1] * 2)
LINEAR = evaluation.LinearProbe(np.zeros((8, 2)), np.zeros(2), 1.0)


def train(model, folder):
    data = from_arrays(IMAGES.astype("uint8"), LABELS, tiny(), batch_size=2)
    recipe = training.TransferRecipe(2, 2)
    training.train(model, data, recipe=recipe, path=folder / "out")


CALLS = {
    "explain": lambda model, _: keras_vit.explain(model, IMAGES, prepared=True),
    "attention_maps": lambda model, _: keras_vit.explanation.attention_maps(
        model, IMAGES, prepared=True
    ),
    "attention_maps of blocks": lambda model, _: keras_vit.explanation.attention_maps(
        model, IMAGES, "block_0/attention", prepared=True
    ),
    "read_tokens": lambda model, _: explanation.read_tokens(model, IMAGES, prepared=True),
    "write_report": lambda model, folder: write_report(model, folder, IMAGES),
    "features": lambda model, _: keras_vit.evaluation.features(model, IMAGES, prepared=True),
    "embed": lambda model, folder: keras_vit.embed(model, ["a.png"], folder / "x.npy"),
    "evaluate": lambda model, _: keras_vit.evaluate(model, (IMAGES, LABELS), prepared=True),
    "choose_thresholds": lambda model, _: evaluation.choose_thresholds(
        model, (IMAGES, LABELS), prepared=True
    ),
    "probe": lambda model, _: keras_vit.probe(model, "folder"),
    "LinearProbe.into": lambda model, _: LINEAR.build_model(model),
    "flops": lambda model, _: keras_vit.models.flops(model),
    "export": lambda model, folder: keras_vit.export(model, folder / "x"),
    "save": lambda model, folder: checkpoints.save(model, folder / "x.npz"),
    "train": train,
    "compile_args": lambda model, _: training.TransferRecipe(2, 2).compile_args(model),
    "fit_args": lambda model, _: training.AugregRecipe(2, 2).fit_args(model),
    "enable_lora": lambda model, _: training.enable_lora(model, 1),
    "merge_lora": lambda model, _: training.merge_lora(model),
    "train_head": lambda model, _: training.train_head(model),
    "train_last_blocks": lambda model, _: training.train_last_blocks(model, 1),
    "layer_decay_multipliers": lambda model, _: training.layer_decay_multipliers(model, 0.5),
    "zero_head": lambda model, _: training.zero_head(model),
    "application": lambda model, _: serving.application(model),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_function_of_models_names_what_it_found_instead(call, tmp_path):
    """A model of Keras, nothing, and the name of a preset; no file is written."""
    plain = keras.Sequential([keras.layers.Dense(2)], name="other")
    found = {"keras.Sequential named 'other'": plain, "None": None, "'vit_digits'": "vit_digits"}
    for words, other in found.items():
        expected = f"model: expected a keras_vit.VisionTransformer, found (a )?{words}"
        with pytest.raises(KerasViTError, match=expected):
            CALLS[call](other, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_class_itself_and_its_configuration_are_no_models():
    """Both have names that a model has."""
    for other in (keras_vit.VisionTransformer, tiny().config):
        with pytest.raises(KerasViTError, match="expected a keras_vit.VisionTransformer"):
            expect_model(other)


def test_an_object_of_a_subclass_is_a_model():
    class Own(keras_vit.VisionTransformer):
        pass

    model = Own(tiny().config)
    assert expect_model(model) is model


@pytest.mark.parametrize("other", [None, "vit_digits"])
def test_train_only_takes_any_built_model_of_keras(other):
    plain = keras.Sequential([keras.layers.Dense(2, name="head")])
    with pytest.raises(KerasViTError, match="the layers are not built"):
        training.train_only(plain, ["head"])
    with pytest.raises(KerasViTError, match="model: expected"):
        training.train_only(other, ["head"])
