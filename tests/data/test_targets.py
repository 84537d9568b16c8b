"""Masks and depth maps: files, and pixels that stay those of the image."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import Augmentation, from_arrays
from tests.data.conftest import World
from tests.data.runs import PLAIN, masked
from tests.data.test_order import assert_same_batches
from tests.runs import times


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A picture of large regions, red, green and blue, with the mask of their numbers.

    The picture is stored on its side, with the tag that turns it upright.
    """
    world, exif = World(tmp_path_factory.mktemp("scene")), Image.Exif()
    mask = np.full((48, 90), 2, "uint8")
    mask[:24], mask[24:, :30], exif[0x0112] = 0, 1, 6
    picture = Image.fromarray(np.rot90(255 * np.eye(3, dtype="uint8")[mask]))
    picture.save(world.photos / "a.png", exif=exif)
    Image.fromarray(mask).save(world.masks / "a.png")
    return world


SIDES = st.integers(12, 60)
CROPS = st.none() | st.floats(0.2, 1).map(lambda least: (least, 1.0))
PROTOCOLS = ["paper", "big_vision", "keras_hub", "timm", {"name": "timm", "crop_mode": "squash"}]


@given(
    prepares=st.builds(Preprocessor, st.tuples(SIDES, SIDES), protocol=st.sampled_from(PROTOCOLS)),
    augmentation=st.builds(Augmentation, crop=CROPS, flip=st.booleans()),
    seed=st.integers(0, 9),
)
@settings(max_examples=times(40, 400), deadline=None)
def test_the_mask_of_a_picture_is_that_of_the_augmented_one(scene, prepares, augmentation, seed):
    """Wherever the new picture has one pure colour, whose number the mask has."""
    options = {"augmentation": augmentation, "seed": seed, "shuffle": False, "batch_size": 1}
    pictures, masks = masked(scene, None, prepares, **options)[0]
    assert masks.shape == pictures.shape[:3] and masks.dtype == "int32"
    is_pure = pictures.max(-1) == 1
    assert is_pure.mean() > 0.3
    np.testing.assert_array_equal(masks[is_pure], pictures.argmax(-1)[is_pure])


RAMP = np.arange(256, dtype="uint8").reshape(16, 16) % 3
BLANK = np.where(RAMP == 1, 255, RAMP).astype("uint8")
DEPTHS = np.where(RAMP == 1, np.nan, RAMP * 7.5)
IN_COLOURS = Image.fromarray(RAMP)
IN_COLOURS.putpalette([9, 9, 9, 6, 6, 6, 3, 3, 3])
DEPTH = {"task": "depth", "class_names": None}
QUARTERS = {**DEPTH, "target_unit": 0.25}
FORMATS = {
    "grey": (Image.fromarray(BLANK), BLANK, {}),
    "a palette": (IN_COLOURS, RAMP, {}),
    "an array of classes": (RAMP.astype("int64"), RAMP, {}),
    "16 bits": (Image.fromarray(RAMP.astype("uint16") * 1500), RAMP * 375.0, QUARTERS),
    "an array of depths": (DEPTHS, DEPTHS, DEPTH),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_holds_classes_or_depths(world, name):
    """Ignored pixels stay 255, and depths may be NaN or 0."""
    content, expected, options = FORMATS[name]
    data = masked(world, content, **options)
    kind, count = ("float32", 1) if data.task == "depth" else ("int32", 4)
    np.testing.assert_array_equal(data[0][1][0], expected.astype(kind), strict=True)
    assert data.num_classes == count


def test_masks_get_the_order_of_other_names(world):
    """Ignored pixels stay ignored; classes that the data lack may come between."""
    data = masked(world, BLANK).with_class_names([*"dcxBA"])
    assert data.class_names == ("d", "c", "x", "B", "A")
    np.testing.assert_array_equal(data[0][1][0], np.where(BLANK == 255, 255, 4 - RAMP // 2 * 3))


READS = [
    {"shuffle": True, "seed": 3, "cache": False, "threads": 1},
    {"augmentation": "crop_flip", "steps_per_epoch": 3, "batch_size": 3},
    {"shard": (0, 2), "batch_size": 3},
]


@pytest.mark.parametrize("options", READS, ids=("shuffled", "augmented", "a shard"))
def test_masks_come_with_the_images_that_labels_come_with(world, options):
    """In every epoch, from a copy, from Grain and in both parts of a split."""
    data = masked(world, **options)
    labelled = from_arrays(list(data.paths), np.arange(4), PLAIN, class_names="abcd", **options)
    copied, by_grain = pickle.loads(pickle.dumps(data)), data.to_grain(2)
    for epoch in (1, 0):
        data.epoch = labelled.epoch = copied.epoch = epoch
        for i in range(len(labelled)):
            images, labels, *weights = labelled[i]
            masks = np.tile(labels[:, None, None], (1, 16, 16))
            for batch in (data[i], copied[i], by_grain[epoch * len(data) + i]):
                assert_same_batches(batch, [images, masks, *weights])
    for part in masked(world, shuffle=True).hold_out(0.5):
        names = [Path(path).relative_to(world.masks) for path in part.labels]
        assert [str(world.photos / name) for name in names] == [*part.paths]
