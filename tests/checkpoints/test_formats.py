"""Files of transformers' TensorFlow and Flax classes, with their outputs."""

from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.containers import open_arrays
from keras_vit.errors import CheckpointError
from tests.family_goldens import relative_error

FOLDER = Path(__file__).parents[1] / "data" / "formats"
CASES = sorted(path.stem for path in FOLDER.glob("*.npz"))
PLACES = {"tf_vit": "tf_model.h5", "flax_vit": "flax_model.msgpack"}


@pytest.mark.parametrize("name", CASES)
def test_a_folder_gives_the_outputs_of_the_library(name):
    """Within 1e-5 of the largest value; the JSON beside the weights is read."""
    with np.load(FOLDER / f"{name}.npz") as file:
        want = dict(file)
    image = want.pop("image")
    model = keras_vit.VisionTransformer.from_preset(FOLDER / name)
    ((_, value),) = want.items()
    assert relative_error(model.predict(image, verbose=0), value) <= 1e-5


@pytest.mark.without_backend
@pytest.mark.parametrize("name", PLACES)
def test_a_file_named_alone_is_the_same_model(name):
    """The JSON of its folder is read."""
    alone, whole = keras_vit.info(FOLDER / name / PLACES[name]), keras_vit.info(FOLDER / name)
    assert (alone.family, alone.config) == (whole.family, whole.config)


@pytest.mark.without_backend
@pytest.mark.parametrize("name", PLACES)
def test_a_cut_file_is_refused(name, tmp_path):
    """At every twentieth of its length, by an exception of keras_vit."""
    content = (FOLDER / name / PLACES[name]).read_bytes()
    path = tmp_path / "x"
    for part in range(1, 20):
        path.write_bytes(content[: len(content) * part // 20])
        with pytest.raises(CheckpointError), open_arrays(path) as reader:
            for array in reader.shapes:
                reader.read(array)


@pytest.mark.without_backend
def test_hostile_files_of_flax_are_refused(tmp_path):
    """False lengths, types that hold objects, and maps without end."""
    good = (FOLDER / "flax_vit" / "flax_model.msgpack").read_bytes()
    cases = {
        "object": good.replace(b"\xa7float32", b"\xa7object0", 1),
        "length": good.replace(b"\xa7float32", b"\xa7float64", 1),
        "map": b"\xdf\xff\xff\xff\xff" + good[1:],
        "deep": b"\x81\xa1a" * 5000 + b"\xc0",
        "more": good + b"\xc0",
    }
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            open_arrays(path)
