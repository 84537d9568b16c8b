"""The kinds, axes and values of input images, by the rows of docs/preprocessing.md."""

import contextlib
import io
import os
import pathlib
import re
import zipfile

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from tests.digits import encoded

PHOTO = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype="uint8")
PREPARE = Preprocessor((20, 30))
WANT = (PHOTO.astype("float32") - 127.5) / 127.5
PNG = encoded(PHOTO)


def tensor(pixels, dtype="float32"):
    """A tensor of the backend."""
    return keras.ops.convert_to_tensor(np.asarray(pixels).astype(dtype))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, which is also the working directory, with one photograph."""
    (tmp_path / "photo.png").write_bytes(PNG)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def zipped(data: bytes):
    """A file object of a file in a zip archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("photo.png", data)
    return zipfile.ZipFile(archive).open("photo.png")


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
    "a `str` or `os.PathLike`": (
        lambda: "photo.png",
        lambda: "~/photo.png",
        lambda: pathlib.Path("photo.png"),
        lambda: pathlib.Path("~/photo.png"),
    ),
    "`bytes` that are a line of printable text": (lambda: b"photo.png",),
    "other `bytes`, `bytearray`, `memoryview`": (
        lambda: PNG,
        lambda: bytearray(PNG),
        lambda: memoryview(PNG),
    ),
    "a binary file object": (
        lambda: io.BytesIO(PNG),
        lambda: at_its_end(PNG),
        lambda: zipped(PNG),
        lambda: Stream(PNG),
    ),
    "a `PIL.Image.Image`": (lambda: Image.fromarray(PHOTO), lambda: Image.open("photo.png")),
    "an array of strings or objects": (
        lambda: np.array(["photo.png"]),
        lambda: np.array([b"photo.png"]),
        lambda: np.array([Image.fromarray(PHOTO), None], object)[:1],
    ),
    "an array or a tensor of any backend and device": (
        lambda: PHOTO,
        lambda: tensor(PHOTO, "uint8"),
        lambda: tensor(PHOTO / 255),
        lambda: tensor(PHOTO, "bfloat16"),
        lambda: keras.Variable(PHOTO.astype("float32")),
    ),
    "a list, generator, `tf.data.Dataset` or other iterable": (
        lambda: [PHOTO],
        lambda: (image for image in ["photo.png"]),
        lambda: ([[PHOTO]],),
    ),
}

REFUSED = {
    "a `str` that is a URL": (
        ("https://a.b/c.png", r"keras.utils.get_file\(origin='https://a.b/c.png'\)"),
        ("data:image/png;base64," + "A" * 999, r"A{50}\.\.\.: URLs.*base64.b64decode"),
        ("s3://bucket/c.png", "fsspec"),
    ),
    "a `dict`": (({"image": PHOTO, "label": 1}, "A dict with 'image', 'label': give the value"),),
    "`None`, a number, anything else": (
        (None, "found None"),
        (3.5, "found a float"),
        (object(), "found a object"),
        ([[0.0, 1.0]], "found a float"),
        (np.array(None), "found None"),
    ),
}


@pytest.mark.parametrize(
    "given", [case for cases in ACCEPTED.values() for case in cases], ids=lambda _: "row"
)
def test_every_kind_gives_the_same_picture(given, home):
    """Exactly, or within the eight bits that bfloat16 keeps of a pixel."""
    given = given()
    coarse = "bfloat16" in str(getattr(given, "dtype", ""))
    np.testing.assert_allclose(PREPARE(given)[0], WANT, atol=1 / 127.5 if coarse else 0)


@pytest.mark.parametrize(("given", "message"), [case for row in REFUSED.values() for case in row])
def test_other_kinds_are_refused_in_one_sentence(given, message):
    """Alone they are refused; in a list they are left out and the other images are prepared."""
    with pytest.raises(ConfigError, match=message):
        PREPARE(given)
    refused = []
    batches = list(PREPARE.batches([PHOTO, given], 4, lambda item, why: refused.append(str(why))))
    assert len(batches[0][0]) == 1
    assert re.search(message, refused[0])


def test_torch_tensors_with_gradients_or_on_a_gpu_are_read():
    """A tensor without values, on the device "meta", is refused."""
    import torch

    class Elsewhere(torch.Tensor):
        """A tensor that NumPy can read only after `.cpu()`, like a tensor on a GPU."""

        def __array__(self, dtype=None, copy=None):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def detach(self):
            return super().detach().as_subclass(Elsewhere)

        def cpu(self, *_, **__):
            return self.as_subclass(torch.Tensor)

    learning = torch.tensor(PHOTO / 255, requires_grad=True)
    far = torch.from_numpy(PHOTO).as_subclass(Elsewhere)
    for given in (learning, far, learning.half().moveaxis(-1, 0), learning.double()):
        np.testing.assert_array_equal(PREPARE(given)[0], WANT)
    with pytest.raises(ConfigError, match="gives NumPy no values"):
        PREPARE(torch.empty(20, 30, 3, device="meta"))


@pytest.mark.on_backend("tensorflow")
def test_tensorflow_data_sets_of_images_and_names_are_read(home):
    """Batched or not; a symbolic tensor is refused with the fix."""
    import tensorflow as tf

    for data in (
        tf.data.Dataset.from_tensor_slices(PHOTO[None]),
        tf.data.Dataset.from_tensor_slices(PHOTO[None]).batch(1),
        tf.data.Dataset.list_files(str(home / "*.png")),
        tf.constant(["photo.png"]),
    ):
        np.testing.assert_array_equal(PREPARE(data)[0], WANT)
    with pytest.raises(Exception, match="ConfigError.*tf.numpy_function"):  # a StagingError
        tf.data.Dataset.from_tensors(PHOTO).map(PREPARE)


