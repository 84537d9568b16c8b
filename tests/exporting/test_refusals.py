"""Exports that are refused in a sentence, and leave no folder."""

import dataclasses

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import ConfigError, ExportError
from keras_vit.exporting import verification
from keras_vit.exporting.formats import load_format
from tests.helpers import random_tiny, tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # of converters


def quantised(bits):
    model = random_tiny()
    model.quantize(bits)
    return model


def of_nan():
    model = random_tiny()
    model.get_layer("head").kernel.assign(np.full((16, 5), np.nan))
    return model


class Doubled(VisionTransformer):
    """Another process knows the weights alone, and would leave the user's `call` out."""

    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training=training)


def doubled():
    return Doubled(tiny().config)


FAILING = "import os\nraise OSError('cannot load ' + os.path.abspath('model.pt2') + ' today.')"


def broken(world, **part):
    """An export in the format torch with a part that fails."""
    form = dataclasses.replace(load_format("torch"), **part)
    world.with_format(form).export(format="torch")


def unsized():
    return random_tiny(image_size=None, position_grid=(3, 3))


CALIBRATED, FLOAT16 = {"precision": "int8", "calibration": []}, {"precision": "float16"}
UNCOMPARED, MAP = {"format": "saved_model", "verify": False}, {"stages": (0,)}
REFUSALS = {
    "format": (lambda w: w.export(format="onxx"), ConfigError, "Did you mean 'onnx'"),
    "empty batch": (lambda w: w.export(batch=0), ConfigError, "batch=0"),
    "preprocessing": (lambda w: w.export(preprocessing="no"), ConfigError, "found 'no'"),
    "no path": (lambda w: w.export(path=3), ConfigError, "path: expected"),
    "no image": (lambda w: w.export(**CALIBRATED), ConfigError, "at least one image"),
    "calibrated": (lambda w: w.export(calibration=[]), ConfigError, "precision='int8' of"),
    "torch": (lambda w: w.export(format="torch", **FLOAT16), ExportError, "float16"),
    "prepared": (lambda w: w.export(**FLOAT16), ExportError, "choose preprocessing=False"),
    "classes": (lambda w: w.export(tiny(num_classes=0)), ConfigError, "outputs='features'"),
    "features": (lambda w: w.export(tiny(dense=MAP), outputs="features"), ConfigError, "a map"),
    "any size": (lambda w: w.export(unsized(), format="litert"), ExportError, "fixed image size"),
    # Without a comparison too: the file would be broken.
    "4 bits": (lambda w: w.export(quantised("int4"), verify=False), ExportError, "int4"),
    "subclass": (lambda w: w.export(doubled(), **UNCOMPARED), ExportError, "which Doubled cannot"),
    "stages": (lambda w: w.export(doubled(), outputs="features"), ConfigError, "Doubled.call"),
    "NaN": (lambda w: w.export(of_nan(), preprocessing=False), ExportError, "NaN or infinite"),
    "converters": (lambda w: w.without("onnx", "onnxscript").export(), ExportError, "onnxscript"),
    "runtime": (lambda w: w.without("onnxruntime").export(), ExportError, "verify=False"),
    "program": (lambda w: broken(w, program=FAILING), ExportError, "cannot load model.pt2 today"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
    assert list(world.path.iterdir()) == []


# TensorFlow writes it.
@pytest.mark.on_backend("tensorflow")
def test_litert_refuses_a_model_in_8_bits(world):
    message = "quantised to int8 .*LiteRT.* precision='int8'"
    with pytest.raises(ExportError, match=message):
        world.export(quantised("int8"), format="litert")
    assert list(world.path.iterdir()) == []


@pytest.mark.parametrize("taken", [False, True])
def test_a_difference_or_another_file_leaves_the_folder_as_it_is(tmp_path, monkeypatch, taken):
    """An export replaces an export of its format alone; the tolerance is stated: no 2e-01."""
    monkeypatch.setattr(verification, "TOLERANCES", {"float32": -0.25})
    if taken:
        (tmp_path / "thesis.tex").write_text("chapter 1")
    message = r"thesis\.tex" if taken else r"above the tolerance -0\.25\."
    with pytest.raises(ExportError, match=message):
        path = tmp_path if taken else tmp_path / "model"
        keras_vit.export(random_tiny(), path, preprocessing=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"] * taken
