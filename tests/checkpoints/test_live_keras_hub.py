"""keras-hub presets are read and written bit for bit, and keras-hub loads the written presets."""

import shutil
from pathlib import Path

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from tests.golden import FOLDER, relative_error
from tests.helpers import normal, numpy_of, only_under, random_tiny

# The goldens of keras-hub are compared on every backend; here files and arguments are.
only_under("tensorflow")
keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("offline")

BACKBONE = {
    "image_shape": (16, 16, 3),
    "patch_size": (8, 8),
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "mlp_dim": 32,
}
EXACT = {"numerics": {"gelu": "exact"}}


def random_hub_model(backbone=None, task=None, seed=0):
    """A model of keras-hub with a random value in every weight; `task=None` for a backbone."""
    model = keras_hub.models.ViTBackbone(**{**BACKBONE, **(backbone or {})})
    hidden = model.hidden_dim
    if task is not None:
        model = keras_hub.models.ViTImageClassifier(model, **{"num_classes": 5, **task})
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.standard_normal(weight.shape, "float32")
        values *= min(0.3, (hidden / values.size) ** 0.5)  # keeps wide layers in bounds
        weight.assign(values + (weight.name == "gamma"))
    return model


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


def assert_same_arrays(left, right):
    """Same files, names, shapes, types and bits."""
    left, right = stored(left), stored(right)
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert (array.shape, array.dtype) == (right[name].shape, right[name].dtype), name
        assert array.tobytes() == right[name].tobytes(), name


def test_a_hub_classifier_with_softmax_is_loaded_as_logits(tmp_path):
    """The softmax of the logits equals the probabilities of keras-hub."""
    hub_model = random_hub_model({}, {"activation": "softmax"})
    hub_model.save_to_preset(str(tmp_path / "preset"))
    image = normal(2, 16, 16, 3)
    got = keras.ops.softmax(checkpoints.load(tmp_path / "preset")(image))
    assert relative_error(numpy_of(got), numpy_of(hub_model(image))) <= 1e-5


MODELS = {
    "token": {},
    "representation": {"representation_size": 9},
    "gap": {"classifier": "gap"},
    "mean_with_class_token": {
        "classifier": "gap",
        "class_token": True,
        "class_token_in_mean": True,
    },
    "rectangle": {"image_size": (24, 16), "patch_size": (4, 8)},
    "one_channel": {"channels": 1},
    "epsilon": {"numerics": {"gelu": "exact", "layer_norm_epsilon": 1e-3}},
}


@pytest.mark.parametrize("kind", MODELS)
def test_keras_hub_gives_the_logits_of_a_classifier_of_keras_vit(kind, tmp_path):
    """Within 1e-5 of the largest logit."""
    model = random_tiny(**{**EXACT, **MODELS[kind]})
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    image = normal(2, *model.input_shape[1:])
    hub_model = keras_hub.models.ViTImageClassifier.from_preset(str(tmp_path / "preset"))
    assert relative_error(numpy_of(hub_model(image)), numpy_of(model(image))) <= 1e-5


def test_an_any_size_model_is_written_with_the_size_of_its_stored_grid(tmp_path):
    """keras-hub does not resize positions."""
    model = random_tiny(**EXACT, image_size=None, position_grid=(2, 3))
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    assert hub_model.backbone.input_shape == (None, 16, 24, 3)
    assert hub_model.preprocessor.image_size == (16, 24)
    want = model.config.replace(image_size=(16, 24), position_grid=None)
    assert checkpoints.load(tmp_path / "preset").config == want


@pytest.mark.parametrize("kind", ["token", "gap", "rectangle"])
def test_keras_hub_loads_a_model_without_a_head_as_a_backbone(kind, tmp_path):
    """The backbone gives the tokens after the encoder norm."""
    model = random_tiny(**{**EXACT, **MODELS[kind], "num_classes": 0})
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    image = normal(2, *model.input_shape[1:])
    hub_model = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)(image)
    assert relative_error(numpy_of(hub_model(image)), numpy_of(tokens)) <= 1e-5
    backbone = checkpoints.load(tmp_path / "preset")
    assert backbone.config == model.config


@pytest.mark.parametrize("fields", [{}, {"image_size": (24, 16), "channels": 1}])
def test_the_written_preprocessor_scales_pixels_to_minus_one_to_one(fields, tmp_path):
    """keras-hub loads the image converter alone and in its preprocessor."""
    model = random_tiny(**EXACT, **fields)
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    pixels = np.zeros((1, *model.input_shape[1:]), "uint8")
    pixels[:, ::2] = 255
    for loader in (
        keras_hub.layers.ImageConverter,
        keras_hub.models.ImageClassifierPreprocessor,
    ):
        got = np.asarray(loader.from_preset(str(tmp_path / "preset"))(pixels))
        assert got.shape == pixels.shape
        np.testing.assert_allclose(got, pixels / 127.5 - 1, atol=1e-6)


