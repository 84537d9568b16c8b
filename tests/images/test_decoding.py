"""Damaged and hostile files are refused in one sentence, quickly and with little memory."""

import functools
import struct
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from tests.digits import encoded
from tests.images.pictures import PHOTO
from tests.runs import times

pytestmark = pytest.mark.without_backend

PREPARE = Preprocessor(16)


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, depth: int, rows: bytes) -> bytes:
    """A PNG file in colour, of rows that each begin with their filter."""
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bomb(width: int, height: int) -> bytes:
    """A small PNG file whose header states so many pixels."""
    return png(width, height, 8, bytes(999))


def scan(low, high, dtype="uint16"):
    """256 levels between two values."""
    return np.linspace(low, high, 256).reshape(16, 16).astype(dtype)


@functools.cache
def photo(format_="png") -> bytes:
    """An encoded image of 20 x 30 pixels."""
    return encoded(PHOTO, format_)


def refusal(data):
    """The reason why an image is refused."""
    with pytest.raises(ConfigError) as caught:
        PREPARE(data)
    return str(caught.value)


@pytest.mark.parametrize("sides", [(50_000, 50_000), (13_000, 13_000)])
@pytest.mark.parametrize("action", ["ignore", "error"])
def test_a_bomb_is_refused(sides, action):
    """Also at sizes for which Pillow only warns, whether a program makes an error of it or not."""
    with warnings.catch_warnings():
        warnings.simplefilter(action, Image.DecompressionBombWarning)
        assert "raise" in refusal(bomb(*sides))


@pytest.mark.parametrize("form", ["tensor", "float"])
def test_a_long_and_thin_image_takes_little_memory(form):
    """Only its middle is computed."""
    protocol = {"name": "transformers", "crop_mode": "center", "resize": form}
    prepare, image = Preprocessor(224, protocol=protocol), Image.new("RGB", (400, 1))
    tracemalloc.start()
    prepare(image)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**27


def test_the_limit_of_pixels_as_an_argument_takes_precedence(monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MAX_PIXELS", "599")
    assert "20x30 pixels, expected at most 599 in total" in refusal(photo())
    assert Preprocessor(16, max_pixels=600)(photo()).shape == (1, 16, 16, 3)


def is_read_or_refused(data: bytes) -> bool:
    """True if the bytes become pixels or a refusal; other exceptions are not caught."""
    try:
        return PREPARE([np.zeros((4, 4, 3), "uint8"), bytearray(data)]).shape == (2, 16, 16, 3)
    except ConfigError as error:
        return str(error).startswith("an encoded image")


CHANGES = st.tuples(st.floats(0, 0.999), st.integers(0, 255))
FORMATS = ["png", "jpeg", "gif", "webp", "tiff", "bmp", "ppm", "avif"]


@pytest.mark.parametrize("format_", FORMATS)
@given(end=st.floats(0, 1), wrong=st.lists(CHANGES, max_size=3))
@settings(max_examples=times(80, 1000), deadline=None)
def test_cut_and_damaged_files_are_read_or_refused(format_, end, wrong):
    """No exception of a decoder escapes."""
    damaged = bytearray(photo(format_))
    assert is_read_or_refused(bytes(damaged))
    for place, value in wrong:
        damaged[int(place * len(damaged))] = value
    assert is_read_or_refused(damaged[: int(end * len(damaged))])


def test_lack_of_memory_is_refused_in_one_sentence(monkeypatch, tmp_path):
    """While decoding and while resizing; the file is named."""

    def fail(*_):
        raise MemoryError

    (tmp_path / "x.png").write_bytes(photo())
    monkeypatch.setattr(Preprocessor, "resize", fail)
    reason = str(PREPARE.prepare(tmp_path / "x.png"))
    assert reason.startswith(f"{tmp_path / 'x.png'}: Not enough memory")
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
    assert refusal(photo()) == "an encoded image: not enough memory to decode it."


def test_formats_without_a_signature_are_recognised_by_their_suffix(tmp_path):
    """TGA has no signature."""
    Image.new("RGB", (30, 20), (255, 0, 0)).save(tmp_path / "x.tga")
    assert (PREPARE(tmp_path / "x.tga")[0, :, :, 0] == 1).all()
    assert "not a readable image" in refusal((tmp_path / "x.tga").read_bytes())


def test_twelve_bits_in_a_file_of_sixteen_keep_their_levels(tmp_path):
    """With `pixel_range`; without it a warning says how many are left. An array is read alike."""
    Image.fromarray(scan(800, 1310)).save(tmp_path / "scan.png")
    with pytest.warns(UserWarning, match=r"scan.png: 256 levels of 16 bits become 3 of 8.*4095"):
        dark = Preprocessor(16, 1)(tmp_path / "scan.png")
    assert len(np.unique(dark)) == 3
    prepare = Preprocessor(16, 1, pixel_range=(800, 1310))
    bright = prepare(tmp_path / "scan.png")
    assert (bright.min(), bright.max(), len(np.unique(bright))) == (-1, 1, 256)
    np.testing.assert_array_equal(prepare(scan(800, 1310)), bright)
    assert (Preprocessor(16, 1, pixel_range=(900, 901))(scan(800, 1310)) ** 2 == 1).all()


@pytest.mark.filterwarnings("error")
def test_colours_of_twelve_bits_in_a_file_of_sixteen_are_said():
    """Pillow keeps their high bytes, which are nearly black."""
    dark, bright = (
        png(16, 16, 16, b"".join(b"\0" + np.repeat(row, 3).astype(">u2").tobytes() for row in rows))
        for rows in (scan(0, 4095), scan(0, 65535))
    )
    with pytest.warns(UserWarning, match=r"brightest colour of 16 bits .*pixel_range="):
        PREPARE(dark)
    PREPARE(bright)


@pytest.mark.filterwarnings("error")
def test_a_range_leaves_eight_bits_alone_and_reads_files_of_32_bits(tmp_path):
    eight = scan(0, 255, "uint8")
    prepare = Preprocessor(16, 1, pixel_range=(0, 2))
    np.testing.assert_array_equal(prepare(eight), Preprocessor(16, 1)(eight))
    Image.fromarray(scan(0, 2, "float32")).save(tmp_path / "x.tiff")
    assert len(np.unique(prepare(tmp_path / "x.tiff"))) == 256


def test_a_draft_reduces_large_jpeg_files_alone(tmp_path):
    """At least twice the model's pixels are left, also in a file that its tag turns."""
    rows, columns = np.mgrid[:400, :600] / 600
    waves = (127 + 120 * np.sin(9 * rows + 20 * columns**2)).astype("uint8")
    tag = Image.Exif()
    tag[0x0112] = 6
    for name, side in (("large.jpg", 600), ("small.jpg", 180), ("large.png", 600)):
        image = Image.fromarray(waves).resize((side, side * 2 // 3))
        image.save(tmp_path / name, exif=tag)
    whole, draft = Preprocessor(64), Preprocessor(64, draft=True)
    differences = {path.name: np.abs(draft(path) - whole(path)) for path in tmp_path.iterdir()}
    assert 0 < differences.pop("large.jpg").mean() < 0.01
    assert not any(difference.any() for difference in differences.values())
    assert draft.decode(tmp_path / "large.jpg").size == (400, 600)
    assert Preprocessor(None, draft=True)(tmp_path / "large.jpg").shape == (1, 600, 400, 3)
