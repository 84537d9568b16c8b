"""A model takes images of its processor's size, where the library's class resizes its positions."""

import json

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import Preprocessor, VisionTransformer, checkpoints, cli
from keras_vit.errors import CheckpointError
from tests.checkpoints.cases import VISION
from tests.golden import relative_error
from tests.helpers import random_tiny, to_numpy
from tests.live import channels_first, random_transformers, timm, torch, transformers
from tests.plain import edit_json, normal, raises


def written(folder, name, size, crop=None):
    """A folder as transformers writes it, with a processor of a size, and its model."""
    model = random_transformers(f"{name}Model", **VISION | {"image_size": 28})
    model.save_pretrained(folder)
    more = {} if crop is None else {"crop_size": {"height": crop, "width": crop}}
    kind = "DINOv3ViT" if name == "DINOv3ViT" else "ViT" if crop is None else "Bit"
    getattr(transformers, f"{kind}ImageProcessor")(size=size, **more).save_pretrained(folder)
    return model


@pytest.fixture
def dinov2(tmp_path):
    """The folder of a DINOv2 of 28 pixels whose processor makes images of 20."""
    written(tmp_path, "Dinov2", {"shortest_edge": 23}, crop=20)
    return tmp_path


@pytest.mark.on_backend("torch", "jax")
@pytest.mark.parametrize("crop", [18, 20])
@pytest.mark.parametrize("sides", [(43, 64), (64, 43), (19, 23)])
def test_features_of_a_folder_are_those_at_the_processors_size(crop, sides, tmp_path):
    """Prepared, resized and encoded as transformers does; pixels that fill no patch are dropped."""
    theirs = written(tmp_path, "Dinov2", {"shortest_edge": 23}, crop)
    photo = np.random.default_rng(0).integers(0, 256, (*sides, 3), dtype="uint8")
    model = VisionTransformer.from_preset(tmp_path)
    assert model.config.image_size == model.preprocessor.image_size == (crop, crop)
    prepare = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pixels = prepare(Image.fromarray(photo), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        want = theirs(pixels).last_hidden_state[:, 0].numpy()
    assert relative_error(to_numpy(model(model.preprocessor(photo))), want) <= 2e-6


@pytest.mark.parametrize("name", ["Dinov2", "Dinov2WithRegisters", "DINOv3ViT", "ViT"])
def test_the_processors_size_counts_where_the_class_resizes_its_positions(name, tmp_path):
    """The grid of the stored positions stays; DINOv3 has none, and ViT's class keeps its own."""
    written(tmp_path, name, {"height": 20, "width": 20})
    size = (28, 28) if name == "ViT" else (20, 20)
    config = keras_vit.info(tmp_path).config
    assert (config.image_size, config.grid) == (size, (size[0] // 4,) * 2)
    assert config.position_grid == ((7, 7) if "Dinov2" in name else None)
    assert Preprocessor.from_preset(tmp_path).image_size == size
    assert Preprocessor.from_preset(tmp_path, 24).image_size == (24, 24)


def test_info_says_both_sizes_and_the_stored_one_without_a_whole_size(dinov2, capsys):
    assert cli.main(["info", str(dinov2), "--json"]) == 0
    resolution = json.loads(capsys.readouterr().out)["resolution"]
    assert "20x20" in resolution and "7x7" in resolution
    edit_json(dinov2 / "preprocessor_config.json", do_center_crop=False)
    assert keras_vit.info(dinov2).config.image_size == (28, 28)


def test_a_stated_size_comes_before_the_processors(dinov2):
    """The positions are then resized once."""
    for size, grid in ((24, (6, 6)), (28, (7, 7))):
        config = VisionTransformer.from_preset(dinov2, image_size=size, load_weights=False).config
        assert (config.image_size, config.source_grid) == ((size, size), grid)


def test_convert_keeps_the_stored_positions_and_the_size_of_images(dinov2, tmp_path):
    """A library that resizes no positions needs a size."""
    out = tmp_path / "x"
    keras_vit.convert(dinov2, out, keras_vit.info(dinov2).family)
    assert keras_vit.info(out).config == keras_vit.info(dinov2).config
    assert Preprocessor.from_preset(out) == Preprocessor.from_preset(dinov2)
    with raises(CheckpointError, "grid", "image_size="):
        keras_vit.convert(dinov2, tmp_path / "y", "timm")
    keras_vit.convert(dinov2, tmp_path / "y", "timm", image_size=24)
    assert keras_vit.info(tmp_path / "y").config.grid == (6, 6)


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
    assert relative_error(to_numpy(model(images)), expected) <= 1e-5
