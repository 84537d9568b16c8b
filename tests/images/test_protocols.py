"""Each protocol prepares photographs as its library does, within the numbers of the docs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from skimage import data

from keras_vit import Preprocessor, ViTConfig
from keras_vit.checkpoints.families.transformers.processor import (
    _OF_CLASS,
    FILE,
    _complete,
    processor,
)
from keras_vit.errors import ConfigError
from keras_vit.images.protocols import PROTOCOLS, compact, complete
from tests import torchvision_shim  # noqa: F401  before timm and transformers

DOCS = (Path(__file__).parents[2] / "docs" / "preprocessing.md").read_text()
ROWS = [
    (json.loads(protocol), float(difference))
    for protocol, difference in re.findall(r"^\| `(.+?)` \|.*\| ([\d.e-]+) \|$", DOCS, re.MULTILINE)
]
"""The protocols and their largest differences, read from the table in the docs."""

SIZES = ((224, 224), (160, 240))
SIZES_OF_A_MODEL = {"image_size": 224, "patch_size": 16, "hidden_size": 8, "mlp_dim": 8}
SIZES_OF_A_MODEL |= {"num_heads": 2, "num_layers": 1}


@pytest.fixture(scope="module")
def photos():
    """Photographs that are square, wide, tall and of odd sides."""
    return [data.astronaut(), data.coffee(), data.chelsea().transpose(1, 0, 2), data.rocket()]


def origin(protocol, photo, size):
    """The photograph as prepared by the library of the protocol, (height, width, channels)."""
    parameters = complete(protocol)
    return {
        "paper": by_paper,
        "big_vision": by_big_vision,
        "timm": by_timm,
        "transformers": by_transformers,
        "keras_hub": by_keras_hub,
    }[parameters["name"]](parameters, photo, size)


def by_paper(_, photo, size):
    """`_pp` of `vit_jax/input_pipeline.py`."""
    import tensorflow as tf

    return (tf.image.resize(photo, size).numpy() - 127.5) / 127.5


def by_big_vision(stated, photo, size):
    """resize_small, central_crop and value_range of `big_vision/pp`."""
    import tensorflow as tf

    small = (stated["resize_small"] or 256) * max(size) / (stated["image_size"] or 224)
    factor = tf.constant(round(small), tf.float32) / tf.cast(min(photo.shape[:2]), tf.float32)
    sides = [int(tf.round(tf.cast(side, tf.float32) * factor)) for side in photo.shape[:2]]
    image = tf.image.resize(photo, sides, stated["method"], antialias=stated["antialias"])
    image = tf.cast(tf.clip_by_value(image, 0, 255), tf.uint8)
    top, left = ((have - expected) // 2 for have, expected in zip(sides, size, strict=True))
    image = tf.image.crop_to_bounding_box(image, top, left, *size)
    return (tf.cast(image, tf.float32) / 255.0 * 2 - 1).numpy()


def by_timm(stated, photo, size):
    """The evaluation transform that timm creates from a `pretrained_cfg`."""
    from PIL import Image
    from timm.data import create_transform

    keys = ("crop_pct", "crop_mode", "interpolation")
    per_channel = {key: tuple(np.broadcast_to(stated[key], 3)) for key in ("mean", "std")}
    transform = create_transform((3, *size), **{key: stated[key] for key in keys}, **per_channel)
    return transform(Image.fromarray(photo)).numpy().transpose(1, 2, 0)


def by_transformers(stated, photo, size, processor=None):
    """The image processor of transformers on Pillow, or `processor`."""
    from PIL import Image
    from transformers import CLIPImageProcessor, DINOv3ViTImageProcessor, ViTImageProcessor
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    forms = {"pillow": ViTImageProcessorPil, "tensor": ViTImageProcessor}
    forms["float"] = DINOv3ViTImageProcessor
    scaled = [round(side / stated["crop_pct"]) for side in size]
    edges = dict(zip(("height", "width"), scaled, strict=True))
    if stated["crop_mode"] == "center":
        forms |= {"pillow": BitImageProcessorPil, "tensor": CLIPImageProcessor}
        edges = {"shortest_edge": max(scaled)}
    process = (processor or forms[stated["resize"]])(
        size=edges,
        crop_size=dict(zip(("height", "width"), size, strict=True)),
        do_center_crop=stated["crop_pct"] < 1 or stated["crop_mode"] == "center",
        resample={"bilinear": 2, "bicubic": 3}[stated["interpolation"]],
        image_mean=stated["mean"] if isinstance(stated["mean"], list) else [stated["mean"]] * 3,
        image_std=stated["std"] if isinstance(stated["std"], list) else [stated["std"]] * 3,
    )
    pixels = process(Image.fromarray(photo), return_tensors="np")["pixel_values"][0]
    return np.asarray(pixels).transpose(1, 2, 0)


def by_keras_hub(stated, photo, size):
    """The converter of a keras-hub preset."""
    import keras
    import keras_hub

    convert = keras_hub.layers.ViTImageConverter(
        image_size=size,
        scale=1 / 127.5,
        offset=-1.0,
        crop_to_aspect_ratio=stated["crop_to_aspect_ratio"],
        antialias=stated["antialias"],
    )
    return keras.ops.convert_to_numpy(convert(photo[None]))[0]


@pytest.mark.parametrize(("protocol", "stated"), ROWS, ids=[json.dumps(row[0]) for row in ROWS])
def test_a_protocol_is_as_near_to_its_library_as_documented(protocol, stated, photos):
    """On every photograph, at two sizes."""
    for size in SIZES:
        preprocess = Preprocessor(size, protocol=protocol)
        for photo in photos:
            actual, expected = preprocess(photo)[0], origin(protocol, photo, size)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=stated)
            # Few values differ by the rounding of a pixel.
            assert np.mean(np.abs(actual - expected) > 1.1e-6) < 0.02


def test_the_values_of_each_class_of_transformers_are_its_own():
    """Filter, mean, std and sizes, for a file that names a class alone."""
    import transformers

    for name in (*_OF_CLASS, "ViT", "Siglip2"):
        processor_class = getattr(transformers, f"{name}ImageProcessor")
        usual = _complete({FILE: {"image_processor_type": f"{name}ImageProcessor"}})
        theirs = vars(processor_class)
        assert usual["resample"] == int(theirs["resample"]), name
        normalizes = theirs.get("do_normalize") is not False
        assert usual.get("do_normalize", True) == normalizes, name
        for key in ("image_mean", "image_std") if normalizes else ():
            np.testing.assert_allclose(np.broadcast_to(usual[key], 3), theirs[key], err_msg=name)
        for key in ("do_center_crop", "do_pad", "do_image_splitting", "keep_aspect_ratio"):
            assert bool(usual.get(key)) == bool(theirs.get(key)), (name, key)


def test_a_crop_larger_than_the_resized_image_is_no_protocol(caplog):
    """transformers frames it in black."""
    sizes = {"size": {"shortest_edge": 200}, "crop_size": {"height": 224, "width": 224}}
    content = {"image_processor_type": "CLIPImageProcessor", **sizes}
    assert processor.read({"preprocessor_config.json": content}) is None
    assert "is no protocol of keras_vit" in caplog.text


def test_the_docs_have_every_protocol():
    """The rows of the table are found, and no protocol is left out."""
    assert {complete(protocol)["name"] for protocol, _ in ROWS} == set(PROTOCOLS)


@pytest.mark.parametrize(("interpolation", "steps"), [("bilinear", 1), ("bicubic", 2)])
def test_transformers_on_torchvision_differs_by_one_or_two_pixel_steps(
    interpolation, steps, photos
):
    """On less than one value in a hundred."""
    from transformers import ViTImageProcessor

    protocol = complete({"name": "transformers", "interpolation": interpolation})
    actual = Preprocessor(224, protocol=protocol)(photos[1])[0]
    expected = by_transformers(protocol, photos[1], (224, 224), ViTImageProcessor)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=steps * 0.0079)
    assert 0 < np.mean(np.abs(actual - expected) > 1e-6) < 0.01


@pytest.mark.parametrize(
    "protocol",
    ["big_vision", {"name": "timm", "interpolation": "bilinear"}, "transformers", "keras_hub"],
    ids=json.dumps,
)
def test_floats_are_not_rounded(protocol, photos):
    """Whole numbers are pixels in any dtype; fractions of pixels keep their precision."""
    preprocess = Preprocessor(224, protocol=protocol)
    pixels = preprocess(photos[1])
    np.testing.assert_array_equal(preprocess(photos[1].astype("float64")), pixels)
    half = (preprocess(photos[1] / 2.0) + 1) * 2 - 1
    assert 0 < np.abs(half - pixels).max() <= 2 * 2 / 255


@pytest.mark.parametrize(
    ("protocol", "stored"),
    [
        ("timm", "timm"),
        ({"name": "timm", "crop_pct": 0.9}, "timm"),
        ({"name": "timm", "mean": [0.5, 0.5, 0.5], "std": (0.5,)}, "timm"),
        (
            {"name": "transformers", "mean": [0.485, 0.456, 0.406]},
            {"name": "transformers", "mean": [0.485, 0.456, 0.406]},
        ),
    ],
)
def test_default_parameters_of_a_protocol_are_not_stored(protocol, stored):
    """Equal protocols have one compact form, in plain JSON."""
    assert compact(protocol) == stored
    assert json.loads(json.dumps(compact(protocol))) == stored
    assert Preprocessor(224, protocol=protocol).protocol == stored


def test_resize_small_scales_with_the_image_size():
    """448 for images of 384 pixels becomes 224 for 192; the protocol stores the 384."""
    protocol = {"name": "big_vision", "resize_small": 448}
    stored = Preprocessor(384, protocol=protocol).protocol
    assert stored == {**protocol, "image_size": 384}
    image = np.zeros((224, 300, 3), "uint8")
    image[16:208, 54:246] = 255  # the central crop of 192 from 300 x 224
    assert (Preprocessor(192, protocol=stored)(image) == 1).all()


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("tim", "Did you mean 'timm'?"),
        ({"name": "timm", "crop": 1}, "no parameter 'crop'. Did you mean 'crop_pct'?"),
        ({"name": "paper", "crop_pct": 1}, "'paper' has no parameter 'crop_pct'"),
        ({"name": "timm", "crop_pct": 1.2}, "crop_pct must be a number above 0, at most 1"),
        ({"name": "timm", "crop_pct": "1"}, "at most 1, found '1'"),
        ({"name": "timm", "interpolation": "cubic"}, "'cubic' is not one of nearest, box"),
        ({"name": "timm", "std": 0}, "std must be a positive number"),
        ({"name": "timm", "mean": [0.5, 0.4]}, "mean has 2 numbers, expected one"),
        ({"name": "big_vision", "resize_small": 100}, "leaves less than the crop"),
        ({"crop_pct": 1}, "expected a name"),
        (None, "expected a name"),
    ],
)
def test_bad_protocols_are_refused(protocol, message):
    """The message gives the name, the parameter and the values it takes."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        Preprocessor(224, protocol=protocol)


