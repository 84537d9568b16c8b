"""keras-hub's presets are read, and keras-hub reads the folders written for transformers."""

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests import golden
from tests.checkpoints.files import copy, refused
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal

keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = [pytest.mark.on_backend("tensorflow"), pytest.mark.usefixtures("offline")]


def classifier(folder=golden.FOLDER / "kh_classifier", **fields):
    return keras_hub.models.ImageClassifier.from_preset(str(folder), **fields)


def test_a_hub_classifier_with_softmax_is_loaded_as_logits(tmp_path):
    """The softmax of the logits equals the probabilities of keras-hub."""
    theirs, image = classifier(activation="softmax"), normal(2, 16, 16, 3)
    theirs.save_to_preset(str(tmp_path / "preset"))
    found = keras.ops.softmax(VisionTransformer.from_preset(tmp_path / "preset")(image))
    assert_close(found, to_numpy(theirs(image)))


def test_bfloat16_presets_are_read_bit_for_bit(tmp_path):
    """HDF5 has no bfloat16, so Keras marks the arrays by an attribute."""
    classifier(dtype="bfloat16").save_to_preset(str(tmp_path))
    with h5py.File(tmp_path / "task.weights.h5") as file:
        stored = file["layers/dense/vars/0"][()]
    assert stored.dtype.str == "|V2"
    kernel = to_numpy(VisionTransformer.from_preset(tmp_path).get_layer("head").kernel)
    assert np.array_equal(kernel, stored.view(ml_dtypes.bfloat16).astype("float32"))


@pytest.mark.parametrize("name", ["", "hf_deit_teacher", "hf_dinov2_model", "hf_dinov3_model"])
def test_keras_hub_reads_what_is_written_for_transformers(name, tmp_path):
    """A classifier, and the class token of encoders: keras-hub's DeiT leaves one of two heads."""
    if name:
        model, family = golden.load_case(name), keras_vit.info(golden.FAMILIES / name).family
    else:
        model, family = random_tiny(block={"activation": "gelu", "epsilon": 1e-12}), "transformers"
    checkpoints.save(model, tmp_path / "x", family)
    image = normal(2, 16, 16, 3)
    if name:
        tokens = keras_hub.models.Backbone.from_preset(str(tmp_path / "x"))(image)
        assert_close(tokens[:, 0], model.tokens(image, prepared=True).class_token)
    else:
        assert_close(classifier(tmp_path / "x")(image), to_numpy(model(image)))


def test_numbers_of_positions_that_are_beyond_the_table_or_missing_are_refused(tmp_path):
    """The message names the numbers expected and found."""
    folder, name = copy("kh_clip_vision", tmp_path), "layers/clip_vision_embedding/vars/1"
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file[name][0, 3] = 17
    refused(folder, "17 numbers from 0 to 16", ask=VisionTransformer.from_preset)
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        del file[name]
    refused(folder, f"{name!r} is missing")
