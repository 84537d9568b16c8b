"""Damaged and hostile files are refused in one sentence, quickly and with little memory."""

import io
import os
import struct
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from tests.digits import encoded

pytestmark = pytest.mark.without_backend

PREPARE = Preprocessor(16)


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(width: int, height: int) -> bytes:
    """A small PNG file whose header states so many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" * 999)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def scan(low, high, dtype="uint16"):
    """256 levels between two values."""
    return np.linspace(low, high, 256).reshape(16, 16).astype(dtype)


def photo(format_="png") -> bytes:
    """An encoded image of 20 x 30 pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype="uint8")
    return encoded(noise, format_)


def refusal(path, prepare=PREPARE) -> str:
    """The reason why an image is left out of a batch; the good image beside it is kept."""
    reasons = []
    pair = [path, np.zeros((4, 4, 3), "uint8")]
    batches = list(prepare.batches(pair, 2, lambda _, reason: reasons.append(reason)))
    assert len(batches[0][0]) == 1
    assert isinstance(reasons[0], ConfigError)
    return str(reasons[0])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working folder, with places that are no images and with images that are refused."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.png")
    Path("folder.jpg").mkdir()
    Path("loop.png").symlink_to("loop.png")
    Path("bomb.png").write_bytes(bomb(50_000, 50_000))
    Path("x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    Image.fromarray(np.zeros((8, 8), "int32")).save("depth.tif")
    Image.new("L", (1, 60_000)).save("scan.png")


class Endless:
    """A file object without end."""

    name = "endless.png"

    def read(self, count):
        return bytes(count)


PAGE = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n\0"
REFUSED = [
    # A pipe is not opened: without a writer, opening it would wait for ever.
    ("pipe.png", "pipe.png: not a readable image (expected a plain file)."),
    ("/dev/zero", "expected a plain file"),
    ("folder.jpg", "folder.jpg: a folder, expected an image file."),
    ("absent.png", "absent.png: no such file."),
    ("loop.png", "loop.png: not a readable image"),
    ("two\nlines.png", "two\\nlines.png: no such file."),
    ("x" * 5000, "not a readable image"),
    ("a\0b", "not a readable image"),
    ("x.heic", "pillow-heif"),
    ("depth.tif", "depth.tif: an image of mode I has no range"),
    # Also at sizes for which Pillow only warns, and below its limit of an area.
    ("bomb.png", "limit"),
    (bomb(13_000, 13_000), "limit"),
    *((bomb(*s), "at most 65,535 on each side") for s in ((80_000_000, 1), (1, 80_000_000))),
    (bomb(65_536, 2), "at most 65,535 on each side"),
    (io.StringIO("x"), "open it with mode 'rb'"),
    (Endless(), "endless.png: more than 268435456 bytes"),
    (PAGE, "not a readable image"),
    (scan(800, 1310), "(0, 4095)"),
]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("given", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_image_is_refused_in_one_sentence(given, words, place, monkeypatch):
    """The other images of its batch are kept. Pillow would pass PostScript to Ghostscript."""
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("it was run"))
    assert words in refusal(given)


def test_a_refusal_after_decoding_names_the_file(place):
    said = refusal("scan.png", Preprocessor(32, protocol="timm"))
    assert said.startswith("scan.png: The image is too long")


@pytest.mark.parametrize("form", ["tensor", "float"])
def test_a_long_and_thin_image_takes_little_memory(form):
    """Only its middle is computed."""
    protocol = {"name": "transformers", "crop_mode": "center", "resize": form}
    prepare, image = Preprocessor(224, protocol=protocol), Image.new("RGB", (1300, 1))
    tracemalloc.start()
    try:
        prepare(image)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("error::PIL.Image.DecompressionBombWarning")
def test_a_bomb_is_refused_if_the_program_turns_warnings_into_errors():
    """Pillow then raises its warning about decompression bombs."""
    assert "could be decompression bomb" in refusal(bomb(13_000, 13_000))


def test_the_limit_of_pixels_is_an_argument_or_an_environment_variable(monkeypatch):
    """The argument takes precedence."""
    assert "20x30 pixels, expected at most 599 in all" in refusal(
        photo(), Preprocessor(16, max_pixels=599)
    )
    assert PREPARE(photo()).shape == (1, 16, 16, 3)
    monkeypatch.setenv("KERAS_VIT_MAX_PIXELS", "599")
    assert "KERAS_VIT_MAX_PIXELS" in refusal(photo())
    assert Preprocessor(16, max_pixels=600)(photo()).shape == (1, 16, 16, 3)
    monkeypatch.setenv("KERAS_VIT_MAX_PIXELS", "many")
    assert "KERAS_VIT_MAX_PIXELS='many': expected a positive integer" in refusal(photo())


@pytest.mark.parametrize("format_", ["png", "jpeg", "gif", "webp", "tiff", "bmp", "ppm", "avif"])
def test_every_cut_of_a_file_is_read_or_refused(format_):
    """Cut at 40 places; no exception of a decoder escapes."""
    whole = photo(format_)
    for end in np.linspace(0, len(whole) - 1, 40).astype(int):
        assert is_read_or_refused(whole[:end])
    assert PREPARE(whole).shape == (1, 16, 16, 3)


def is_read_or_refused(data: bytes) -> bool:
    """True if the bytes become pixels or a refusal; other exceptions are not caught."""
    try:
        return PREPARE([np.zeros((4, 4, 3), "uint8"), bytearray(data)]).shape == (2, 16, 16, 3)
    except ConfigError as error:
        return str(error).startswith("an encoded image")


@pytest.mark.parametrize("format_", ["png", "jpeg", "gif", "webp", "tiff", "bmp"])
def test_flipped_bytes_are_read_or_refused(format_):
    """Sixty files with three wrong bytes each."""
    whole, rng = photo(format_), np.random.default_rng(1)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(256)
        assert is_read_or_refused(damaged)


def test_lack_of_memory_is_refused_in_one_sentence(monkeypatch, tmp_path):
    """While decoding and while resizing; the file is named."""

    def fail(*_):
        raise MemoryError

    encoded = photo()
    with monkeypatch.context() as patch:
        patch.setattr("PIL.ImageFile.ImageFile.load", fail)
        assert refusal(encoded) == "an encoded image: not enough memory to decode it."
    with monkeypatch.context() as patch:
        patch.setattr(Preprocessor, "scale", fail)
        with pytest.raises(ConfigError, match="Not enough memory to prepare an image"):
            PREPARE(encoded)
    (tmp_path / "x.png").write_bytes(encoded)
    monkeypatch.setattr(Preprocessor, "resize", fail)
    reason = str(PREPARE.prepare(tmp_path / "x.png"))
    assert reason.startswith(f"{tmp_path / 'x.png'}: Not enough memory")


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


def test_colours_of_twelve_bits_in_a_file_of_sixteen_are_said(tmp_path):
    """Pillow keeps their high bytes, which are nearly black."""

    def png(colours):
        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in colours)
        head = struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0)
        parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
        return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

    colours = np.repeat(scan(0, 4095)[..., None], 3, -1)
    with pytest.warns(UserWarning, match=r"brightest colour of 16 bits .*pixel_range="):
        PREPARE(png(colours))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PREPARE(png(colours * 16))


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


WRONG = [
    ({"pixel_range": wrong}, "two numbers")
    for wrong in ((5, 5), (0, float("nan")), 4095, (1, 2, 3), "ab")
]


@pytest.mark.parametrize(
    ("option", "words"), [*WRONG, ({"max_pixels": 0}, "max_pixels=0, expected a positive number")]
)
def test_a_bad_option_is_refused(option, words):
    with pytest.raises(ConfigError, match=words):
        Preprocessor(16, **option)
