"""What an interactive user sees: names by `dir`, and objects in one line."""

import importlib

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.data import from_arrays
from tests.helpers import tiny

ROOMS = ("checkpoints", "config", "data", "distribution", "errors", "evaluation", "explanation")
MORE = ("exporting", "images", "images.class_names", "layers", "models", "serving", "training")


@pytest.mark.parametrize("room", ["", *(f".{name}" for name in (*ROOMS, *MORE))])
def test_dir_lists_the_public_names_alone(room):
    module = importlib.import_module(f"keras_vit{room}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in dir(module))


def test_a_model_and_its_data_say_what_they_are():
    model = VisionTransformer.from_preset("vit_digits")
    facts = "variant=None, image_size=(16, 16), num_classes=10, source='vit_digits'"
    assert repr(model) == f"<VisionTransformer name={model.name!r}, {facts}>"
    builder = keras_vit.vit_ti16(image_size=32, name="mine")
    assert "'mine', variant='vit_ti16', image_size=(32, 32)" in repr(builder)
    assert repr(tiny(image_size=None)).endswith("image_size=None, num_classes=5, source=None>")
    data = from_arrays(np.zeros((6, 8, 8, 3), "uint8"), np.arange(6) % 2, tiny(), batch_size=4)
    facts = "num_images=6, num_classes=5, image_size=(16, 16), batch_size=4"
    assert repr(data).startswith("<ImageData source=") and facts in repr(data)
    assert "\n" not in repr(model) + repr(data)
