"""keras-hub presets are read and written bit for bit, and keras-hub loads the written presets."""

from pathlib import Path

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

from keras_vit import checkpoints
from tests.golden import FOLDER, relative_error
from tests.helpers import normal, numpy_of, only_under, random_tiny

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


def assert_same_arrays(left, right):
    """Same files, names, shapes, types and bits."""
    left, right = stored(left), stored(right)
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert (array.shape, array.dtype) == (right[name].shape, right[name].dtype), name
        assert array.tobytes() == right[name].tobytes(), name


def test_a_hub_classifier_with_softmax_is_loaded_as_logits(tmp_path):
    """The softmax of the logits equals the probabilities of keras-hub."""
    load = keras_hub.models.ImageClassifier.from_preset
    hub_model = load(str(FOLDER / "kh_classifier"), activation="softmax")
    hub_model.save_to_preset(str(tmp_path / "preset"))
    image = normal(2, 16, 16, 3)
    got = keras.ops.softmax(checkpoints.load(tmp_path / "preset")(image))
    assert relative_error(numpy_of(got), numpy_of(hub_model(image))) <= 1e-5


def test_an_any_size_model_is_written_with_the_size_of_its_stored_grid(tmp_path):
    """keras-hub does not resize positions."""
    model = random_tiny(**EXACT, image_size=None, position_grid=(2, 3))
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    assert hub_model.backbone.input_shape == (None, 16, 24, 3)
    assert hub_model.preprocessor.image_size == (16, 24)
    want = model.config.replace(image_size=(16, 24), position_grid=None)
    assert checkpoints.load(tmp_path / "preset").config == want


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


def test_bfloat16_presets_are_read_and_written_bit_for_bit(tmp_path):
    """HDF5 has no bfloat16, so Keras marks the arrays by an attribute."""
    folder, converted = tmp_path / "preset", tmp_path / "converted"
    load = keras_hub.models.ImageClassifier.from_preset
    load(str(FOLDER / "kh_classifier"), dtype="bfloat16").save_to_preset(str(folder))
    arrays = stored(folder)
    assert {array.dtype.str for array in arrays.values()} == {"|V2"}
    kernel = numpy_of(checkpoints.load(folder).get_layer("head").kernel)
    want = arrays["task.weights.h5/layers/dense/vars/0"].view(ml_dtypes.bfloat16)
    assert np.array_equal(kernel, want.astype("float32"))
    checkpoints.convert(folder, converted, "keras_hub")
    assert_same_arrays(folder, converted)
    image = normal(2, 16, 16, 3)
    left, right = (numpy_of(load(str(path))(image)) for path in (folder, converted))
    assert np.array_equal(left, right)
