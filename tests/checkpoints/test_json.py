"""What the JSON beside the arrays states: facts, labels, the task of a head, the size of images."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer, checkpoints, evaluate
from keras_vit.checkpoints.families.transformers.library import DEFAULTS
from keras_vit.errors import CheckpointError
from tests.checkpoints.cases import VISION
from tests.checkpoints.files import copy, refused
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.live import channels_first, random_transformers, timm, torch, transformers
from tests.plain import edit_json, normal, raises


@pytest.fixture
def file(tmp_path):
    """The weights of a ViT of transformers with 3 heads, beside its config.json."""
    copy("hf_classifier/config.json", tmp_path)
    return copy("hf_classifier/model.safetensors", tmp_path)


def test_it_states_what_the_arrays_leave_open(file, caplog):
    """Under any name of the only weights of a folder; beside other weights, it may be theirs.

    An invalid value is refused, as in the folder.
    """
    own = file.rename(file.with_name("epoch_10.safetensors"))
    edit_json(file.with_name("config.json"), model_type=..., architectures=...)
    assert keras_vit.info(own).config.num_heads == 3
    assert not caplog.records
    edit_json(file.with_name("config.json"), hidden_act="mish")
    refused(own, "hidden_act='mish'")
    shutil.copy(own, own.with_name("epoch_11.safetensors"))
    refused(own, "num_heads")


@pytest.mark.parametrize("changes", [{"hidden_size": 48}, {"model_type": "bert"}])
def test_that_of_another_model_is_left_out_with_one_line(file, changes, caplog):
    edit_json(file.with_name("config.json"), **changes)
    assert keras_vit.info(file, num_heads=4).config.num_heads == 4
    (line,) = [record.getMessage() for record in caplog.records]
    assert "JSON" in line and str(*changes.values()) in line


PLACES = {"hf_dinov2_model": [], "hf_clip_two_towers": ["vision_config"]}
PLACES |= {"timm_token": ["model_args"]}
OF_TOOLS = {"finetuning_task": "image-classification", "transformers.js_config": {"dtype": "q8"}}
"""Keys of transformers 4's example scripts, and of transformers.js."""


@pytest.mark.parametrize("name", PLACES)
def test_keys_of_the_network_that_are_not_read_are_named(name, tmp_path, caplog):
    """With their values; not the library's own keys, nor those of tools, nor one that is off."""
    file, place = copy(name, tmp_path) / "config.json", PLACES[name]
    edit_json(file, *place, windows=None, post_norm=False)
    edit_json(file, **OF_TOOLS)
    keras_vit.info(file.parent)
    assert not caplog.records
    edit_json(file, *place, windows=7, post_norm=True)
    keras_vit.info(file.parent)
    (record,) = caplog.records
    assert "windows=7, post_norm=True" in record.getMessage()


def test_the_rotary_positions_of_transformers_5_are_read(tmp_path, caplog):
    """`rope_parameters` stands in the place of `rope_theta`."""
    file = copy("hf_dinov3_rect", tmp_path) / "config.json"
    edit_json(file, rope_theta=..., rope_parameters={"rope_theta": 50.0, "rope_type": "default"})
    assert keras_vit.info(file.parent).config.rope.theta == 50
    assert not caplog.records


def test_names_of_other_numbers_than_the_classes_are_left_out(file, caplog):
    for numbers, word in (("01", "2 class names for a head of 5"), ("07", "id2label")):
        edit_json(file.with_name("config.json"), id2label=dict.fromkeys(numbers, "tench"))
        model = VisionTransformer.from_preset(file.parent, load_weights=False)
        assert model.class_names is None and word in caplog.text


def test_the_defaults_are_those_of_transformers():
    """The file is what its script makes of the transformers that is installed."""
    from weights.make_defaults import read_defaults

    own = json.loads(DEFAULTS.read_text())
    if transformers.__version__ != own["transformers"]:
        pytest.skip(f"written with transformers {own['transformers']}")
    assert json.loads(json.dumps(read_defaults())) == own


IMAGES, TARGETS = normal(4, 16, 16, 3), normal(4, 2)
HOT = np.eye(5, dtype="float32")[:4]
MULTI, REGRESSION = "multi_label_classification", "regression"
HEADS = {
    "multi-label": (5, MULTI, HOT + HOT[::-1], MULTI),
    "unsaid": (5, None, np.arange(4), None),
    "two values": (2, REGRESSION, TARGETS, REGRESSION),
    "one value": (1, None, TARGETS[:, :1], REGRESSION),
    "one label": (1, MULTI, HOT[:, :1], MULTI),
}
"""Number of outputs, `problem_type` of the file, targets, and the word that is written."""


def write_classifier(folder, classes, problem):
    fields = {**VISION, "num_labels": classes, "problem_type": problem}
    model = random_transformers("ViTForImageClassification", **fields)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("case", HEADS)
