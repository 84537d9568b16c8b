"""keras-hub's other families: files are read and written bit for bit, and keras-hub loads them."""

import json
import shutil

import h5py
import keras
import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from tests import family_goldens, golden
from tests.checkpoints.keras_hub_backbones import backbone_of
from tests.checkpoints.test_live_keras_hub import stored
from tests.family_goldens import CASES, FOLDER, cases_of, load_case, relative_error
from tests.helpers import normal, numpy_of, only_under

# The goldens of keras-hub are compared on every backend; here files and arguments are.
only_under("tensorflow")
keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("offline")

PLAIN = [name for name, case in golden.CASES.items() if case["family"] == "keras_hub"]
KERAS_HUB = {**dict.fromkeys(PLAIN, golden), **dict.fromkeys(cases_of("keras_hub"), family_goldens)}
"""Names of cases, and the module that reads their goldens."""


def keras_hub_outputs(folder, image) -> np.ndarray:
    """The output for an image of the model that keras-hub loads from a folder."""
    kind = json.loads((folder / "config.json").read_text())["class_name"]
    if (folder / "task.json").exists():
        model = keras_hub.models.ImageClassifier.from_preset(str(folder))
    else:
        model = getattr(keras_hub.models, kind).from_preset(str(folder))
    images = {tensor.name: image for tensor in keras.tree.flatten(model.input)}
    return numpy_of(model(images if len(images) > 1 or isinstance(model.input, dict) else image))


@pytest.mark.parametrize("name", KERAS_HUB)
def test_converting_a_file_to_its_own_dialect_keeps_names_and_bits(name, tmp_path):
    """Names, dtypes and bits; a table that keras-hub computes from another table is left out.

    The encoders of CLIP in `tests/data/families` let every token read the first position; the
    positions come back as the model reads them.
    """
    goldens = KERAS_HUB[name]
    source = goldens.FOLDER / goldens.CASES[name]["checkpoint"]
    checkpoints.convert(source, tmp_path / "x", "keras_hub")
    original, written = stored(source), stored(tmp_path / "x")
    if "dinov2" in name:
        tokens = "model.weights.h5/layers/dinov2_embedding/vars/"
        first = 2 + (CASES[name]["config"]["num_registers"] > 0)
        del original[f"{tokens}{first}"]
    if "clip" in name:
        numbers = "model.weights.h5/layers/clip_vision_embedding/vars/1"
        table = "model.weights.h5/layers/clip_vision_embedding/position_embedding/vars/0"
        original[table] = original[table][original[numbers][0]]
        original[numbers] = np.arange(17, dtype="int32")[None]
    assert original.keys() == written.keys()
    for array, value in original.items():
        assert value.dtype == written[array].dtype
        np.testing.assert_array_equal(value, written[array])


@pytest.mark.parametrize("name", KERAS_HUB)
def test_keras_hub_gives_the_same_outputs_from_a_file_of_keras_vit(name, tmp_path):
    """The outputs of `tests/data/families`.

    DINOv2's positions are resized by the backend; the reference was computed on JAX.
    """
    goldens = KERAS_HUB[name]
    case, want = goldens.CASES[name], goldens.expected(name)
    checkpoints.save(goldens.load_case(name), tmp_path / "x", "keras_hub")
    if name == "kh_dinov2_resized" and keras.backend.backend() != "jax":
        pytest.skip("keras-hub resizes positions otherwise under another backend than JAX")
    found = keras_hub_outputs(tmp_path / "x", want["image"])
    stage = "logits" if "logits" in want else "pre_logits" if "siglip" in name else "encoded"
    assert relative_error(found, want[stage]) <= case["tolerance_tokens"]


def test_positions_stored_for_another_grid_are_written_for_that_grid(tmp_path):
    """DINOv2's table is written unchanged, beside the image size of the backbone."""
    model = load_case("kh_dinov2_resized")
    assert (model.config.position_grid, model.config.grid) == ((4, 4), (6, 6))
    checkpoints.save(model, tmp_path / "x", "keras_hub")
    written = json.loads((tmp_path / "x" / "config.json").read_text())["config"]
    assert written["image_shape"] == [24, 24, 3]
    assert written["position_embedding_shape"] == [16, 16, 3]


def test_a_position_number_beyond_the_table_is_refused(tmp_path):
    """The message names the numbers expected and found."""
    folder = shutil.copytree(FOLDER / "kh_clip_vision", tmp_path / "x")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file["layers/clip_vision_embedding/vars/1"][0, 3] = 17
    with pytest.raises(CheckpointError, match="expected 17 numbers from 0 to 16, found"):
        checkpoints.load(folder)


@pytest.mark.parametrize("family", ["CLIP", "SigLIP"])
def test_the_vision_encoder_of_a_backbone_is_read(family, tmp_path):
    """Its features, projected in CLIP; the text encoder is left out."""
    backbone, encoder = backbone_of(family)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    for weight in encoder.non_trainable_weights:  # the numbers of the positions
        weight.assign(np.arange(weight.shape[-1])[None])
    backbone.save_to_preset(tmp_path)
    image = normal(2, 16, 16, 3)
    found = backbone.get_vision_embeddings(image)
    model = checkpoints.load(tmp_path)
    assert checkpoints.inspect(tmp_path).dialect == f"keras_hub/{family.lower()}_backbone"
    assert relative_error(numpy_of(model(image)), numpy_of(found)) <= 1e-5
    with pytest.raises(CheckpointError, match="a vision encoder without a text encoder"):
        checkpoints.save(model, tmp_path / "x", f"keras_hub/{family.lower()}_backbone")
