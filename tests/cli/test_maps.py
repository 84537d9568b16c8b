"""`keras-vit predict --path`: the maps of models for segmentation and depth as files."""

import numpy as np
import pytest
from PIL import ExifTags, Image

from keras_vit import Preprocessor
from keras_vit.support.interpolation import resampling_matrix
from tests.helpers import assert_close, randomise, tiny

WITHOUT_CROP = {
    "timm": {"name": "timm", "crop_mode": "squash", "crop_pct": 1.0},
    "keras_hub": {"name": "keras_hub", "crop_to_aspect_ratio": False},
    "big_vision": "paper",
}
"""Protocols, and those with the same filter that show the whole image."""


@pytest.fixture
def photos(tmp_path):
    """The folders `a` and `b`, each with `1.jpg`, which lies on its side, 20 rows by 30 columns."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for k, name in enumerate("ab"):
        pixels = np.random.default_rng(k).integers(0, 256, (30, 20, 3), "uint8")
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / name / "1.jpg", exif=exif)
    return tmp_path / "photos"


def save(path, count, task, **fields):
    """A model with a random head for dense targets, which is saved as a preset."""
    model = tiny(num_classes=0, **fields).with_dense_head(count, task=task)
    randomise(model).save_to_preset(path / "preset")
    return model


def expect(model, image, protocol):
    """Outputs for a whole image at its size, by the matrices of a bilinear resize."""
    (values,) = model.predict(Preprocessor(16, protocol=protocol)(image), verbose=0)
    rows, columns = (resampling_matrix(16, side, "bilinear_half_pixel") for side in (20, 30))
    return np.einsum("hi,ij...,wj->hw...", rows, values, columns)


@pytest.mark.parametrize(("protocol", "count"), [*zip(WITHOUT_CROP, (3, 1000, 3), strict=True)])
def test_a_mask_covers_the_upright_photo(protocol, count, run, photos, tmp_path):
    """In the folder of its photo; colours are those of PASCAL VOC, many classes have 16 bits."""
    model = save(tmp_path, count, "segmentation", protocol=protocol)
    run("predict", photos, "--source", tmp_path / "preset", "--path", tmp_path / "maps")
    for name in "ab":
        mask = Image.open(tmp_path / "maps" / name / "1.png")
        scores = expect(model, photos / name / "1.jpg", WITHOUT_CROP[protocol])
        classes = np.asarray(mask, int)[..., None]
        assert_close(np.take_along_axis(scores, classes, -1)[..., 0], scores.max(-1), 1e-4)
        colours = [0, 0, 0, 128, 0, 0, 0, 128, 0]
        assert classes.max() > 255 if count > 256 else mask.getpalette()[:9] == colours


def test_a_depth_is_an_array_and_a_picture(run, photos, tmp_path):
    """The picture has the range of the image; other commands refuse such a model."""
    model, image, place = save(tmp_path, 1, "depth"), photos / "a/1.jpg", tmp_path / "x/a/1.png"
    command = (photos, "--source", tmp_path / "preset", "--path", tmp_path / "x")
    assert "probe needs one output per image" in run("probe", *command, status=2).err
    assert run("predict", *command).out.splitlines()[:2] == ["image\tpath", f"{image}\t{place}"]
    depths, grey = np.load(place.with_suffix(".npy")), np.asarray(Image.open(place))
    assert_close(depths, expect(model, image, "paper"), 1e-4)
    rises = (depths - depths.min()) / np.ptp(depths)
    np.testing.assert_allclose(grey, 255 * rises, rtol=0, atol=1.01)