def test_logits_the_loss_and_problem_type_are_those_of_transformers(tmp_path, case):
    """Without the word, a single output is a number; `save` and `convert` write it back."""
    classes, problem, targets, written = HEADS[case]
    reference = write_classifier(tmp_path / "in", classes, problem)
    labels = torch.tensor(targets[:, 0] if case == "one value" else targets)
    with torch.no_grad():
        expected = reference(pixel_values=channels_first(IMAGES), labels=labels)
    model = VisionTransformer.from_preset(tmp_path / "in")
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), expected.logits, atol=1e-5)
    model.compile("sgd", "auto")
    losses = [model.evaluate(IMAGES, targets, verbose=0)]
    if model.task == "regression":
        losses.append(evaluate(model, (IMAGES, targets), prepared=True).loss)
    np.testing.assert_allclose(losses, float(expected.loss), rtol=1e-5)
    checkpoints.save(model, tmp_path / "saved", family="transformers")
    keras_vit.convert(tmp_path / "in", tmp_path / "converted", "transformers")
    model.save_to_preset(tmp_path / "preset")
    for name in ("saved", "converted", "preset"):
        again = VisionTransformer.from_preset(tmp_path / name)
        assert (again.task, again.thresholds) == (model.task, model.thresholds)
        stored = json.loads((tmp_path / name / "config.json").read_text())
        assert name == "preset" or stored.get("problem_type") == written


def test_the_caller_and_a_new_head_beat_problem_type(tmp_path):
    write_classifier(tmp_path / "in", 2, "regression")
    for fields in ({"task": "single_label"}, {"num_classes": 3}, {"num_classes": 0}):
        model = VisionTransformer.from_preset(tmp_path / "in", **fields, load_weights=False)
        assert model.task == "single_label"


def write_encoder(folder, crop):
    """A DINOv2 of images of 28 pixels with a processor of another size, and its model."""
    model = random_transformers("Dinov2Model", **VISION | {"image_size": 28})
    model.save_pretrained(folder)
    sizes = {"size": {"shortest_edge": 23}, "crop_size": {"height": crop, "width": crop}}
    transformers.BitImageProcessor(**sizes).save_pretrained(folder)
    return model


@pytest.mark.on_backend("torch", "jax")
@pytest.mark.parametrize(("crop", "sides"), [(18, (43, 64)), (20, (64, 43)), (20, (19, 23))])
def test_features_of_a_folder_are_those_at_the_processors_size(crop, sides, tmp_path):
    """Prepared, resized and encoded as transformers does; pixels that fill no patch are dropped."""
    theirs = write_encoder(tmp_path, crop)
    photo = np.random.default_rng(0).integers(0, 256, (*sides, 3), dtype="uint8")
    model = VisionTransformer.from_preset(tmp_path)
    assert model.config.image_size == model.preprocessor.image_size == (crop, crop)
    prepare = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pixels = prepare(Image.fromarray(photo), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        want = theirs(pixels).last_hidden_state[:, 0].numpy()
    assert_close(model(model.preprocessor(photo)), want, 2e-6)


def test_convert_keeps_the_stored_positions_and_a_stated_size_comes_before_the_processors(tmp_path):
    """A library that resizes no positions needs a size."""
    write_encoder(tmp_path / "x", 20)
    for fields, size, grid in (({}, 20, 7), ({"image_size": 24}, 24, 6)):
        model = VisionTransformer.from_preset(tmp_path / "x", **fields, load_weights=False)
        assert (model.config.image_size, model.config.source_grid) == ((size, size), (grid, grid))
    keras_vit.convert(tmp_path / "x", tmp_path / "y", "transformers/dinov2")
    assert keras_vit.info(tmp_path / "y").config == keras_vit.info(tmp_path / "x").config
    with raises(CheckpointError, "grid", "image_size="):
        keras_vit.convert(tmp_path / "x", tmp_path / "z", "timm")


@pytest.mark.usefixtures("offline")
def test_a_model_of_timm_that_resizes_its_positions_takes_images_of_its_input_size(tmp_path):
    """timm takes the size of images from pretrained_cfg, that of positions from model_args."""
    folder = tmp_path / "x"
    checkpoints.save(random_tiny(block={"activation": "gelu"}), folder, "timm")
    edit_json(folder / "config.json", "pretrained_cfg", input_size=[3, 24, 40])
    assert keras_vit.info(folder).config.image_size == (16, 16)
    edit_json(folder / "config.json", "model_args", dynamic_img_size=True)
    model = VisionTransformer.from_preset(folder)
    assert model.config.image_size == model.preprocessor.image_size == (24, 40)
    theirs, images = timm.create_model(f"local-dir:{folder}", pretrained=True), normal(2, 24, 40, 3)
    with torch.no_grad():
        expected = theirs.eval()(channels_first(images)).numpy()
    assert_close(to_numpy(model(images)), expected, 1e-5)
