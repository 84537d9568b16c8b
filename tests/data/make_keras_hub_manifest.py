"""Names and shapes of keras-hub's full-size ViT presets, written by keras-hub without weights.

    python tests/data/make_keras_hub_manifest.py     # keras-hub 0.32, Keras 3.15.1: 1 minute

Writes `manifests/keras_hub.json.gz`: for each preset that keras-hub names
(`ViTBackbone.presets`) the arrays of `model.weights.h5` and, under `task/`, those of
`task.weights.h5`. The published files themselves are not read. keras-hub's own
`save_weights` and `save_task_weights` write a model on torch's "meta" device, whose weights
have shapes and no values. This script replaces one method, which writes a value to the h5
file: it creates a dataset of the value's shape and never fills it. The size of each backbone
is checked against the number of parameters that keras-hub states for its preset.
"""

import gzip
import json
import os
import re
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import h5py
import keras
import keras_hub
from keras.src.saving.saving_lib import H5IOStore

MANIFEST = Path(__file__).parent / "manifests" / "keras_hub.json.gz"

SIZES = {  # num_layers, num_heads, hidden_dim, mlp_dim: Dosovitskiy et al. (2021), table 1
    "base": (12, 12, 768, 3072),
    "large": (24, 16, 1024, 4096),
    "huge": (32, 16, 1280, 5120),
}
VARIANTS = {"base": "vit_b", "large": "vit_l", "huge": "vit_h"}
NUM_CLASSES = {"imagenet": 1000, "imagenet21k": 0}  # described as "model", as "backbone"


def describe(preset: str, parameters: int) -> dict:
    """Builds a preset's model without weights; returns its variant, sizes and array shapes."""
    size, patch, side, data = re.fullmatch(r"vit_(\w+)_patch(\d+)_(\d+)_(\w+)", preset).groups()
    depth, heads, hidden, mlp = SIZES[size]
    with keras.device("meta"), tempfile.TemporaryDirectory() as folder:
        backbone = keras_hub.models.ViTBackbone(
            (int(side), int(side), 3), int(patch), depth, heads, hidden, mlp
        )
        if backbone.count_params() != parameters:
            raise SystemExit(f"{preset}: {backbone.count_params()} parameters, not {parameters}")
        backbone.save_weights(f"{folder}/model.weights.h5")
        shapes = _shapes(f"{folder}/model.weights.h5")
        if NUM_CLASSES[data]:
            task = keras_hub.models.ViTImageClassifier(backbone, NUM_CLASSES[data])
            task.optimizer = None  # the task makes an optimizer, whose counters would be saved
            task.save_task_weights(f"{folder}/task.weights.h5")
            shapes |= _shapes(f"{folder}/task.weights.h5", "task/")
    return {
        "variant": f"{VARIANTS[size]}{patch}",
        "image_size": int(side),
        "num_classes": NUM_CLASSES[data],
        "parameters": parameters,
        "shapes": shapes,
    }


def _shapes(path: str, prefix: str = "") -> dict[str, list[int]]:
    found = {}

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[prefix + name] = list(item.shape)

    with h5py.File(path) as file:
        file.visititems(add)
    return found


def _announce(store: H5IOStore, key: str, value: keras.Variable) -> None:
    """Creates a dataset of the value's shape, which takes no room in HDF5 until it is filled."""
    if not store._h5_entry_initialized:
        store._create_h5_group(store._h5_entry_path)
    store._h5_entry_group.create_dataset(key, value.shape, "float32")


def main() -> None:
    H5IOStore.__setitem__ = _announce
    presets = {
        name: describe(name, preset["metadata"]["params"])
        for name, preset in keras_hub.models.ViTBackbone.presets.items()
    }
    MANIFEST.parent.mkdir(exist_ok=True)
    text = json.dumps({"keras_hub": keras_hub.__version__, "presets": presets})
    MANIFEST.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{MANIFEST}: {len(presets)} presets, {MANIFEST.stat().st_size} bytes")


if __name__ == "__main__":
    main()
