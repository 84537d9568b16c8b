"""Each protocol, and each file of a library, prepares pictures as the library itself does.

The sides of a picture decide which side is resized, where a crop begins, and every value.
"""

import functools
import importlib

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.checkpoints.families import FORMATS
from keras_vit.checkpoints.families.transformers.processor import (
    _OF_CLASS,
    FILE,
    _complete,
    processor,
)
from keras_vit.config import ViTConfig
from keras_vit.images.packing import fit_to_patches
from keras_vit.images.protocols import PROTOCOLS, complete
from tests import torchvision_shim  # noqa: F401  before timm and transformers
from tests.images.pictures import THIRTY, picture
from tests.images.rows import ROWS, SIZES, pictures
from tests.runs import times
from weights.test_data import open_clip

IMAGES = {format.name: format.library.images for format in FORMATS}
MODEL = {"image_size": 224, "patch_size": 16, "hidden_size": 8, "mlp_dim": 8}
MODEL |= {"num_heads": 2, "num_layers": 1}
SIDES = ("height", "width")


def by_paper(_, size):
    """`_pp` of `vit_jax/input_pipeline.py`."""
    import tensorflow as tf

    return lambda image: (tf.image.resize(np.asarray(image), size).numpy() - 127.5) / 127.5


def by_big_vision(stated, size):
    """resize_small, central_crop and value_range of `big_vision/pp`."""
    import tensorflow as tf

    small = round((stated["resize_small"] or 256) * max(size) / (stated["image_size"] or 224))
    options = {"method": stated["method"], "antialias": stated["antialias"]}

    def prepare(image):
        photo = np.asarray(image)
        factor = tf.constant(small, tf.float32) / tf.cast(min(photo.shape[:2]), tf.float32)
        sides = [int(tf.round(tf.cast(side, tf.float32) * factor)) for side in photo.shape[:2]]
        resized = tf.clip_by_value(tf.image.resize(photo, sides, **options), 0, 255)
        top, left = ((have - expected) // 2 for have, expected in zip(sides, size, strict=True))
        crop = tf.image.crop_to_bounding_box(tf.cast(resized, tf.uint8), top, left, *size)
        return (tf.cast(crop, tf.float32) / 255.0 * 2 - 1).numpy()

    return prepare


def by_torch(transform):
    return lambda image: transform(image).numpy().transpose(1, 2, 0)


def by_timm(stated, size):
    """The evaluation transform that timm creates from a `pretrained_cfg`."""
    from timm.data import create_transform

    options = {key: stated[key] for key in ("crop_pct", "crop_mode", "interpolation")}
    options |= {key: tuple(np.broadcast_to(stated[key], 3)) for key in ("mean", "std")}
    return by_torch(create_transform((3, *size), **options))


def by_class(module, name, pillow, read=None, **content):
    """An image processor of transformers on Pillow, or on torchvision."""
    place = f"transformers.models.{module}.image_processing_{'pil_' * pillow}{module}"
    kind = f"{name}ImageProcessor{'Pil' * pillow}"
    library = getattr(importlib.import_module(place), kind)(**content)

    def prepare(image):  # it takes 1x1 pixels for channels otherwise
        batch = library(image, return_tensors="np", input_data_format="channels_last")
        return read(batch) if read else np.asarray(batch["pixel_values"][0]).transpose(1, 2, 0)

    return prepare


def by_transformers(stated, size):
    """The class that has the form of the resize."""
    scaled = [round(side / stated["crop_pct"]) for side in size]
    is_central = stated["crop_mode"] == "center"
    kind = {"float": ("dinov3_vit", "DINOv3ViT")}.get(stated["resize"], ("vit", "ViT"))
    if is_central:
        kind = {"pillow": ("bit", "Bit"), "tensor": ("clip", "CLIP")}[stated["resize"]]
    return by_class(
        *kind,
        stated["resize"] == "pillow",
        size={"shortest_edge": max(scaled)}
        if is_central
        else dict(zip(SIDES, scaled, strict=True)),
        crop_size=dict(zip(SIDES, size, strict=True)),
        do_center_crop=stated["crop_pct"] < 1 or is_central,
        resample={"bilinear": 2, "bicubic": 3}[stated["interpolation"]],
        image_mean=np.broadcast_to(stated["mean"], 3).tolist(),
        image_std=np.broadcast_to(stated["std"], 3).tolist(),
    )


def by_converter(name, **options):
    """A converter of keras-hub."""
    import keras

    hub = pytest.importorskip("keras_hub")
    library = getattr(hub.layers, f"{name}ImageConverter")(**options)
    return library, lambda i: keras.ops.convert_to_numpy(library(np.asarray(i)[None]))[0]


def by_keras_hub(stated, size):
    options = {key: stated[key] for key in ("crop_to_aspect_ratio", "antialias")}
    return by_converter("ViT", image_size=size, scale=1 / 127.5, offset=-1.0, **options)[1]


def test_the_docs_have_every_protocol():
    assert {complete(protocol)["name"] for protocol, _ in ROWS.values()} == set(PROTOCOLS)


@pytest.mark.parametrize("row", ROWS)
@given(image=pictures(), size=st.sampled_from(SIZES), part=st.sampled_from((0.8, 0.875, 0.9, 1.0)))
@example(image=Image.fromarray(picture((64, 48))), size=(32, 32), part=0.9)  # half a pixel is cut
@settings(max_examples=times(20, 200), deadline=None)
def test_a_picture_is_prepared_as_by_the_library_of_the_protocol(row, image, size, part):
    protocol, stated = ROWS[row]
    parameters = complete(protocol)
    if "crop_pct" in parameters:
        parameters["crop_pct"] = part
    library = globals()[f"by_{parameters['name']}"](parameters, size)
    if parameters.get("crop_mode") == "border":  # timm resizes a thin picture to no row or column
        assume(min(image.size) / max(image.size) > 0.1)
    expected = library(image.convert("RGB"))
    actual = Preprocessor(size, protocol=parameters)(image)[0]
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= stated


SQUARE = {"height": 32, "width": 32}
LARGER = {"height": 37, "width": 37}
CROPPED = {"size": LARGER, "crop_size": SQUARE, "do_center_crop": True}
PROCESSORS = [
    ("vit", "ViT", {"size": {"height": 32, "width": 48}}),
    ("deit", "DeiT", {"size": LARGER, "crop_size": SQUARE}),
    ("beit", "Beit", {"size": SQUARE}),
    ("beit", "Beit", {**CROPPED, "resample": 2}),
    ("siglip", "Siglip", {"size": SQUARE}),
    ("clip", "CLIP", {"size": {"shortest_edge": 32}, "crop_size": SQUARE}),
    ("bit", "Bit", {"size": {"shortest_edge": 37}, "crop_size": SQUARE}),
]
CASES = [
    *(("transformers", *row, form) for row in PROCESSORS for form in ("", "Fast", "5.23.0")),
    ("transformers", "dinov3_vit", "DINOv3ViT", {"size": SQUARE}, "Fast"),
    *(("siglip_2", form, patch) for form in ("pillow", "tensor") for patch in (8, 14)),
    *(("torchvision", weights) for weights in ("IMAGENET1K_V1", "IMAGENET1K_SWAG_E2E_V1")),
    *(("keras_hub", name, True) for name in ("ViT", "DeiT", "DINOV2", "DINOV3", "CLIP", "SigLIP")),
    ("keras_hub", "ViT", False),
]


def of_transformers(module, name, content, form):
    """On Pillow, or on torchvision, which a file names as `Fast` or by release 5."""
    size = content.get("crop_size", content["size"])
    kind = f"{name}ImageProcessor{form.rstrip('.0123456789')}"
    beside = {"transformers_version": form.removeprefix("Fast")}
    protocol = processor.read({FILE: {"image_processor_type": kind, **content, **beside}})
    preprocess = Preprocessor(tuple(size[side] for side in SIDES), protocol=protocol)
    return preprocess, by_class(module, name, not form, **content), 2e-6


def of_siglip_2(form, patch):
    """It packs the patches of every aspect."""
    protocol = {"name": "transformers", "resize": form}
    preprocess = Preprocessor(6 * patch, protocol=protocol, patch_size=patch)
    names = ("pixel_values", "spatial_shapes", "pixel_attention_mask")

    def read(batch):
        return preprocess.pack(*(np.asarray(batch[name]) for name in names))[0]

    options = {"patch_size": patch, "max_num_patches": 36}
    return preprocess, by_class("siglip2", "Siglip2", form == "pillow", read, **options), 2e-6


def of_torchvision(weights):
    """A file states nothing; its size tells which of the two transforms it needs."""
    from torchvision.models import ViT_B_16_Weights

    transform = ViT_B_16_Weights[weights].transforms()
    config = ViTConfig(**{**MODEL, "image_size": transform.crop_size[0]})
    protocol = IMAGES["torchvision"].default(config)
    return Preprocessor(config.image_size, protocol=protocol), by_torch(transform), 2e-6


def of_keras_hub(name, crops):
    """Where a pixel lies between two whole numbers, backends round it up or down."""
    std, mean = np.array([0.229, 0.224, 0.225]), np.array([0.485, 0.456, 0.406])
    scaling = {"scale": (1 / (255 * std)).tolist(), "offset": (-mean / std).tolist()}
    options = {"image_size": (32, 48), "crop_to_aspect_ratio": crops, "antialias": not crops}
    library, prepare = by_converter(name, **options, **scaling)
    content = {"image_converter.json": {"config": library.get_config()}}
    protocol = IMAGES["keras_hub"].read(content)
    assert complete(protocol)["antialias"] == (not crops)
    return Preprocessor((32, 48), protocol=protocol), prepare, 1.01 / (255 * std.min())


@functools.cache
def read_case(number):
    """The preprocessor that a file chooses, the library's own, and their largest difference."""
    kind, *arguments = CASES[number]
    return globals()[f"of_{kind}"](*arguments)


@pytest.mark.parametrize("number", range(len(CASES)), ids=map(str, CASES))
@given(image=pictures())
@settings(max_examples=times(15, 100), deadline=None)
def test_a_file_chooses_the_preprocessing_of_its_library(number, image):
    preprocess, library, tolerance = read_case(number)
    actual, expected = preprocess(image)[0], library(image.convert("RGB"))
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance


@pytest.mark.parametrize(("mode", "interpolation"), open_clip.CASES)
def test_open_clips_transform_is_that_of_its_config(mode, interpolation):
    """The expected pixels are stored, because open_clip is not among the packages of the tests."""
    options = {"resize_mode": mode, "interpolation": interpolation}
    stated = {"preprocess_cfg": {"mean": [0.4] * 3, "std": [0.3] * 3, **options}}
    protocol = IMAGES["open_clip"].read({"open_clip_config.json": stated})
    with np.load(open_clip.FILE) as file:
        expected = (file[f"{mode}_{interpolation}"] / 255 - 0.4) / 0.3
    actual = Preprocessor(open_clip.SIDE, protocol=protocol)([picture(s) for s in THIRTY])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6)


