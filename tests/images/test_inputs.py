"""The kinds, axes and values of input images, by the rows of docs/preprocessing.md."""

import contextlib
import io
import pathlib

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from tests.digits import encoded
from tests.images.pictures import PHOTO, SCALED

pytestmark = pytest.mark.without_backend

PREPARE = Preprocessor((20, 30))
PNG = encoded(PHOTO)


def at_its_end(data: bytes):
    """A file object whose position is at its end."""
    file = io.BytesIO(data)
    file.read()
    return file


class Stream:
    """A file object without `seek`, such as that of a socket."""

    def __init__(self, data):
        self.read = io.BytesIO(data).read


ACCEPTED = {
    "a name": lambda: "photo.png",
    "a name in the home folder": lambda: "~/photo.png",
    "a path": lambda: pathlib.Path("photo.png"),
    "a name in bytes": lambda: b"photo.png",
    "bytes": lambda: PNG,
    "a memoryview": lambda: memoryview(PNG),
    "a file object": lambda: io.BytesIO(PNG),
    "a file object at its end": lambda: at_its_end(PNG),
    "a stream": lambda: Stream(PNG),
    "a Pillow image": lambda: Image.fromarray(PHOTO),
    "a Pillow image that is not loaded": lambda: Image.open("photo.png"),
    "an array of names": lambda: np.array(["photo.png"]),
    "an array of objects": lambda: np.array([Image.fromarray(PHOTO), None], object)[:1],
    "a generator": lambda: (image for image in ["photo.png"]),
    "nested lists": lambda: ([[PHOTO]],),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_every_kind_gives_the_same_picture(kind, home):
    np.testing.assert_array_equal(PREPARE(ACCEPTED[kind]())[0], SCALED)


def test_one_object_given_twice_is_read_once():
    """Two threads that read one file object would each get a part of the data."""
    file, picture = io.BytesIO(PNG), Image.open(io.BytesIO(PNG))
    assert (PREPARE([file, picture] * 8) == SCALED).all()


GREY = PHOTO[..., 0]
LAYOUTS = {
    "(height, width)": [(3, GREY, 1)],
    "(height, width, channels)": [
        (3, PHOTO, 1),
        (3, PHOTO[:4], 1),
        (4, PHOTO[..., [0, 1, 2, 0]], 1),
        (7, PHOTO[..., [0, 1, 2, 0, 1, 2, 0]], 1),
    ],
    "(channels, height, width)": [(3, PHOTO.transpose(2, 0, 1), 1), (1, GREY[None], 1)],
    "(images, height, width)": [(1, np.stack([GREY] * 3), 3), (1, np.stack([GREY] * 5), 5)],
    "(images, height, width, channels)": [
        (3, np.stack([PHOTO] * 3), 3),
        (1, GREY[None, ..., None], 1),
    ],
    "(images, channels, height, width)": [
        (3, np.stack([PHOTO.transpose(2, 0, 1)] * 3), 3),
        (1, np.stack([GREY[None]] * 2), 2),
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_accepted_layout_gives_upright_images(layout):
    """With the stated number of images, and the first channel first."""
    for channels, given, count in LAYOUTS[layout]:
        batch = Preprocessor(None, channels)(given)
        rows = 4 if len(given) == 4 else 20
        assert batch.shape == (count, rows, 30, channels)
        np.testing.assert_array_equal(batch[..., 0], np.stack([SCALED[:rows, :, 0]] * count))


BINARY = (PHOTO > 127).astype("float32")
VALUES = {
    "integers": (PHOTO.astype("int64"), SCALED, None),
    "floats above 1": (PHOTO * 0.999, SCALED * 0.999 - 0.001, None),
    "half floats up to 1": ((PHOTO / 255).astype("float16"), SCALED, None),
    "floats up to 1 that are no pixels": (PHOTO / 256, (SCALED + 1) * 255 / 256 - 1, None),
    "zeros": (np.zeros((20, 30, 3)), np.full_like(SCALED, -1), None),
    "0 and 1": (BINARY, 2 * BINARY - 1, "all 0 or 1 are taken for black and"),
    "integers up to 3": (PHOTO // 128, PHOTO // 128 / 127.5 - 1, "at most 1, almost black"),
    "floats up to 3": (PHOTO / 170, PHOTO / 170 / 127.5 - 1, "at most 1.5, almost black"),
}


@pytest.mark.parametrize("row", VALUES)
def test_every_accepted_range_is_scaled(row):
    """[0, 1] and [0, 255] are distinguished, with a warning where values fit both."""
    given, target, warning = VALUES[row]
    with pytest.warns(UserWarning, match=warning) if warning else contextlib.nullcontext():
        result = PREPARE(given)[0]
    np.testing.assert_allclose(result, target, atol=2e-6)


def test_all_images_of_a_batch_have_one_range():
    """A dark image beside a bright image is not scaled as [0, 1]."""
    result = PREPARE(np.stack([PHOTO / 255.0, PHOTO * 1.0]))
    np.testing.assert_allclose(result[0], PHOTO / 255 / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(result[1], SCALED)
