"""keras-hub's presets are read, and keras-hub reads the folders written for transformers."""

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests import family_goldens, golden
from tests.checkpoints.files import copy, refused
from tests.checkpoints.keras_hub_backbones import make_backbone
from tests.helpers import assert_close, random_tiny, randomise, to_numpy
from tests.plain import normal

# The goldens of keras-hub are compared on every backend; here files and arguments are.

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


def test_keras_hub_reads_a_vit_written_for_transformers(tmp_path):
    model = random_tiny(block={"activation": "gelu", "epsilon": 1e-12})
    checkpoints.save(model, tmp_path / "x", "transformers")
    image = normal(2, 16, 16, 3)
    assert_close(classifier(tmp_path / "x")(image), to_numpy(model(image)))


@pytest.mark.parametrize("name", ["hf_deit_teacher", "hf_dinov2_model", "hf_dinov3_model"])
def test_keras_hub_reads_an_encoder_written_for_transformers(name, tmp_path):
    """The class token: keras-hub's DeiT leaves one of two heads out."""
    model = family_goldens.load_case(name)
    checkpoints.save(model, tmp_path / "x", keras_vit.info(family_goldens.FOLDER / name).family)
    image = normal(2, *model.config.image_size, 3)
    theirs = keras_hub.models.Backbone.from_preset(str(tmp_path / "x"))
    assert_close(theirs(image)[:, 0], model.tokens(image, prepared=True).class_token)


def test_numbers_of_positions_that_are_beyond_the_table_or_missing_are_refused(tmp_path):
    """The message names the numbers expected and found."""
    folder = copy("kh_clip_vision", tmp_path)
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file["layers/clip_vision_embedding/vars/1"][0, 3] = 17
    refused(folder, "17 numbers from 0 to 16", ask=VisionTransformer.from_preset)
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        del file["layers/clip_vision_embedding/vars/1"]
    refused(folder, "'layers/clip_vision_embedding/vars/1' is missing")


@pytest.mark.parametrize("family", ["CLIP", "SigLIP"])
def test_the_vision_encoder_of_a_backbone_is_read(family, tmp_path):
    """Its features, projected in CLIP; the text encoder is left out."""
    backbone, encoder = make_backbone(family)
    randomise(backbone)
    for weight in encoder.non_trainable_weights:  # the numbers of the positions
        weight.assign(np.arange(weight.shape[-1])[None])
    backbone.save_to_preset(tmp_path)
    image = normal(2, 16, 16, 3)
    assert keras_vit.info(tmp_path).family == f"keras_hub/{family.lower()}"
    model = VisionTransformer.from_preset(tmp_path)
    assert_close(model(image), to_numpy(backbone.get_vision_embeddings(image)))
