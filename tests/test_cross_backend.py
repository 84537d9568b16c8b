"""One set of weights gives the same logits on all three backends.

`KERAS_BACKEND=jax python -m tests.test_cross_backend` writes the logits that are compared with.
"""

import zlib
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import checkpoints
from keras_vit.checkpoints.transfer import weights_by_path
from keras_vit.layers import blank_weights
from keras_vit.models.builders import variant
from tests.golden import relative_error
from tests.helpers import assert_close, random_tiny
from tests.plain import normal
from tests.processes import python

pytestmark = pytest.mark.every_backend

NEXT = {"torch": "jax", "jax": "tensorflow", "tensorflow": "torch"}[keras.backend.backend()]
"""The backend that reads what this one writes. The suite runs on all three, so each reads once."""
FULL_SIZE = ("vit_s16", "r26_vit_s32")
LOGITS = Path(__file__).parent / "data" / "full_size_logits.npz"
"""The logits of the full-size models on JAX."""

LOAD = """
import sys
import numpy as np
import keras, keras_vit
folder = sys.argv[1]
images = np.load(f"{folder}/images.npy")
np.savez(
    f"{folder}/{keras.backend.backend()}.npz",
    keras=keras.saving.load_model(f"{folder}/model.keras").predict(images, verbose=0),
    preset=keras_vit.VisionTransformer.from_preset(f"{folder}/preset").predict(images, verbose=0),
    npz=keras_vit.VisionTransformer.from_preset(
        f"{folder}/model.npz", position_grid=(2, 3)).predict(images, verbose=0),
)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model saved as .keras file, preset and official npz, and its logits."""
    folder = tmp_path_factory.mktemp("saved")
    model = random_tiny(image_size=(16, 24))
    images = normal(3, 16, 24, 3)
    np.save(folder / "images.npy", images)
    model.save(folder / "model.keras")
    model.save_to_preset(folder / "preset")
    checkpoints.save(model, folder / "model.npz")
    return folder, model.predict(images, verbose=0)


def test_files_saved_on_one_backend_load_on_the_next(saved):
    """.keras file, preset and official npz give the same logits there."""
    folder, want = saved
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    process = python(LOAD, folder, KERAS_BACKEND=NEXT, **quiet)
    assert process.returncode == 0, process.stderr
    with np.load(folder / f"{NEXT}.npz") as logits:
        for kind in ("keras", "preset", "npz"):
            assert_close(logits[kind], want)


def full_size_logits() -> dict[str, np.ndarray]:
    """Returns the logits of full-size models whose weights are seeded by their paths."""
    images = np.random.default_rng(0).uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    logits = {}
    for name in FULL_SIZE:
        with blank_weights():  # all are given values below
            model = variant(name)()
        for weight_path, variable in weights_by_path(model).items():
            rng = np.random.default_rng(zlib.crc32(weight_path.encode()))
            values = rng.standard_normal(variable.shape, dtype="float32")
            if weight_path.endswith("kernel"):
                fan_in = np.prod(variable.shape[:-1])
                variable.assign(values / np.sqrt(fan_in, dtype="float32"))
            else:
                variable.assign(0.1 * values + weight_path.endswith("gamma"))
        logits[name] = model.predict(images, verbose=0)
    return logits


def test_full_size_models_agree_across_backends():
    """A ViT and a hybrid at 224 pixels: within 1e-4 of max |logit|."""
    got = full_size_logits()
    with np.load(LOGITS) as want:
        for name in FULL_SIZE:
            assert np.abs(want[name]).max() > 0.1
            error = relative_error(got[name], want[name])
            print(f"{name}: jax against {keras.backend.backend()} {error:.1e}")
            assert error <= 1e-4, name


if __name__ == "__main__":
    np.savez(LOGITS, **full_size_logits())
