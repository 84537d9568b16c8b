"""`Preprocessor` turns images of every kind into float32 batches."""

import io
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from tests.golden import FOLDER
from tests.support.test_import import modules_after

RECIPES = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "preprocessing.md").read_text(),
    re.DOTALL,
)


@pytest.fixture
def photo():
    """A coloured picture of 20 x 30 pixels."""
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype="uint8")


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_the_method_pixels_undoes_the_scaling(photo, data_format):
    """For a protocol with a mean and std per channel, and for both data formats."""
    of_imagenet = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    protocol = {"name": "transformers", **of_imagenet}
    preprocess = Preprocessor((20, 30), protocol=protocol, data_format=data_format)
    pictures = preprocess.pixels(preprocess([photo, photo]))
    assert (pictures.shape, pictures.dtype) == ((2, 20, 30, 3), np.float32)
    np.testing.assert_allclose(pictures[1], photo / 255, atol=1e-6)


def test_images_are_converted_to_the_channels_of_the_model(photo):
    """Grey is repeated, transparency is dropped, and PIL images in colour become grey."""
    grey = photo[..., 0]
    rgb = Preprocessor((20, 30))
    np.testing.assert_array_equal(rgb(grey), rgb(np.stack([grey] * 3, -1)))
    np.testing.assert_array_equal(rgb(Image.fromarray(grey)), rgb(grey))
    rgba = np.concatenate([photo, photo[..., :1]], axis=-1)
    np.testing.assert_array_equal(rgb(rgba), rgb(photo))
    one = Preprocessor((20, 30), channels=1)
    assert one(Image.fromarray(photo)).shape == (1, 20, 30, 1)
    assert one(np.stack([grey, grey])).shape == (2, 20, 30, 1)


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
        assert (upright[:4] == 1).all()
        assert (upright[4:] == -1).all()
    assert turned.size == (8, 4)


def test_without_an_image_size_images_keep_their_size(photo):
    """Images of different sizes are refused."""
    assert Preprocessor(None)([photo, photo]).shape == (2, 20, 30, 3)
    with pytest.raises(ConfigError, match="different sizes make no batch"):
        Preprocessor(None)([photo, photo[:10]])


def test_files_of_every_pixel_mode_are_read(photo, tmp_path):
    """16 bits keep the high byte, palettes and CMYK become RGB, a GIF gives its first frame."""
    grey = photo[..., 0]
    rgb = Preprocessor((20, 30))
    deep = Image.fromarray(grey.astype("uint16") * 256 + 255)
    deep.save(tmp_path / "deep.png")
    np.testing.assert_array_equal(rgb(tmp_path / "deep.png"), rgb(grey))
    Image.fromarray(grey).save(tmp_path / "x.gif", save_all=True, append_images=[deep] * 2)
    np.testing.assert_array_equal(rgb(tmp_path / "x.gif"), rgb(grey))
    flat = Image.new("RGB", (30, 20), (255, 0, 0))
    for mode in ("P", "CMYK", "LA", "RGBA"):
        expected = rgb(flat.convert("L")) if mode == "LA" else rgb(flat)
        np.testing.assert_array_equal(rgb(flat.convert(mode)), expected)
    with pytest.raises(ConfigError, match="mode F has no range"):
        rgb(Image.fromarray(grey.astype("float32")))


@pytest.mark.parametrize("protocol", ["paper", "big_vision", "timm", "transformers", "keras_hub"])
def test_a_list_gives_the_batch_of_its_images_one_by_one(protocol, photo):
    """In order, and for a generator too, although images are prepared in parallel."""
    preprocess = Preprocessor((12, 16), protocol=protocol)
    images = [np.roll(photo, k, axis=0)[: 20 - k] for k in range(5)]
    expected = np.concatenate([preprocess(image) for image in images])
    np.testing.assert_array_equal(preprocess(images), expected)
    np.testing.assert_array_equal(preprocess(image for image in images), expected)


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
@pytest.mark.parametrize("protocol", ["big_vision", "timm", "transformers", "keras_hub"])
def test_each_channel_is_prepared_like_a_grey_image(protocol, channels, photo):
    """For one, two, four and seven channels."""
    image = np.stack([np.roll(photo[..., 0], k) for k in range(channels)], axis=-1)
    preprocess = Preprocessor((12, 16), channels, protocol=protocol)
    alone = Preprocessor((12, 16), 1, protocol=protocol)
    for k in range(channels):
        expected = alone(image[..., k : k + 1])[..., 0]
        np.testing.assert_array_equal(preprocess(image[None])[..., k], expected)


