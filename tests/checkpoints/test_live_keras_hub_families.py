"""keras-hub's other families: their files come back bit for bit, and keras-hub loads ours."""

import json
import shutil

import h5py
import keras
import numpy as np
import pytest

from keras_vit import CheckpointError, VisionTransformer, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from tests.checkpoints.homes import HOMES
from tests.checkpoints.test_live_keras_hub import stored
from tests.family_goldens import CASES, FOLDER, cases_of, expected, load_case, relative_error
from tests.helpers import normal, numpy_of, randomise

keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("offline", "quick_compilation")

KERAS_HUB = cases_of("keras_hub")
FAMILIES = [name for name in HOMES if name.startswith("keras_hub/")]
_SIZES = {"hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 2, "num_classes": 3}


def their_outputs(folder, image) -> np.ndarray:
    """What keras-hub's own loader makes of a folder, and answers to an image."""
    kind = json.loads((folder / "config.json").read_text())["class_name"]
    if (folder / "task.json").exists():
        model = keras_hub.models.ImageClassifier.from_preset(str(folder))
    else:
        model = getattr(keras_hub.models, kind).from_preset(str(folder))
    images = {tensor.name: image for tensor in keras.tree.flatten(model.input)}
    return numpy_of(model(images if len(images) > 1 or isinstance(model.input, dict) else image))


@pytest.mark.parametrize("name", KERAS_HUB)
def test_files_come_back_as_they_were(name, tmp_path):
    """Names, types and bits; a table that keras-hub computes from another one is left out.

    The encoders of CLIP in `tests/data/families` let every token read the first position; the
    positions come back as the model reads them.
    """
    source = FOLDER / CASES[name]["checkpoint"]
    checkpoints.convert(source, tmp_path / "x", "keras_hub")
    theirs, ours = stored(source), stored(tmp_path / "x")
    if "dinov2" in name:
        tokens = "model.weights.h5/layers/dinov2_embedding/vars/"
        first = 2 + (CASES[name]["config"]["num_registers"] > 0)
        del theirs[f"{tokens}{first}"]
    if "clip" in name:
        numbers = "model.weights.h5/layers/clip_vision_embedding/vars/1"
        table = "model.weights.h5/layers/clip_vision_embedding/position_embedding/vars/0"
        theirs[table] = theirs[table][theirs[numbers][0]]
        theirs[numbers] = np.arange(17, dtype="int32")[None]
    assert theirs.keys() == ours.keys()
    for array, value in theirs.items():
        assert value.dtype == ours[array].dtype
        np.testing.assert_array_equal(value, ours[array])


@pytest.mark.parametrize("name", KERAS_HUB)
def test_keras_hub_computes_the_same_from_our_file(name, tmp_path):
    """keras-hub gives the outputs of `tests/data/families` from what keras_vit wrote.

    The resize of DINOv2's positions is the backend's own; the reference is JAX's.
    """
    case, want = CASES[name], expected(name)
    checkpoints.save(load_case(name), tmp_path / "x", "keras_hub")
    if name == "kh_dinov2_resized" and keras.backend.backend() != "jax":
        pytest.skip("keras-hub resizes positions otherwise under another backend than JAX")
    found = their_outputs(tmp_path / "x", want["image"])
    stage = "logits" if "logits" in want else "pre_logits" if "siglip" in name else "encoded"
    assert relative_error(found, want[stage]) <= case["tolerance_tokens"]


@pytest.mark.parametrize("family", FAMILIES)
def test_keras_hub_loads_a_model_of_ours(family, tmp_path):
    """A model born here, with every weight random, gives its outputs there."""
    fields = {"image_size": 16, "patch_size": 4, **HOMES[family]}
    fields |= {name: size for name, size in _SIZES.items() if name not in HOMES[family]}
    model = VisionTransformer(**fields, numerics=DIALECTS[family].numerics)
    randomise(model)
    checkpoints.save(model, tmp_path / "x", "keras_hub")
    assert checkpoints.inspect(tmp_path / "x").config == model.config
    image = normal(2, *model.input_shape[1:])
    found = their_outputs(tmp_path / "x", image)
    ours = numpy_of(model(image))
    if found.ndim > ours.ndim:
        found = found[:, 0]
    assert relative_error(ours, found) <= 1e-5


def test_positions_of_another_grid_keep_it(tmp_path):
    """DINOv2's own table goes back as it was, for the images of the backbone."""
    model = load_case("kh_dinov2_resized")
    assert (model.config.position_grid, model.config.grid) == ((4, 4), (6, 6))
    checkpoints.save(model, tmp_path / "x", "keras_hub")
    written = json.loads((tmp_path / "x" / "config.json").read_text())["config"]
    assert written["image_shape"] == [24, 24, 3]
    assert written["position_embedding_shape"] == [16, 16, 3]


def test_numbers_of_rows_that_are_not_there(tmp_path):
    """A number beyond the table of positions is named with its array."""
    folder = shutil.copytree(FOLDER / "kh_clip_vision", tmp_path / "x")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file["layers/clip_vision_embedding/vars/1"][0, 3] = 17
    with pytest.raises(CheckpointError, match="expected 17 numbers from 0 to 16, found"):
        checkpoints.load(folder)
