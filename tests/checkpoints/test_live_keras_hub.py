"""keras-hub presets are read and written bit for bit, and keras-hub loads the written presets."""

import json
import shutil
from pathlib import Path

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests import family_goldens, golden
from tests.checkpoints.keras_hub_backbones import make_backbone
from tests.family_goldens import CASES, FOLDER, list_cases, load_case, relative_error
from tests.helpers import assert_same_arrays, normal, only_under, random_tiny, to_numpy

# The goldens of keras-hub are compared on every backend; here files and arguments are.
only_under("tensorflow")
keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("offline")

EXACT = {"numerics": {"gelu": "exact"}}


def stored(folder) -> dict[str, np.ndarray]:
    """The weights of a preset folder by file and name, without the optimizer's counters."""
    arrays = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith(("optimizer/", "preprocessor/")):
            arrays[f"{path.name}/{name}"] = item[()]

    for path in sorted(Path(folder).glob("*.h5")):
        with h5py.File(path) as file:
            file.visititems(add)
    return arrays


def test_a_hub_classifier_with_softmax_is_loaded_as_logits(tmp_path):
    """The softmax of the logits equals the probabilities of keras-hub."""
    load = keras_hub.models.ImageClassifier.from_preset
    hub_model = load(str(golden.FOLDER / "kh_classifier"), activation="softmax")
    hub_model.save_to_preset(str(tmp_path / "preset"))
    image = normal(2, 16, 16, 3)
    got = keras.ops.softmax(VisionTransformer.from_preset(tmp_path / "preset")(image))
    assert relative_error(to_numpy(got), to_numpy(hub_model(image))) <= 1e-5


def test_an_any_size_model_is_written_with_the_size_of_its_stored_grid(tmp_path):
    """keras-hub does not resize positions."""
    model = random_tiny(**EXACT, image_size=None, position_grid=(2, 3))
    checkpoints.save(model, tmp_path / "preset", family="keras_hub")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    assert hub_model.backbone.input_shape == (None, 16, 24, 3)
    assert hub_model.preprocessor.image_size == (16, 24)
    want = model.config.replace(image_size=(16, 24), position_grid=None)
    assert VisionTransformer.from_preset(tmp_path / "preset").config == want


def test_both_libraries_give_the_same_logits_from_pixels(tmp_path):
    """Each prepares images of another size by its own preprocessing.

    keras_hub's runs in tf.data: Grain, which its `predict` takes if it is installed, resizes
    otherwise.
    """
    import tensorflow as tf

    model = random_tiny(**EXACT, image_size=(24, 16))
    checkpoints.save(model, tmp_path / "preset", family="keras_hub")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 37, 41, 3)).astype("uint8")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    batches = tf.data.Dataset.from_tensors(pixels).map(hub_model.preprocessor)
    hub_model.preprocessor = None
    want = hub_model.predict(next(batches.as_numpy_iterator()), verbose=0)
    got = model.predict(model.preprocessor(pixels), verbose=0)
    assert relative_error(got, want) <= 1e-5


def test_bfloat16_presets_are_read_and_written_bit_for_bit(tmp_path):
    """HDF5 has no bfloat16, so Keras marks the arrays by an attribute."""
    folder, converted = tmp_path / "preset", tmp_path / "converted"
    load = keras_hub.models.ImageClassifier.from_preset
    load(str(golden.FOLDER / "kh_classifier"), dtype="bfloat16").save_to_preset(str(folder))
    arrays = stored(folder)
    assert {array.dtype.str for array in arrays.values()} == {"|V2"}
    kernel = to_numpy(VisionTransformer.from_preset(folder).get_layer("head").kernel)
    want = arrays["task.weights.h5/layers/dense/vars/0"].view(ml_dtypes.bfloat16)
    assert np.array_equal(kernel, want.astype("float32"))
    keras_vit.convert(folder, converted, "keras_hub")
    assert_same_arrays(arrays, stored(converted))
    image = normal(2, 16, 16, 3)
    left, right = (to_numpy(load(str(path))(image)) for path in (folder, converted))
    assert np.array_equal(left, right)


PLAIN = [name for name, case in golden.CASES.items() if case["family"] == "keras_hub"]
KERAS_HUB = {
    **dict.fromkeys(PLAIN, golden),
    **dict.fromkeys(list_cases("keras_hub"), family_goldens),
}
"""Names of cases, and the module that reads their goldens."""


def keras_hub_outputs(folder, image) -> np.ndarray:
    """The output for an image of the model that keras-hub loads from a folder."""
    kind = json.loads((folder / "config.json").read_text())["class_name"]
    if (folder / "task.json").exists():
        model = keras_hub.models.ImageClassifier.from_preset(str(folder))
    else:
        model = getattr(keras_hub.models, kind).from_preset(str(folder))
    images = {tensor.name: image for tensor in keras.tree.flatten(model.input)}
    return to_numpy(model(images if len(images) > 1 or isinstance(model.input, dict) else image))


@pytest.mark.parametrize("name", KERAS_HUB)
def test_converting_a_file_to_its_own_dialect_keeps_names_and_bits(name, tmp_path):
    """Names, dtypes and bits; a table that keras-hub computes from another table is left out.

    The encoders of CLIP in `tests/data/families` let every token read the first position; the
    positions come back as the model reads them.
    """
    goldens = KERAS_HUB[name]
    source = goldens.FOLDER / goldens.CASES[name]["checkpoint"]
    keras_vit.convert(source, tmp_path / "x", "keras_hub")
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
    assert_same_arrays(original, written)


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
    with pytest.raises(CheckpointError, match="a vision encoder without a text encoder"):
        checkpoints.save(model, tmp_path / "x", f"keras_hub/{family.lower()}_backbone")
