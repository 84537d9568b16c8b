"""Preprocessing protocols are read from the JSON of other libraries and written to it."""

import json

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import keras_vit
from keras_vit import Preprocessor, VisionTransformer, checkpoints
from keras_vit.checkpoints.families import formats_named
from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.images.protocols import FILTERS, compact, complete
from tests import torchvision_shim  # noqa: F401  before timm and transformers
from tests.checkpoints.drawn import PLAIN
from tests.checkpoints.files import copy, find
from tests.helpers import tiny
from tests.plain import edit_json
from tests.runs import times

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
EXACT = {"activation": "gelu"}
TENSOR = {"name": "transformers", "resize": "tensor"}
PHOTO = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype="uint8")


@pytest.mark.parametrize(
    ("source", "protocol"),
    [("vit_rep.npz", "paper"), ("bv_tok.npz", "big_vision"), ("hf_classifier", TENSOR)],
)
def test_loading_sets_the_protocol_of_the_library(source, protocol):
    """From the JSON of the folder, or from the library; an argument takes precedence."""
    for asked in ({}, {"protocol": "timm"}):
        model = VisionTransformer.from_preset(find(source), load_weights=False, **asked)
        assert model.preprocessor.protocol == asked.get("protocol", protocol)


FILES = {
    "timm_avg": ({"name": "timm"}, "config.json", "pretrained_cfg"),
    "hf_classifier": (TENSOR, "preprocessor_config.json"),
    "kh_classifier": ({"name": "keras_hub"}, "image_converter.json", "config"),
}
"""Golden folder -> its protocol, and the place of its words: file and key; `...` removes one."""


SQUARE, CROP = {"height": 20, "width": 20}, {"height": 16, "width": 16}
CROPPED = {"size": SQUARE, "do_center_crop": True, "crop_size": CROP}
ONES = {"image_mean": [1] * 3, "image_std": [1] * 3}
SCALES = {
    "scale": [1 / 255 / s for s in IMAGENET["std"]],
    "offset": [-m / s for m, s in zip(IMAGENET["mean"], IMAGENET["std"], strict=True)],
}
ALL = dict.fromkeys(("crop_pct", "mean", "std", "interpolation", "crop_mode"), ...)
STATED = (
    ("timm_avg", ALL, {"crop_pct": 0.875, **IMAGENET}),
    ("hf_classifier", {"size": 16, "resample": 3}, {"interpolation": "bicubic"}),
    ("hf_classifier", CROPPED, {"crop_pct": 0.8}),
    ("hf_classifier", {"do_normalize": False}, {"mean": 0.0, "std": 1.0}),
    ("hf_classifier", {"rescale_factor": 1 / 127.5, **ONES}, {}),
    ("kh_classifier", {"antialias": True}, {"antialias": True}),
    ("kh_classifier", {"scale": 1 / 255, "offset": ...}, {"mean": 0.0, "std": 1.0}),
    ("kh_classifier", SCALES, IMAGENET),
    ("timm_avg", {"interpolation": "random"}, None),
    ("hf_classifier", {"size": {"shortest_edge": 9}}, None),
    ("hf_classifier", {"do_resize": False}, None),
    ("kh_classifier", {"pad_to_aspect_ratio": True}, None),
)


@pytest.mark.parametrize(("golden", "changes", "protocol"), STATED)
def test_the_protocol_is_read_from_the_json_of_a_library(
    golden, changes, protocol, tmp_path, caplog
):
    """Missing keys have the library's defaults; scales and factors become a mean and a std.

    A preparation that is no protocol gives the default of the library and a warning.
    """
    (own, file, *keys), folder = FILES[golden], copy(golden, tmp_path)
    edit_json(folder / file, *keys, **changes)
    found = keras_vit.info(folder).protocol
    assert found == (own["name"] if protocol is None else compact({**own, **protocol}))
    assert ("that keras_vit does not support" in caplog.text) == (protocol is None)


def test_a_processor_inside_that_of_a_text_counts_before_one_alone(tmp_path):
    """transformers 5 writes it so for CLIP and SigLIP, and reads it first."""
    folder, inner = copy("hf_classifier", tmp_path), {"size": SQUARE, "resample": 3}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    assert keras_vit.info(folder).protocol["interpolation"] == "bicubic"


PROTOCOLS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["timm", "transformers"]),
        "crop_pct": st.sampled_from([1.0, 0.95, 0.8]),
        "crop_mode": st.sampled_from(["center", "squash", "border"]),
        "interpolation": st.sampled_from(FILTERS),
    },
    optional={
        "resize": st.sampled_from(["tensor", "float"]),
        **{k: st.just(v) for k, v in IMAGENET.items()},
    },
)


@pytest.mark.parametrize("family", ["timm", "transformers"])
@given(spec=PROTOCOLS)
@settings(max_examples=times(40, 400), deadline=None)
def test_a_protocol_that_a_library_can_express_prepares_alike_when_read_back(family, spec):
    """In the words of the library itself, or of another whose protocol is equal to it."""
    try:
        protocol = complete(spec)
    except ConfigError:
        reject()
    images, config = formats_named(family)[0].library.images, ViTConfig.from_dict(PLAIN)
    # timm and transformers crop and resize up to a pixel apart.
    is_equal = protocol["crop_mode"] == "squash" and "resize" not in spec
    if images.expresses(protocol) and (protocol["name"] == family or is_equal):
        files = json.loads(json.dumps(images.write(protocol, config)))
        found = complete(images.read(files))
        own, back = (Preprocessor(config.image_size, protocol=p)(PHOTO) for p in (protocol, found))
        np.testing.assert_allclose(back, own, rtol=0, atol=1e-6)
        size = {"crop_pct": found["crop_pct"]}  # transformers states it in whole pixels
        assert found["name"] != protocol["name"] or found == protocol | size


@pytest.mark.parametrize("family", ["timm", "transformers"])
def test_a_protocol_that_a_library_cannot_express_becomes_its_default(family, tmp_path, caplog):
    """The model's mean and std are kept, and one line of the log says so."""
    model = tiny(block=EXACT, protocol={"name": "big_vision", **IMAGENET})
    checkpoints.save(model, tmp_path / "x", family, lossy=True)
    assert caplog.text.count("cannot express the protocol") == 1
    assert keras_vit.info(tmp_path / "x").protocol == {"name": family, **IMAGENET}


def test_timms_default_crop_depends_on_the_image_size():
    """The crop is 0.9 of the smaller side, and the whole side from 384 pixels on."""
    default = formats_named("timm")[0].library.images.default
    for size, crop in ((16, 0.9), (384, 1.0)):
        config = ViTConfig.from_dict({**PLAIN, "image_size": size})
        assert complete(default(config))["crop_pct"] == crop


def test_convert_keeps_the_protocol(tmp_path):
    keras_vit.convert(find("hf_classifier"), tmp_path, "timm", lossy=True)
    assert complete(keras_vit.info(tmp_path).protocol)["crop_mode"] == "squash"


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
    assert VisionTransformer.from_preset(tmp_path / "hf").preprocessor == model.preprocessor
    process = AutoImageProcessor.from_pretrained(tmp_path / "hf", backend="pil")
    pixels = np.asarray(process(PHOTO, return_tensors="np")["pixel_values"]).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(model.preprocessor(PHOTO), pixels, rtol=0, atol=1e-6)
