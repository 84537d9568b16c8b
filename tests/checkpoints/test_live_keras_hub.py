"""keras-hub's presets are read, and keras-hub reads the folders written for transformers."""

import shutil

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.config.fields import nest
from keras_vit.errors import CheckpointError
from keras_vit.models.inference import run
from tests import golden
from tests.checkpoints.keras_hub_backbones import make_backbone
from tests.family_goldens import FOLDER, relative_error
from tests.helpers import normal, only_under, random_tiny, to_numpy

# The goldens of keras-hub are compared on every backend; here files and arguments are.
only_under("tensorflow")
keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("offline")


def test_a_hub_classifier_with_softmax_is_loaded_as_logits(tmp_path):
    """The softmax of the logits equals the probabilities of keras-hub."""
    load = keras_hub.models.ImageClassifier.from_preset
    hub_model = load(str(golden.FOLDER / "kh_classifier"), activation="softmax")
    hub_model.save_to_preset(str(tmp_path / "preset"))
    image = normal(2, 16, 16, 3)
    got = keras.ops.softmax(VisionTransformer.from_preset(tmp_path / "preset")(image))
    assert relative_error(to_numpy(got), to_numpy(hub_model(image))) <= 1e-5


def test_bfloat16_presets_are_read_bit_for_bit(tmp_path):
    """HDF5 has no bfloat16, so Keras marks the arrays by an attribute."""
    load = keras_hub.models.ImageClassifier.from_preset
    load(str(golden.FOLDER / "kh_classifier"), dtype="bfloat16").save_to_preset(str(tmp_path))
    with h5py.File(tmp_path / "task.weights.h5") as file:
        stored = file["layers/dense/vars/0"][()]
    assert stored.dtype.str == "|V2"
    kernel = to_numpy(VisionTransformer.from_preset(tmp_path).get_layer("head").kernel)
    assert np.array_equal(kernel, stored.view(ml_dtypes.bfloat16).astype("float32"))


ENCODER = {"num_classes": 0, "block.layer_scale": 1e-5, "tokens.mask": True}
FAMILIES = {
    "transformers": {},
    "transformers/deit": {"pool.kind": "token_and_distillation", "tokens.distillation": True},
    "transformers/dinov2": ENCODER,
    "transformers/dinov3_vit": {**ENCODER, "position": "none", "rope.form": "dinov3"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_keras_hub_reads_a_folder_written_for_transformers(family, tmp_path):
    """The logits of a ViT, else the class token: keras-hub's DeiT leaves one of two heads out."""
    model = random_tiny(**nest({**DIALECTS[family].arithmetic, **FAMILIES[family]}))
    checkpoints.save(model, tmp_path / "x", family)
    image = normal(2, *model.config.image_size, 3)
    if family == "transformers":
        theirs = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "x"))
        found, want = to_numpy(theirs(image)), to_numpy(model(image))
    else:
        theirs = keras_hub.models.Backbone.from_preset(str(tmp_path / "x"))
        found = to_numpy(theirs(image))[:, 0]
        want = run(model, image, ["encoder_norm"])["encoder_norm"][:, 0]
    assert relative_error(found, want) <= 1e-5


def test_a_position_number_beyond_the_table_is_refused(tmp_path):
    """The message names the numbers expected and found."""
    folder = shutil.copytree(FOLDER / "kh_clip_vision", tmp_path / "x")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file["layers/clip_vision_embedding/vars/1"][0, 3] = 17
    with pytest.raises(CheckpointError, match="expected 17 numbers from 0 to 16, found"):
        VisionTransformer.from_preset(folder)


@pytest.mark.parametrize("family", ["CLIP", "SigLIP"])
def test_the_vision_encoder_of_a_backbone_is_read(family, tmp_path):
    """Its features, projected in CLIP; the text encoder is left out."""
    backbone, encoder = make_backbone(family)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    for weight in encoder.non_trainable_weights:  # the numbers of the positions
        weight.assign(np.arange(weight.shape[-1])[None])
    backbone.save_to_preset(tmp_path)
    image = normal(2, 16, 16, 3)
    found = backbone.get_vision_embeddings(image)
    model = VisionTransformer.from_preset(tmp_path)
    assert keras_vit.info(tmp_path).family == f"keras_hub/{family.lower()}_backbone"
    assert relative_error(to_numpy(model(image)), to_numpy(found)) <= 1e-5
