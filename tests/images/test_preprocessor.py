"""`Preprocessor`: modes of files, sizes, batches and presets."""

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from tests.images.pictures import PHOTO

pytestmark = pytest.mark.without_backend

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
GREY = PHOTO[..., 0]
RGB = Preprocessor((20, 30))


def test_images_are_converted_to_the_channels_and_bits_of_the_model(tmp_path):
    """16 bits keep the high byte, and a GIF gives its first frame."""
    one = Preprocessor((20, 30), channels=1)
    np.testing.assert_array_equal(
        one(Image.fromarray(PHOTO)), one(Image.fromarray(PHOTO).convert("L"))
    )
    rgba = np.concatenate([PHOTO, PHOTO[..., :1]], axis=-1)
    np.testing.assert_array_equal(RGB(rgba), RGB(PHOTO))
    deep = Image.fromarray(GREY.astype("uint16") * 256 + 255)
    deep.save(tmp_path / "deep.png")
    Image.fromarray(GREY).save(tmp_path / "x.gif", save_all=True, append_images=[deep] * 2)
    for grey in (GREY, Image.fromarray(GREY), tmp_path / "deep.png", tmp_path / "x.gif"):
        np.testing.assert_array_equal(RGB(grey), RGB(np.stack([GREY] * 3, -1)))


def test_an_image_with_an_exif_rotation_is_turned_upright(tmp_path):
    """The tag says that the camera was turned by a quarter; an image object is not changed."""
    picture = np.zeros((4, 8, 3), "uint8")
    picture[:, :4] = 255
    image = Image.fromarray(picture)
    exif = image.getexif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "turned.png", exif=exif)
    turned = Image.open(tmp_path / "turned.png")
    for given in (tmp_path / "turned.png", turned):
        upright = Preprocessor((8, 4))(given)[0]
        assert (upright[:4] == 1).all() and (upright[4:] == -1).all()
    assert turned.size == (8, 4)


def test_images_keep_their_size_without_a_size_and_may_be_squashed():
    assert Preprocessor(None)([PHOTO, PHOTO]).shape == (2, 20, 30, 3)
    line = np.zeros((1, 3000, 3), "uint8")
    assert Preprocessor(224, protocol="transformers")(line).shape == (1, 224, 224, 3)


def test_one_batch_is_prepared_ahead():
    """While the caller uses a batch, a thread reads the next batch and no further."""
    threads, next_is_read = [], threading.Event()

    def endless():
        for k in itertools.count():
            threads.append(threading.get_ident())
            if k == 3:
                next_is_read.set()
            yield PHOTO

    batches = Preprocessor(8).batches(endless(), batch_size=2)
    items, batch = next(batches)
    assert (len(items), batch.shape) == (2, (2, 8, 8, 3))
    assert next_is_read.wait(timeout=60)
    batches.close()
    assert len(threads) == 4 and threading.get_ident() not in threads


def test_from_preset_takes_size_channels_and_protocol_of_the_preset():
    """Another size may be given; folders of other libraries are read too; without a backend."""
    assert Preprocessor.from_preset("vit_digits") == Preprocessor((16, 16), 1, "paper")
    assert Preprocessor.from_preset("vit_digits", image_size=32).image_size == (32, 32)
    theirs = Preprocessor.from_preset(GOLDEN / "hf_classifier").protocol
    assert theirs == {"name": "transformers", "resize": "tensor"}
    with pytest.raises(ConfigError, match="does not state its image_size"):
        Preprocessor.from_preset(GOLDEN / "vit_gap.npz")
