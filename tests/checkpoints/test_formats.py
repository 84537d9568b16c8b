"""Files of transformers' TensorFlow classes, with their outputs."""

import numpy as np
import pytest

import keras_vit
from tests.checkpoints.files import DATA, find
from tests.family_goldens import relative_error

CASES = sorted(path.stem for path in (DATA / "formats").glob("*.npz"))


@pytest.mark.parametrize("name", CASES)
def test_a_folder_gives_the_outputs_of_the_library(name):
    """Within 1e-5 of the largest value; the file named alone is the same model by its JSON."""
    with np.load(find(f"{name}.npz")) as file:
        want = dict(file)
    image = want.pop("image")
    model = keras_vit.VisionTransformer.from_preset(find(name))
    ((_, value),) = want.items()
    assert relative_error(model.predict(image, verbose=0), value) <= 1e-5
    alone, whole = keras_vit.info(find(f"{name}/tf_model.h5")), keras_vit.info(find(name))
    assert (alone.family, alone.config) == (whole.family, whole.config)
