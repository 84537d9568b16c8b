"""Preprocessing protocols are read from the JSON of other libraries and written to it."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.families import formats_named
from keras_vit.errors import CheckpointError
from keras_vit.images.protocols import compact, complete
from tests import torchvision_shim  # noqa: F401  before timm and transformers
from tests.golden import FOLDER
from tests.helpers import tiny
from tests.plain import edit_json

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
EXACT = {"activation": "gelu"}


@pytest.mark.parametrize(
    ("source", "protocol"),
    [
        ("vit_rep.npz", "paper"),
        ("bv_tok.npz", "big_vision"),
        ("timm_avg", "timm"),
        ("hf_classifier", {"name": "transformers", "resize": "tensor"}),
        ("hf_old_style", "transformers"),
        ("kh_classifier", "keras_hub"),
        ("kh_backbone", "keras_hub"),
        ("../families/hf_beit_model", {"name": "transformers", "resize": "tensor"}),
        ("../families/timm_beitv2", {"name": "timm", **IMAGENET}),
    ],
)
def test_loading_sets_the_protocol_of_the_library(source, protocol):
    """From the JSON of the folder, or from the library; an argument takes precedence."""
    assert keras_vit.info(FOLDER / source).protocol == protocol
    assert VisionTransformer.from_preset(FOLDER / source).preprocessor.protocol == protocol
    asked = {"name": "timm", "crop_pct": 1.0}
    model = VisionTransformer.from_preset(FOLDER / source, protocol=asked, load_weights=False)
    assert model.preprocessor.protocol == asked


FILES = {
    "timm_avg": ({"name": "timm"}, "config.json", "pretrained_cfg"),
    "hf_classifier": ({"name": "transformers", "resize": "tensor"}, "preprocessor_config.json"),
    "kh_classifier": ({"name": "keras_hub"}, "image_converter.json", "config"),
}
"""Golden folder -> its protocol, and the place of its words: file and key."""


def with_json(tmp_path, golden, changes):
    """A copy of a golden folder with other words for the protocol; `...` removes a key."""
    _, file, *keys = FILES[golden]
    folder = shutil.copytree(FOLDER / golden, tmp_path / "copy")
    edit_json(folder / file, *keys, **changes)
    return folder


SQUARE, CROP = {"height": 20, "width": 20}, {"height": 16, "width": 16}
ONES = {"image_mean": [1] * 3, "image_std": [1] * 3}
SQUASH = {"crop_pct": 1.0, "crop_mode": "squash"}
BILINEAR = {"interpolation": "bilinear", **IMAGENET}
SCALES = {
    "scale": [1 / 255 / s for s in IMAGENET["std"]],
    "offset": [-m / s for m, s in zip(IMAGENET["mean"], IMAGENET["std"], strict=True)],
}
ALL = dict.fromkeys(("crop_pct", "mean", "std", "interpolation", "crop_mode"), ...)
STATED = (
    ("timm_avg", SQUASH, SQUASH),
    ("timm_avg", BILINEAR, BILINEAR),
    ("timm_avg", {"crop_pct": ..., "mean": ..., "std": ...}, {"crop_pct": 0.875, **IMAGENET}),
    ("timm_avg", ALL, {"crop_pct": 0.875, **IMAGENET}),
    ("hf_classifier", {"size": 16, "resample": 3}, {"interpolation": "bicubic"}),
    (
        *("hf_classifier", {"size": SQUARE, "do_center_crop": True, "crop_size": CROP}),
        {"crop_pct": 0.8},
    ),
    ("hf_classifier", {"do_normalize": False}, {"mean": 0.0, "std": 1.0}),
    ("hf_classifier", {"rescale_factor": 1 / 127.5, **ONES}, {}),
    ("hf_classifier", {f"image_{word}": IMAGENET[word] for word in IMAGENET}, IMAGENET),
    ("kh_classifier", {"crop_to_aspect_ratio": False}, {"crop_to_aspect_ratio": False}),
    ("kh_classifier", {"antialias": True}, {"antialias": True}),
    ("kh_classifier", {"crop_to_aspect_ratio": ..., "antialias": ...}, {}),
    ("kh_classifier", {"scale": 1 / 255, "offset": ...}, {"mean": 0.0, "std": 1.0}),
    ("kh_classifier", SCALES, IMAGENET),
)


@pytest.mark.parametrize(("golden", "changes", "protocol"), STATED)
def test_the_protocol_is_read_from_the_json_of_a_library(golden, changes, protocol, tmp_path):
    """Missing keys have the library's defaults; scales and factors become a mean and a std."""
    found = keras_vit.info(with_json(tmp_path, golden, changes)).protocol
    assert found == compact({**FILES[golden][0], **protocol})


def test_a_processor_inside_that_of_a_text_counts_before_one_alone(tmp_path):
    """transformers 5 writes it so for CLIP and SigLIP, and reads it first."""
    folder = with_json(tmp_path, "hf_classifier", {"resample": 0})
    (folder / "processor_config.json").write_text('{"processor_class": "CLIPProcessor"}')
    assert keras_vit.info(folder).protocol["interpolation"] == "nearest"
    inner = json.dumps({"image_processor": {"size": SQUARE, "resample": 3}})
    (folder / "processor_config.json").write_text(inner)
    assert keras_vit.info(folder).protocol["interpolation"] == "bicubic"


INEXPRESSIBLE = (
    ("timm_avg", {"interpolation": "random"}),
    ("timm_avg", {"mean": [0.1, 0.2]}),
    ("hf_classifier", {"size": {"shortest_edge": 9}}),
    ("hf_classifier", {"do_resize": False}),
    ("hf_classifier", {"do_flip_channel_order": True}),
    ("hf_classifier", {"rescale_offset": True}),
    ("hf_classifier", {"ensure_multiple_of": 3}),
    ("kh_classifier", {"pad_to_aspect_ratio": True}),
    ("kh_classifier", {"interpolation": "lanczos3"}),
)


