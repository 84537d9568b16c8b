"""Stored models of transformers that predict maps, on every backend."""

import numpy as np
import pytest

from keras_vit import VisionTransformer
from tests.golden import DATA, relative_error

FOLDERS = sorted(path for path in (DATA / "maps").iterdir() if path.is_dir())


@pytest.mark.every_backend
@pytest.mark.openvino
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_map_is_that_of_transformers_at_every_size(folder):
    """By a model of that size and of any size; `weights/test_data/maps.py` made the files."""
    with np.load(folder / "expected.npz") as file:
        stored = dict(file)
    open_model = VisionTransformer.from_preset(folder, image_size=(None, None))
    for name in [name for name in stored if name.startswith("images")]:
        images, want = stored[name], stored[name.replace("images", "map")]
        model = VisionTransformer.from_preset(folder, image_size=images.shape[1:3])
        for each in (model, open_model):
            assert relative_error(each.predict(images, verbose=0), want) <= 1e-5


def test_the_parts_of_a_head_are_kept_replaced_or_left_out():
    """Another number of classes makes a new last layer; without classes the encoder remains."""
    folder, read = DATA / "maps" / "dpt_segmentation_6", VisionTransformer.from_preset
    parts, other = (
        {weight.path: weight for weight in read(folder).weights},
        read(folder, num_classes=7),
    )
    for weight in other.weights:
        if not weight.path.startswith("head/output/"):
            assert np.all(np.array(weight) == np.array(parts[weight.path]))
    assert np.all(np.ptp(np.array(other.get_layer("head").parts["output"].kernel), axis=0) > 0)
    fields = {"load_weights": False, "dense": {"ignore_label": 0}}
    assert read(folder, **fields).config.dense.ignore_label == 0
    shapes = [read(folder, **f).output_shape for f in ({"num_classes": 0}, {"dense": None})]
    assert shapes == [(None, 24), (None, 5)]