def test_both_libraries_give_the_same_logits_from_pixels(tmp_path):
    """Each prepares images of another size by its own preprocessing.

    keras_hub's runs in tf.data: Grain, which its `predict` takes if it is installed, resizes
    otherwise.
    """
    import tensorflow as tf

    model = random_tiny(**EXACT, image_size=(24, 16))
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 37, 41, 3)).astype("uint8")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    batches = tf.data.Dataset.from_tensors(pixels).map(hub_model.preprocessor)
    hub_model.preprocessor = None
    want = hub_model.predict(next(batches.as_numpy_iterator()), verbose=0)
    got = model.predict(model.preprocessor(pixels), verbose=0)
    assert relative_error(got, want) <= 1e-5


def test_a_hybrid_is_not_written_even_with_lossy(tmp_path):
    """keras-hub's ViT has no ResNet stem."""
    with pytest.raises(CheckpointError, match="no place for root/conv/kernel: keras-hub has no hy"):
        checkpoints.convert(FOLDER / "hybrid_r26.npz", tmp_path / "preset", "keras_hub", lossy=True)
    assert list(tmp_path.iterdir()) == []


def test_lossy_writes_a_model_with_the_tanh_gelu(tmp_path):
    """The weights are unchanged, and keras-hub computes with the exact GELU."""
    model = random_tiny()
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub", lossy=True)
    image = normal(2, 16, 16, 3)
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    hub_logits = numpy_of(hub_model(image))
    exact = checkpoints.load(tmp_path / "preset")
    assert exact.config == model.config.replace(**EXACT)
    assert relative_error(numpy_of(exact(image)), hub_logits) <= 1e-5
    assert relative_error(numpy_of(model(image)), hub_logits) > 3e-5


@pytest.fixture(scope="module")
def unspoilt(tmp_path_factory):
    """A classifier's preset as keras-hub writes it."""
    folder = tmp_path_factory.mktemp("unspoilt")
    random_hub_model({}, {"intermediate_dim": 9}).save_to_preset(str(folder))
    return folder


@pytest.fixture
def folder(unspoilt, tmp_path):
    """A copy of the preset `unspoilt`, which the tests damage."""
    return shutil.copytree(unspoilt, tmp_path / "preset")


def refused(folder) -> str:
    """Loads and converts a preset; returns the message, which must be the same for both."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(folder)
    with pytest.raises(CheckpointError) as again:
        checkpoints.convert(folder, folder.with_name("converted"), "google")
    assert str(again.value) == str(caught.value)
    assert str(folder) in str(caught.value)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return str(caught.value)


def test_a_missing_task_weights_file_names_every_array_of_the_head(folder):
    """As missing arrays."""
    (folder / "task.weights.h5").unlink()
    message = refused(folder)
    assert "4 arrays do not fit" in message
    for array in ("dense/vars/0", "dense/vars/1", "dense_1/vars/0", "dense_1/vars/1"):
        assert f"missing: task/layers/{array}, expected" in message


def test_a_missing_task_json_names_the_arrays_of_the_head(folder):
    """As unexpected arrays."""
    (folder / "task.json").unlink()
    assert "unexpected: task/layers/dense_1/vars/0 (9, 5)" in refused(folder)


def test_a_preset_without_both_json_files_is_refused(folder):
    """Without them the layer of the head is unknown, and it is not guessed."""
    (folder / "config.json").unlink()
    (folder / "task.json").unlink()
    message = refused(folder)
    assert "config.json and task.json, which name the layer of the head, are missing" in message


def test_bfloat16_presets_are_read_and_written_bit_for_bit(tmp_path):
    """HDF5 has no bfloat16, so Keras marks the arrays by an attribute."""
    folder, converted = tmp_path / "preset", tmp_path / "converted"
    random_hub_model({"dtype": "bfloat16", "num_layers": 1}, {}).save_to_preset(str(folder))
    arrays = stored(folder)
    assert {array.dtype.str for array in arrays.values()} == {"|V2"}
    kernel = numpy_of(checkpoints.load(folder).get_layer("head").kernel)
    want = arrays["task.weights.h5/layers/dense/vars/0"].view(ml_dtypes.bfloat16)
    assert np.array_equal(kernel, want.astype("float32"))
    checkpoints.convert(folder, converted, "keras_hub")
    assert_same_arrays(folder, converted)
    image = normal(2, 16, 16, 3)
    left, right = (
        numpy_of(keras_hub.models.ImageClassifier.from_preset(str(path))(image))
        for path in (folder, converted)
    )
    assert np.array_equal(left, right)