@given(
    size=st.tuples(st.integers(1, 7000), st.integers(1, 7000)),
    patch=st.sampled_from((14, 16)),
    most=st.sampled_from((16, 256, 576, 1000)),
)
@settings(max_examples=times(40, 400), deadline=None)
def test_an_image_is_resized_to_patches_as_transformers_and_timm_resize_it(size, patch, most):
    """To the same whole patches, for every aspect."""
    siglip2 = importlib.import_module("transformers.models.siglip2.image_processing_pil_siglip2")
    naflex = importlib.import_module("timm.data.naflex_transforms")
    found = fit_to_patches(size, (patch, patch), most)
    assert found == siglip2.get_image_size_for_max_num_patches(*size, patch, most)
    if found != (patch, patch) and min(size) > 1:  # timm refuses to enlarge by 100
        assert found == naflex.get_image_size_for_seq(size, patch, most)[1]


@pytest.mark.parametrize("name", [*_OF_CLASS, "ViT", "Siglip2"])
def test_the_values_of_each_class_of_transformers_are_its_own(name):
    """Filter, mean, std and steps, for a file that names a class alone."""
    usual = _complete({FILE: {"image_processor_type": f"{name}ImageProcessor"}})
    theirs = vars(getattr(importlib.import_module("transformers"), f"{name}ImageProcessor"))
    assert usual["resample"] == int(theirs["resample"])
    normalizes = theirs.get("do_normalize") is not False
    assert usual.get("do_normalize", True) == normalizes
    for key in ("image_mean", "image_std") if normalizes else ():
        np.testing.assert_allclose(np.broadcast_to(usual[key], 3), theirs[key])
    for key in ("do_center_crop", "do_pad", "do_image_splitting", "keep_aspect_ratio"):
        assert bool(usual.get(key)) == bool(theirs.get(key)), key