@pytest.mark.parametrize("protocol", ["big_vision", "timm"])
def test_an_image_one_pixel_high_is_refused_before_a_central_crop(protocol):
    """Enlarging its smaller side would take too much memory; a protocol that squashes takes it."""
    line = np.zeros((1, 3000, 3), "uint8")
    with pytest.raises(ConfigError, match="before its central crop"):
        Preprocessor(224, protocol=protocol)(line)
    assert Preprocessor(224, protocol="transformers")(line).shape == (1, 224, 224, 3)


def test_one_batch_is_prepared_ahead(photo):
    """While the caller uses a batch, a thread reads the next batch and no further."""
    read: list[int] = []
    threads = set()
    next_is_read = threading.Event()

    def endless():
        for k in range(10**9):
            read.append(k)
            threads.add(threading.get_ident())
            if k == 3:
                next_is_read.set()
            yield photo

    batches = Preprocessor(8).batches(endless(), batch_size=2)
    items, batch = next(batches)
    assert (len(items), batch.shape) == (2, (2, 8, 8, 3))
    assert next_is_read.wait(timeout=60)
    batches.close()
    assert len(read) == 4
    assert threading.get_ident() not in threads


def test_batches_leave_out_unreadable_images(photo, tmp_path):
    """The caller's function gets image and reason; without a function the error is raised."""
    (tmp_path / "x.png").write_bytes(b"no image")
    images = [photo, tmp_path / "x.png", photo, tmp_path / "x.png", tmp_path / "x.png"]
    reasons: list[tuple] = []
    preprocess = Preprocessor(8)
    batches = list(preprocess.batches(images, 2, lambda *reason: reasons.append(reason)))
    assert [len(batch) for _, batch in batches] == [1, 1]
    assert [path.name for path, _ in reasons] == ["x.png"] * 3
    assert "not a readable image" in str(reasons[0][1])
    with pytest.raises(ConfigError, match="not a readable image"):
        list(preprocess.batches(images, 2))
    with pytest.raises(ConfigError, match="batch_size must be a positive int, found 0"):
        list(preprocess.batches(images, 0))


def test_from_preset_takes_size_channels_and_protocol_of_the_preset():
    """Another size may be given; folders of other libraries are read too."""
    digits = Preprocessor.from_preset("vit_digits")
    assert digits == Preprocessor((16, 16), 1, "paper")
    assert Preprocessor.from_preset("vit_digits", image_size=32).image_size == (32, 32)
    theirs = Preprocessor.from_preset(FOLDER / "hf_classifier").protocol
    assert theirs == {"name": "transformers", "resize": "tensor"}
    with pytest.raises(ConfigError, match="does not state its image_size"):
        Preprocessor.from_preset(FOLDER / "vit_gap.npz")
    for size in (0, np.array([32, 32])):
        with pytest.raises(ConfigError, match="image_size must be a positive int or a pair"):
            Preprocessor.from_preset("vit_digits", image_size=size)


def test_from_preset_imports_no_backend():
    """Keras is not imported either."""
    loaded = modules_after("import keras_vit; keras_vit.Preprocessor.from_preset('vit_digits')")
    assert not loaded & {"keras", "jax", "torch", "tensorflow"}


@pytest.mark.parametrize(
    "recipe", RECIPES, ids=["preset", "channels", "rescale", "tf.data", "DataLoader"]
)
def test_recipes_of_the_docs_run(recipe, photo, tmp_path, monkeypatch):
    """Each recipe gives a batch of two images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for path in ("photo.jpg", "photos/0.jpg", "photos/1.jpg"):
        Image.fromarray(photo).save(path)
    names: dict = {}
    exec(recipe, names)
    shape = tuple(names["shape"]) if "shape" in names else names["batch"].shape
    assert shape in ((2, 224, 224, 3), (2, 3, 224, 224), (2, 16, 16, 1), (2, 16, 16, 5), (2, 10))


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
@pytest.mark.parametrize("own", [0, 19])
def test_threads_that_decode_have_a_lower_priority_than_their_caller(photo, own):
    """And never a higher one, where the caller has the lowest; the caller keeps its own."""
    found, encoded = [], io.BytesIO()
    Image.fromarray(photo).save(encoded, "png")

    class Recorded(io.BytesIO):
        def read(self, *arguments):
            found.append(os.getpriority(os.PRIO_PROCESS, 0))
            return super().read(*arguments)

    def prepare():
        first = os.nice(own)
        Preprocessor((20, 30))([Recorded(encoded.getvalue()) for _ in range(4)])
        found.append((first, os.getpriority(os.PRIO_PROCESS, 0)))

    thread = threading.Thread(target=prepare)
    thread.start()
    thread.join()
    first, last = found.pop()
    assert (first, {*found}) == (last, {min(first + 10, 19)})
