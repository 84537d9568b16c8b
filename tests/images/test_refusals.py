"""Inputs, files, protocols and options that are refused in one sentence."""

import functools
import io

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from keras_vit.images import class_names, list_images
from keras_vit.images.class_names import match_classes, shorten, top_labels
from keras_vit.images.decoding import TooManyPixelsError
from keras_vit.images.packing import pack
from tests.images.pictures import PHOTO, SCALED
from tests.images.test_decoding import bomb, scan

pytestmark = pytest.mark.without_backend

PREPARE = Preprocessor(16)
BOX = {"interpolation": "box", "resize": "tensor"}
NAMES, IDS = class_names.expand("imagenet1k"), [f"n{k:08d}" for k in range(1000)]
OTHERS = ["dgo", "crane", "dog", "dog, hound"]
SEVERAL = ["dog, hound", "crane, a", "crane, b", "ox"]


class Endless:
    """A file object without end."""

    name = "endless.png"

    def read(self, count):
        return bytes(count)


PAGE = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n\0"
ITEMS = {
    # A pipe is not opened: without a writer, opening it would wait for ever.
    "a pipe": ("pipe.png", "expected a regular file"),
    "an endless device": ("/dev/zero", "expected a regular file"),
    "a folder": ("folder.jpg", "folder.jpg: a folder"),
    "an absent file": ("absent.png", "absent.png: no such file"),
    "a link to itself": ("loop.png", "loop.png: not a readable image"),
    "a file of text": ("text.png", "text.png: not a readable image"),
    "HEIC without its reader": ("x.heic", "pillow-heif"),
    "32 bits without a range": ("depth.tif", "depth.tif: the range of an image of mode I"),
    "floats without a range": (Image.fromarray(SCALED[..., 0]), "mode F is unknown"),
    "80 million columns": (bomb(80_000_000, 1), "at most 65,535 on each side"),
    "a text file object": (io.StringIO("x"), "open it with mode 'rb'"),
    "an endless file": (Endless(), "endless.png: more than 268435456 bytes"),
    "PostScript": (PAGE, "not a readable image"),
    "an array of twelve bits": (scan(800, 1310), "(0, 4095)"),
    "a URL": ("https://a.b/c.png", "keras.utils.get_file(origin='https://a.b/c.png')"),
    "data in a URL": ("data:image/png;base64," + "A" * 999, "base64.b64decode"),
    "a bucket": ("s3://bucket/c.png", "fsspec"),
    "a dictionary": ({"image": PHOTO, "label": 1}, "'image', 'label'"),
    "None": (None, "found None"),
    "prepared pixels": (SCALED, "prepared already"),
    "sixteen bits": (PHOTO.astype("uint16") * 257, "pixel_range="),
    "pixels above 255": (PHOTO + 1.5, "[1.5, 256.5]"),
    "NaN": (SCALED * np.nan, "finite"),
    "a mask": (PHOTO > 9, "found bool"),
    "an empty name": ("", "empty file name"),
}
"""Items of a batch, and a part of their refusals."""


def prepared(item, world):
    return world.places and PREPARE(item)


def shaped(*shape, channels=3):
    return Preprocessor(9, channels)(np.zeros(shape, "uint8"))


def under(name, **parameters):
    return Preprocessor(224, protocol={"name": name, **parameters})


def packed(*shape, most=6, mask=None):
    return pack(np.zeros(shape), [(2, 2)], most, mask)


def thin(protocol):
    return Preprocessor(224, protocol=protocol)(np.zeros((1, 3000, 3), "uint8"))