def test_a_crop_larger_than_the_resized_image_is_no_protocol(caplog):
    """transformers frames it in black."""
    sizes = {"size": {"shortest_edge": 200}, "crop_size": {"height": 224, "width": 224}}
    assert processor.read({FILE: {"image_processor_type": "CLIPImageProcessor", **sizes}}) is None
    assert "that keras_vit does not support" in caplog.text


FORMS = [
    ("ViTImageProcessor", "4.57.1", "pillow"),
    ("ViTImageProcessor", "5.23.0", "tensor"),
    ("ViTFeatureExtractor", None, "pillow"),
    ("ViTImageProcessorFast", "4.57.1", "tensor"),
    ("DINOv3ViTImageProcessor", "5.0.0.dev0", "float"),
]


@pytest.mark.parametrize(("kind", "release", "form"), FORMS)
@pytest.mark.parametrize("place", ["config.json", FILE])
def test_class_and_release_in_the_json_decide_how_transformers_resizes(kind, release, form, place):
    """Every form is written back as a class that has it."""
    content = {"image_processor_type": kind, "size": {"height": 224, "width": 224}, "resample": 2}
    files = {FILE: content, "config.json": {}}
    files[place]["transformers_version"] = release
    protocol = processor.read(files)
    assert protocol["resize"] == form
    assert processor.read(processor.write(protocol, ViTConfig(**MODEL))) == protocol
