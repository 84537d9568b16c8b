"""Presets, `.keras` files, weights and training states of earlier versions load."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.finetune import AugregRecipe, Resume, TransferRecipe
from tests.helpers import assert_close

FOLDER = Path(__file__).parent / "data" / "written_before"
EXPECTED = np.load(FOLDER / "expected.npz")


def test_a_preset_of_an_earlier_version_loads():
    model = keras_vit.VisionTransformer.from_preset(FOLDER / "preset")
    assert_close(model(EXPECTED["images"]), EXPECTED["logits"])
    assert model.labels == ("a", "b", "c")


def test_a_keras_file_of_an_earlier_version_loads():
    model = keras.saving.load_model(FOLDER / "model.keras")
    assert_close(model(EXPECTED["images"]), EXPECTED["logits"])


def test_weights_of_an_earlier_version_load():
    model = keras_vit.VisionTransformer.from_preset(FOLDER / "preset", load_weights=False)
    model.load_weights(FOLDER / "model.weights.h5")
    assert_close(model(EXPECTED["images"]), EXPECTED["logits"])


@pytest.mark.parametrize("recipe", [TransferRecipe, AugregRecipe])
@pytest.mark.skipif(keras.backend.backend() == "openvino", reason="OpenVINO does not train")
def test_a_training_of_an_earlier_version_continues(recipe, tmp_path):
    """One of two epochs was computed by version 0.1.0; the end is that of a whole training."""
    name = recipe.name
    folder = tmp_path / "state"
    shutil.copytree(FOLDER / f"state_{name}_{keras.backend.backend()}", folder)
    model = keras_vit.VisionTransformer.from_preset(FOLDER / "preset")
    options = {"learning_rate": 0.03, "warmup_steps": 1, "one_hot": True, "steps_per_epoch": 2}
    model.compile(**recipe(4, 2, **options).compile_args(model))
    labels = np.eye(3)[np.arange(4) % 3]
    resume = Resume(folder, None)
    fit = {"batch_size": 2, "shuffle": False, "epochs": 2, "verbose": 0, "callbacks": [resume]}
    history = model.fit(EXPECTED["images"], labels, **fit)
    assert len(history.history["loss"]) == 2
    assert_close(model(EXPECTED["images"]), EXPECTED[f"after_{name}"], 1e-4)
