"""Files of transformers' TensorFlow classes, with their outputs."""

from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.containers import open_arrays
from keras_vit.errors import CheckpointError
from tests.family_goldens import relative_error

FOLDER = Path(__file__).parents[1] / "data" / "formats"
CASES = sorted(path.stem for path in FOLDER.glob("*.npz"))
FILE = FOLDER / "tf_vit" / "tf_model.h5"


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
def test_a_file_named_alone_is_the_same_model():
    """The JSON of its folder is read."""
    alone, whole = keras_vit.info(FILE), keras_vit.info(FILE.parent)
    assert (alone.family, alone.config) == (whole.family, whole.config)


@pytest.mark.without_backend
def test_a_cut_file_is_refused(tmp_path):
    """At every twentieth of its length, by an exception of keras_vit."""
    content = FILE.read_bytes()
    path = tmp_path / "x"
    for part in range(1, 20):
        path.write_bytes(content[: len(content) * part // 20])
        with pytest.raises(CheckpointError), open_arrays(path) as reader:
            for array in reader.shapes:
                reader.read(array)
