"""One set of weights gives the same logits on all three backends.

`KERAS_BACKEND=jax python -m tests.test_cross_backend` writes the logits that are compared with.
"""

import zlib

import keras
import numpy as np
import pytest

from keras_vit import checkpoints
from keras_vit.checkpoints.transfer import weights_by_path
from keras_vit.layers import blank_weights
from keras_vit.models.builders import variant
from tests.golden import DATA, relative_error
from tests.helpers import assert_close, random_tiny
from tests.plain import normal
from tests.processes import python

pytestmark = pytest.mark.every_backend

NEXT = {"torch": "jax", "jax": "tensorflow", "tensorflow": "torch"}[keras.backend.backend()]
"""The backend that reads what this one writes. The suite runs on all three, so each reads once."""
FULL_SIZE = ("vit_s16", "r26_vit_s32")
LOGITS = DATA / "full_size_logits.npz"
"""The logits of the full-size models on JAX."""

LOAD = """
import sys
import numpy as np
import keras
from keras_vit import VisionTransformer
folder = sys.argv[1]
models = {
    "keras": keras.saving.load_model(f"{folder}/model.keras"),
    "preset": VisionTransformer.from_preset(f"{folder}/preset"),
    "npz": VisionTransformer.from_preset(f"{folder}/model.npz", position_grid=(2, 3)),
}
images = np.load(f"{folder}/images.npy")
found = {kind: model.predict(images, verbose=0) for kind, model in models.items()}
np.savez(f"{folder}/{keras.backend.backend()}.npz", **found)
"""


def test_files_saved_on_one_backend_load_on_the_next(tmp_path):
    """.keras file, preset and official npz give the same logits there."""
    model, images = random_tiny(image_size=(16, 24)), normal(3, 16, 24, 3)
    want = model.predict(images, verbose=0)
    np.save(tmp_path / "images.npy", images)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    checkpoints.save(model, tmp_path / "model.npz")
    process = python(LOAD, tmp_path, KERAS_BACKEND=NEXT)
    assert process.returncode == 0, process.stderr
    with np.load(tmp_path / f"{NEXT}.npz") as logits:
        for kind in ("keras", "preset", "npz"):
            assert_close(logits[kind], want)


def full_size_logits(name: str) -> np.ndarray:
    """Returns the logits of a full-size model whose weights are seeded by their paths."""
    images = np.random.default_rng(0).uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    with blank_weights():  # all are given values below
        model = variant(name)()
    for path, variable in weights_by_path(model).items():
        rng = np.random.default_rng(zlib.crc32(path.encode()))
        values = rng.standard_normal(variable.shape, dtype="float32")
        if path.endswith("kernel"):
            variable.assign(values / np.sqrt(np.prod(variable.shape[:-1]), dtype="float32"))
        else:
            variable.assign(0.1 * values + path.endswith("gamma"))
    return model.predict(images, verbose=0)


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_models_agree_across_backends(name):
    """A ViT and a hybrid at 224 pixels: within 1e-4 of max |logit|."""
    with np.load(LOGITS) as file:
        want = file[name]
    assert np.abs(want).max() > 0.1
    assert relative_error(full_size_logits(name), want) <= 1e-4


if __name__ == "__main__":
    np.savez(LOGITS, **{name: full_size_logits(name) for name in FULL_SIZE})
