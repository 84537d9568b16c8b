"""keras-hub's presets are read, and keras-hub reads the folders written for transformers."""

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests import golden
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


def test_keras_hub_reads_a_classifier_that_is_written_for_transformers(tmp_path):
    model, image = random_tiny(block={"activation": "gelu", "epsilon": 1e-12}), normal(2, 16, 16, 3)
    checkpoints.save(model, tmp_path / "x", "transformers")
    assert_close(classifier(tmp_path / "x")(image), to_numpy(model(image)))


@pytest.mark.parametrize("name", ["hf_deit_teacher", "hf_dinov2_model", "hf_dinov3_model"])
def test_keras_hub_reads_an_encoder_that_is_written_for_transformers(name, tmp_path):
    """The class token is compared: keras-hub's DeiT leaves one of two heads."""
    model, image = golden.load_case(name), normal(2, 16, 16, 3)
    checkpoints.save(model, tmp_path / "x", keras_vit.info(golden.FAMILIES / name).family)
    tokens = keras_hub.models.Backbone.from_preset(str(tmp_path / "x"))(image)
    assert_close(tokens[:, 0], model.tokens(image, prepared=True).class_token)
