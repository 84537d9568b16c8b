"""Pictures of thirty sizes are prepared as by the library that a checkpoint's JSON belongs to.

Of each library its own classes run beside keras_vit, and its own JSON chooses the protocol. The
sizes decide the side that is resized, the pixel at which a crop begins, and every value.
"""

import functools
import importlib

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.checkpoints.families import FORMATS
from keras_vit.checkpoints.families.transformers.processor import FILE, processor
from keras_vit.config import ViTConfig
from keras_vit.images.protocols import complete
from tests import torchvision_shim  # noqa: F401  before timm and transformers
from tests.data.make_open_clip import CASES
from tests.data.make_open_clip import FILE as OPEN_CLIP
from tests.data.make_open_clip import SIDE as OPEN_CLIPS_SIDE
from tests.images.pictures import THIRTY, picture
from tests.images.test_protocols import SIZES_OF_A_MODEL, origin

without_backend = pytest.mark.without_backend
picture = functools.cache(picture)
IMAGES = {format.name: format.library.images for format in FORMATS}


def differences(preprocess, library, sizes=THIRTY):
    """The largest difference for every size, where `library` prepares one picture."""
    found = {}
    for sides in sizes:
        actual, expected = preprocess(picture(sides))[0], library(picture(sides))
        assert actual.shape == expected.shape, sides
        found[sides] = np.abs(actual - expected).max()
    return found


def check(preprocess, library, tolerance=2e-6):
    wrong = {k: d for k, d in differences(preprocess, library).items() if d > tolerance}
    assert not wrong


def read_pixels(batch):
    return np.asarray(batch["pixel_values"][0]).transpose(1, 2, 0)


BY_CLIP = {"name": "transformers", "crop_mode": "center", "interpolation": "bicubic"}
PROTOCOLS = [
    (BY_CLIP, (32, 32)),
    ({**BY_CLIP, "crop_pct": 0.875}, (32, 32)),
    ({**BY_CLIP, "crop_pct": 0.875, "resize": "tensor"}, (32, 32)),
]
PROTOCOLS += [
    ({"name": "timm", "crop_mode": mode, "crop_pct": part}, size)
    for mode in ("center", "squash", "border")
    for part, size in ((0.9, (32, 32)), (0.875, (33, 48)), (1.0, (45, 31)))
]


@without_backend
@pytest.mark.parametrize(("protocol", "size"), PROTOCOLS, ids=str)
def test_a_protocol_prepares_as_its_library(protocol, size):
    check(Preprocessor(size, protocol=protocol), lambda photo: origin(protocol, photo, size))


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


@without_backend
@pytest.mark.parametrize("form", ["", "Fast", "5.23.0"])
@pytest.mark.parametrize(("module", "name", "content"), PROCESSORS, ids=str)
def test_a_processor_of_transformers_prepares_as_its_file_says(module, name, content, form):
    """On Pillow and on torchvision, which a file names as `Fast` or by release 5."""
    pil = "" if form else "pil_"
    place = importlib.import_module(f"transformers.models.{module}.image_processing_{pil}{module}")
    library = getattr(place, f"{name}ImageProcessor{'' if form else 'Pil'}")(**content)
    size = content.get("crop_size", content["size"])
    kind = f"{name}ImageProcessor{form.rstrip('.0123456789')}"
    beside = {"transformers_version": form.removeprefix("Fast")}
    check(reading(kind, content | beside, size), by_processor(library))


@without_backend
def test_dinov3s_processor_rescales_before_it_resizes():
    from transformers import DINOv3ViTImageProcessor

    preprocess = reading("DINOv3ViTImageProcessorFast", {"size": SQUARE}, SQUARE)
    check(preprocess, by_processor(DINOv3ViTImageProcessor(size=SQUARE)))


def reading(kind, content, size):
    """The preprocessor for a `preprocessor_config.json`."""
    protocol = processor.read({FILE: {"image_processor_type": kind, **content}})
    return Preprocessor((size["height"], size["width"]), protocol=protocol)