@pytest.mark.parametrize(("golden", "changes"), INEXPRESSIBLE)
def test_preprocessing_without_a_protocol_gives_the_default_and_a_warning(
    golden, changes, tmp_path, caplog
):
    """The weights load; the default protocol of the library prepares images."""
    found = keras_vit.info(with_json(tmp_path, golden, changes)).protocol
    assert found == FILES[golden][0]["name"]
    assert "is no protocol of keras_vit" in caplog.text


SIDES = {"height": None, "width": 224}
IMPOSSIBLE = (
    ("timm_avg", {"crop_pct": "all"}, "crop_pct must be a number .*, found 'all'\\.$"),
    ("timm_avg", {"std": [0, 0, 0]}, "std must be a positive number"),
    ("hf_classifier", {"resample": 9}, "resample=9, expected 0"),
    ("hf_classifier", {"size": SIDES}, f"has size={SIDES}, crop_size=None, expected numbers of pi"),
    ("hf_classifier", {"image_mean": "x"}, "image_mean='x'"),
    ("kh_classifier", {"scale": [1, 2]}, "scale="),
    ("kh_classifier", {"scale": 0}, "scale=0"),
)


@pytest.mark.parametrize(("golden", "changes", "message"), IMPOSSIBLE)
def test_impossible_values_in_the_json_are_refused(golden, changes, message, tmp_path):
    """The message names the value or the JSON file."""
    with pytest.raises(CheckpointError, match=message):
        keras_vit.info(with_json(tmp_path, golden, changes))


OF_TIMM = {"name": "timm", **SQUASH}
WRITTEN = (
    ("timm", {"name": "timm", "crop_pct": 0.95, "interpolation": "bilinear", **IMAGENET}, ...),
    ("timm", {"name": "timm", "crop_pct": 1.0, "crop_mode": "border"}, ...),
    ("transformers", {"name": "transformers", "interpolation": "bicubic", **IMAGENET}, ...),
    ("transformers", {"name": "transformers", "crop_pct": 0.8}, ...),
    ("timm", "transformers", {**OF_TIMM, "interpolation": "bilinear"}),
    ("transformers", OF_TIMM, {"name": "transformers", "interpolation": "bicubic"}),
)
"""Library, a model's protocol, and the equal one that its files state; `...` for the same."""


@pytest.mark.parametrize(("family", "protocol", "stated"), WRITTEN)
def test_a_protocol_that_a_library_can_express_is_saved_and_loaded(
    family, protocol, stated, tmp_path, caplog
):
    """No warning is logged; the stated protocol prepares a photograph equally."""
    model = tiny(block=EXACT, protocol=protocol)
    checkpoints.save(model, tmp_path / "x", family, lossy=True)
    assert "cannot express" not in caplog.text
    back = VisionTransformer.from_preset(tmp_path / "x").preprocessor
    assert back.protocol == compact(complete(protocol if stated is ... else stated))
    photo = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype="uint8")
    np.testing.assert_allclose(back(photo), model.preprocessor(photo), rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["timm", "transformers"])
def test_a_protocol_that_a_library_cannot_express_becomes_its_default(family, tmp_path, caplog):
    """The model's mean and std are kept, and one line of the log says so."""
    model = tiny(block=EXACT, protocol={"name": "big_vision", **IMAGENET})
    checkpoints.save(model, tmp_path / "x", family, lossy=True)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "cannot express the protocol" in line]) == 1
    own = VisionTransformer.from_preset(tmp_path / "x").preprocessor.protocol
    assert own == {"name": family, **IMAGENET}


def test_timms_default_crop_depends_on_the_image_size():
    """The crop is 0.9 of the smaller side, and the whole side from 384 pixels on."""
    default = formats_named("timm")[0].library.images.default
    assert complete(default(tiny().config))["crop_pct"] == 0.9
    assert complete(default(tiny(image_size=384).config))["crop_pct"] == 1.0


def test_convert_keeps_the_protocol(tmp_path):
    """An argument takes precedence over the files."""
    for asked, words in (({}, {"crop_mode": "squash"}), ({"protocol": "timm"}, {"name": "timm"})):
        keras_vit.convert(FOLDER / "hf_classifier", tmp_path, "timm", lossy=True, **asked)
        assert complete(keras_vit.info(tmp_path).protocol).items() >= words.items()


def test_timm_and_transformers_read_the_written_protocol(tmp_path):
    """timm's data config has the numbers; transformers' processor gives the same pixels."""
    from timm.data import resolve_data_config
    from transformers import AutoImageProcessor

    model = tiny(block=EXACT, protocol={"name": "timm", "crop_pct": 0.8, **IMAGENET})
    checkpoints.save(model, tmp_path / "timm", "timm", lossy=True)
    written = json.loads((tmp_path / "timm" / "config.json").read_text())["pretrained_cfg"]
    config = resolve_data_config(pretrained_cfg=written)
    assert (config["crop_pct"], config["interpolation"]) == (0.8, "bicubic")
    assert list(config["mean"]) == IMAGENET["mean"]
    model = tiny(block=EXACT, protocol={"name": "transformers", "crop_pct": 0.8})
    checkpoints.save(model, tmp_path / "hf", "transformers", lossy=True)
    process = AutoImageProcessor.from_pretrained(tmp_path / "hf", backend="pil")
    photo = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype="uint8")
    pixels = np.asarray(process(photo, return_tensors="np")["pixel_values"]).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(model.preprocessor(photo), pixels, rtol=0, atol=1e-6)