CALLS = {
    **{name: (functools.partial(prepared, item), words) for name, (item, words) in ITEMS.items()},
    "no image": (lambda w: PREPARE([]), "No image was"),
    "images and labels": (lambda w: PREPARE((PHOTO[None], np.array([3]))), "Are these labels?"),
    "a folder that is absent": (lambda w: list_images(w.path / "absent"), "cannot be listed (No"),
    "too thin for timm": (lambda w: thin("timm"), "before its central crop"),
    "a thin file": (lambda w: Preprocessor(32, protocol="timm")(w.places / "scan.png"), "scan.png"),
    "images of two sizes": (lambda w: Preprocessor(None)([PHOTO, PHOTO[:9]]), "the same size"),
    # Axes
    "three at both ends": (lambda w: shaped(3, 9, 3), "its first and its last axis"),
    "grey images": (lambda w: shaped(9, 9, 9), "images[..., None]"),
    "two channels": (lambda w: shaped(9, 9, 2), "channels=3, found"),
    "one axis": (lambda w: shaped(9), "found (9,)"),
    # Protocols
    "a misspelt protocol": (lambda w: under("tim"), "Did you mean 'timm'?"),
    "a misspelt parameter": (lambda w: under("timm", crop=1), "Did you mean 'crop_pct'?"),
    "a share above one": (lambda w: under("timm", crop_pct=1.2), "a number above 0, at most 1"),
    "a std of zero": (lambda w: under("timm", std=0), "std must be a positive number"),
    "a mean of two": (lambda w: under("timm", mean=[0.5, 0.4]), "mean has 2 values"),
    "a small resize_small": (lambda w: under("big_vision", resize_small=9), "smaller than"),
    "no name": (lambda w: Preprocessor(224, protocol={"crop_pct": 1}), "expected a name"),
    "a filter that tensors lack": (lambda w: under("transformers", **BOX), "interpolation='box'"),
    # Names of classes
    "ids in another order": (lambda w: match_classes(IDS[::-1], NAMES), "has no match"),
    "numbers that are names": (lambda w: match_classes([*"012"], [*"123"]), "'0' has no match"),
    "no, two and doubled classes": (lambda w: match_classes(OTHERS, SEVERAL), "'dgo' has no match"),
    "a list that is not shipped": (lambda w: shorten("imagenet", 9), "Did you mean 'imagenet1k'"),
    "names of two of five classes": (lambda w: shorten([*"ab"], 5), "2 class_names, expected 5"),
    "names that are no strings": (lambda w: shorten([1, 2], 2), "holds 1, expected 2 strings"),
    "NaN for a probability": (lambda w: top_labels(SCALED[0] * np.nan, None, 1), "predicts NaN"),
    # Options
    "an empty range": (lambda w: Preprocessor(9, pixel_range=(5, 5)), "two numbers"),
    "a batch size of zero": (lambda w: list(PREPARE.batches([PHOTO], 0)), "batch_size"),
    "an image size of zero": (lambda w: Preprocessor.from_preset("vit_digits", 0), "image_size"),
    # Packed patches
    "more patches than the limit": (lambda w: packed(1, 6, 12, most=3), "2x2 patches, expected"),
    "a mask of three": (lambda w: packed(1, 6, 12, mask=[[1, 1, 1, 0, 0, 0]]), "the first 4"),
    "pixels for patches": (lambda w: packed(2, 8, 8, 3), "(2, 8, 8, 3)"),
}
REFUSALS = {
    name: (call, TooManyPixelsError if name == "80 million columns" else ConfigError, words)
    for name, (call, words) in CALLS.items()
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


def test_what_is_refused_alone_is_left_out_of_a_batch(world):
    """Each with its own reason; the good images beside it are prepared."""
    assert world.places
    reasons, images = [], [PHOTO, *(item for item, _ in ITEMS.values()), "photo.png"]
    batches = PREPARE.batches(images, 4, lambda item, why: reasons.append(str(why)))
    assert sum(len(batch) for _, batch in batches) == 2
    for reason, (_, words) in zip(reasons, ITEMS.values(), strict=True):
        assert words in reason
    with pytest.raises(ConfigError, match="expected a regular file"):
        list(PREPARE.batches(images, 4))