def test_one_object_given_twice_is_read_once():
    """Two threads that read one file object would each get a part of the data."""
    file, picture = io.BytesIO(PNG), Image.open(io.BytesIO(PNG))
    batch = PREPARE([file, picture] * 8)
    assert (batch == WANT).all()


GREY = PHOTO[..., 0]
SHAPES = {
    "(height, width)": [(3, GREY, 1)],
    "(height, width, channels)": [
        (3, PHOTO, 1),
        (3, PHOTO[:1], 1),
        (3, PHOTO[:4], 1),
        (3, PHOTO[..., :1], 1),
        (1, GREY[..., None], 1),
        (4, PHOTO[..., [0, 1, 2, 0]], 1),
        (4, GREY[..., None], 1),
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


@pytest.mark.parametrize("layout", SHAPES)
def test_every_accepted_layout_gives_upright_images(layout):
    """With the stated number of images, and the first channel first."""
    for channels, given, count in SHAPES[layout]:
        batch = Preprocessor(None, channels)(given)
        rows = {1: 1, 4: 4}.get(given.shape[0], 20) if layout == "(height, width, channels)" else 20
        assert batch.shape == (count, rows, 30, channels)
        np.testing.assert_array_equal(batch[..., 0], np.stack([WANT[:rows, :, 0]] * count))


@pytest.mark.parametrize(
    ("channels", "shape", "message"),
    [
        (3, (3, 9, 3), "both its first and its last axis"),
        (3, (2, 3, 9, 3), "both its second and its last axis"),
        (3, (1, 9, 4), "both its first and its last axis"),
        (3, (9, 9, 9), r"grey images need an axis for their channel: images\[..., None"),
        (3, (9, 9, 2), "takes 3 channels, found 2"),
        (1, (9, 9, 3), "takes 1 channels, found 3"),
        (3, (9,), r"found \(9,\)"),
        (3, (2, 2, 9, 9, 3), r"found \(2, 2, 9, 9, 3\)"),
    ],
)
def test_ambiguous_and_unknown_layouts_are_refused(channels, shape, message):
    """The message names the shape and, where there is one, the fix."""
    with pytest.raises(ConfigError, match=message):
        Preprocessor(9, channels)(np.zeros(shape, "uint8"))


BINARY = (PHOTO > 127).astype("float32")
VALUES = {
    "integers": [(PHOTO, WANT, None), (PHOTO.astype("int64"), WANT, None)],
    "floats, the largest above 1": [
        (PHOTO.astype("float32"), WANT, None),
        (PHOTO * 0.999, WANT * 0.999 - 0.001, None),
    ],
    "floats, the largest at most 1": [
        (PHOTO / 255, WANT, None),
        ((PHOTO / 255).astype("float16"), WANT, None),
        (PHOTO / 256, (WANT + 1) * 255 / 256 - 1, None),
        (np.zeros((20, 30, 3)), np.full_like(WANT, -1), None),
    ],
    "floats that all are 0 or 1": [(BINARY, 2 * BINARY - 1, "all 0 or 1 are taken for black and")],
    "any of [0, 255], but none above 3": [
        (PHOTO // 128, PHOTO // 128 / 127.5 - 1, "almost black, at most 1:"),
        (PHOTO / 255 * 1.5, PHOTO / 255 * 1.5 / 127.5 - 1, "almost black, at most 1.5"),
    ],
}


@pytest.mark.parametrize("row", VALUES)
def test_every_accepted_range_is_scaled(row):
    """[0, 1] and [0, 255] are distinguished, with a warning where values fit both."""
    for given, target, warning in VALUES[row]:
        expected = pytest.warns(UserWarning, match=warning) if warning else contextlib.nullcontext()
        with expected:
            result = PREPARE(given)[0]
        np.testing.assert_allclose(result, target, atol=2e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (WANT, r"\[-1, 1\].*prepared already.*model.predict"),
        (PHOTO.astype("uint16") * 257, r"found \[0, 65535\].*pixel_range="),
        (PHOTO + 1.5, r"found \[1.5, 25\d.5\]"),
        (WANT * np.nan, "must be finite numbers"),
        (PHOTO > 9, "found bool. Multiply a mask by 255"),
        (PHOTO.astype("complex64"), "found complex64"),
        (keras.Input((20, 30, 3)), "A KerasTensor gives NumPy no values"),
        ((PHOTO[None], np.array([3])), "Labels are no images"),
    ],
)
def test_values_outside_the_ranges_are_refused(given, message):
    """The message names the range found and its likely cause."""
    with pytest.raises(ConfigError, match=message):
        PREPARE(given)


def test_all_images_of_a_batch_have_one_range():
    """A dark image beside a bright image is not scaled as [0, 1]."""
    batch = np.stack([PHOTO / 255.0, PHOTO * 1.0])
    result = PREPARE(batch)
    np.testing.assert_allclose(result[0], PHOTO / 255 / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(result[1], WANT)


@pytest.mark.parametrize("nothing", [[], (), np.zeros((0, 4, 4, 3), "uint8"), "", os.devnull])
def test_empty_inputs_are_refused(nothing):
    """An empty list, batch or name, and an empty device."""
    with pytest.raises(ConfigError, match="No image was|empty file name|expected a plain file"):
        PREPARE(nothing)