@pytest.mark.parametrize(
    ("kind", "release", "form"),
    [
        ("ViTImageProcessor", None, "pillow"),
        ("ViTImageProcessor", "4.57.1", "pillow"),
        ("ViTImageProcessor", "5.23.0", "tensor"),
        ("ViTFeatureExtractor", None, "pillow"),
        ("ViTImageProcessorFast", "4.57.1", "tensor"),
        ("DINOv3ViTImageProcessorFast", None, "float"),
        ("DINOv3ViTImageProcessor", "5.0.0.dev0", "float"),
    ],
)
@pytest.mark.parametrize("place", ["config.json", FILE])
def test_class_and_release_in_the_json_decide_how_transformers_resizes(kind, release, form, place):
    """Every form is written back as a class that has it."""
    content = {"image_processor_type": kind, "size": {"height": 224, "width": 224}, "resample": 2}
    files = {FILE: content, "config.json": {}}
    files[place]["transformers_version"] = release
    protocol = processor.read(files)
    assert protocol["resize"] == form
    written = processor.write(protocol, ViTConfig(**SIZES_OF_A_MODEL))
    assert processor.read(written) == protocol


@pytest.mark.parametrize("form", ["tensor", "float"])
def test_tensors_have_no_other_filters(form):
    with pytest.raises(
        ConfigError, match="filters bilinear and bicubic, found interpolation='box'"
    ):
        complete({"name": "transformers", "interpolation": "box", "resize": form})