def by_processor(library):
    """A function that prepares a picture; transformers takes 1x1 pixels for channels otherwise."""
    from PIL import Image

    axes = {"input_data_format": "channels_last"}
    return lambda photo: read_pixels(library(Image.fromarray(photo), return_tensors="np", **axes))


@without_backend
@pytest.mark.parametrize("form", ["pillow", "tensor"])
@pytest.mark.parametrize("patch", [8, 14])
def test_siglip_2_gets_the_same_patches_of_every_aspect(form, patch):
    from transformers import Siglip2ImageProcessor
    from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

    kind = Siglip2ImageProcessorPil if form == "pillow" else Siglip2ImageProcessor
    library = kind(patch_size=patch, max_num_patches=36)
    protocol = {"name": "transformers", "resize": form}
    preprocess = Preprocessor(6 * patch, protocol=protocol, patch_size=patch)
    names = ("pixel_values", "spatial_shapes", "pixel_attention_mask")

    def patches(photo):
        batch = library(photo, return_tensors="np", input_data_format="channels_last")
        return preprocess.pack(*(np.asarray(batch[name]) for name in names))[0]

    check(preprocess, patches)


@without_backend
@pytest.mark.parametrize("weights", ["IMAGENET1K_V1", "IMAGENET1K_SWAG_E2E_V1"])
def test_the_transform_of_torchvisions_weights_is_that_of_its_files(weights):
    """A file states nothing; its size tells which of the two transforms it needs."""
    from PIL import Image
    from torchvision.models import ViT_B_16_Weights

    transform = ViT_B_16_Weights[weights].transforms()
    (side,) = transform.crop_size
    config = ViTConfig(**{**SIZES_OF_A_MODEL, "image_size": side})
    preprocess = Preprocessor(side, protocol=IMAGES["torchvision"].default(config))
    check(preprocess, lambda photo: transform(Image.fromarray(photo)).numpy().transpose(1, 2, 0))


@without_backend
@pytest.mark.parametrize(("mode", "interpolation"), CASES)
def test_open_clips_transform_is_that_of_its_config(mode, interpolation):
    """The expected pixels are stored, because open_clip is not among the packages of the tests."""
    options = {"resize_mode": mode, "interpolation": interpolation}
    stated = {"preprocess_cfg": {"mean": [0.4] * 3, "std": [0.3] * 3, **options}}
    protocol = IMAGES["open_clip"].read({"open_clip_config.json": stated})
    with np.load(OPEN_CLIP) as file:
        expected = iter((file[f"{mode}_{interpolation}"] / 255 - 0.4) / 0.3)
    check(Preprocessor(OPEN_CLIPS_SIDE, protocol=protocol), lambda photo: next(expected))


@pytest.mark.on_backend("torch", "jax")
@pytest.mark.parametrize("name", ["ViT", "DeiT", "DINOV2", "DINOV3", "CLIP", "SigLIP"])
def test_keras_hubs_converters_prepare_as_their_files_say(name):
    """Where a pixel lies between two whole numbers, backends round it up or down."""
    keras_hub = pytest.importorskip("keras_hub")
    import keras

    std, mean = np.array([0.229, 0.224, 0.225]), np.array([0.485, 0.456, 0.406])
    for crops, antialias in ((True, False), (False, True)):
        library = getattr(keras_hub.layers, f"{name}ImageConverter")(
            image_size=(32, 48),
            scale=(1 / (255 * std)).tolist(),
            offset=(-mean / std).tolist(),
            crop_to_aspect_ratio=crops,
            antialias=antialias,
        )
        protocol = IMAGES["keras_hub"].read(
            {"image_converter.json": {"config": library.get_config()}}
        )
        preprocess = Preprocessor((32, 48), protocol=protocol)

        def prepare(photo, library=library):
            return keras.ops.convert_to_numpy(library(photo[None]))[0]

        steps = differences(preprocess, prepare, THIRTY[::3])
        assert max(steps.values()) <= 1.01 / (255 * std.min())
        assert complete(protocol)["antialias"] == antialias
