"""A model is loaded at the size that its library feeds, where the class resizes its positions."""

import json

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import Preprocessor, VisionTransformer, checkpoints, cli
from keras_vit.errors import ConfigError
from tests.golden import relative_error
from tests.helpers import normal, random_tiny, to_numpy
from tests.live import random_transformers, timm, torch, transformers
from tests.words import edit_json, raises

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 24, "image_size": 28, "patch_size": 4}
STORED, FED = (28, 28), (20, 20)


def written(folder, name, size, crop=None):
    """A folder as transformers writes it, with a processor of a size, and its model."""
    model = random_transformers(f"{name}Model", **SIZES)
    model.save_pretrained(folder)
    more = {} if crop is None else {"crop_size": {"height": crop, "width": crop}}
    kind = "DINOv3ViT" if name == "DINOv3ViT" else "ViT" if crop is None else "Bit"
    getattr(transformers, f"{kind}ImageProcessor")(size=size, **more).save_pretrained(folder)
    return model


@pytest.fixture
def dinov2(tmp_path):
    """The folder of a DINOv2 of 28 pixels whose processor makes images of 20."""
    model = written(tmp_path, "Dinov2", {"shortest_edge": 23}, crop=20)
    return tmp_path, model


def features(model, folder, photo):
    """The class token by transformers, of a photograph prepared by Pillow."""
    prepare = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = prepare(Image.fromarray(photo), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixels).last_hidden_state[:, 0].numpy()


@pytest.mark.on_one_backend("torch", "jax")
@pytest.mark.parametrize("sides", [(43, 64), (64, 43), (19, 23), (51, 51)])
def test_features_of_a_folder_are_those_at_the_processors_size(dinov2, sides):
    """Prepared, resized and encoded as transformers does from the same folder."""
    folder, theirs = dinov2
    photo = np.random.default_rng(0).integers(0, 256, (*sides, 3), dtype="uint8")
    model = VisionTransformer.from_preset(folder)
    assert model.config.image_size == model.preprocessor.image_size == FED
    found = to_numpy(model(model.preprocessor(photo)))
    assert relative_error(found, features(theirs, folder, photo)) <= 2e-6


@pytest.mark.without_backend
@pytest.mark.parametrize("name", ["Dinov2", "Dinov2WithRegisters", "DINOv3ViT"])
def test_the_processors_size_counts_where_the_class_resizes_its_positions(name, tmp_path, capsys):
    """`info` says both, and a stated size beats both."""
    written(tmp_path, name, dict(zip(("height", "width"), FED, strict=True)))
    info = keras_vit.info(tmp_path)
    assert (info.config.image_size, info.fed_size) == (STORED, FED)
    assert Preprocessor.from_preset(tmp_path).image_size == FED
    assert Preprocessor.from_preset(tmp_path, 24).image_size == (24, 24)
    assert keras_vit.info(tmp_path, image_size=24).fed_size is None
    assert cli.main(["info", str(tmp_path), "--json"]) == 0
    resolution = json.loads(capsys.readouterr().out)["resolution"]
    assert resolution.startswith("28x28 stored; 20x20 by its preprocessor_config.json")


@pytest.mark.without_backend
def test_a_class_that_keeps_its_positions_is_loaded_at_their_size(tmp_path):
    written(tmp_path, "ViT", dict(zip(("height", "width"), FED, strict=True)))
    info = keras_vit.info(tmp_path)
    assert (info.config.image_size, info.fed_size) == (STORED, None)
    assert Preprocessor.from_preset(tmp_path).image_size == STORED


@pytest.mark.without_backend
def test_a_processor_that_states_no_whole_size_leaves_the_stored_one(dinov2):
    folder, _ = dinov2
    path = folder / "preprocessor_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "do_center_crop": False}))
    assert keras_vit.info(folder).fed_size is None
    path.unlink()
    assert keras_vit.info(folder).fed_size is None


@pytest.mark.on_one_backend("torch")
def test_without_weights_and_with_a_stated_size_the_same_rule_holds(dinov2):
    folder, _ = dinov2
    assert VisionTransformer.from_preset(folder, load_weights=False).config.image_size == FED
    assert VisionTransformer.from_preset(folder, image_size=STORED).config.image_size == STORED
    assert VisionTransformer.from_preset(
        folder, image_size=24, load_weights=False
    ).config.image_size == (24, 24)


@pytest.mark.on_one_backend("torch")
def test_a_size_of_no_whole_patches_is_refused_with_a_fix_that_fits(tmp_path):
    """transformers drops the remainder of the last patch."""
    theirs = written(tmp_path, "Dinov2", {"shortest_edge": 23}, crop=18)
    with raises(ConfigError, "(18, 18) is not divisible", "crop_remainder=True"):
        VisionTransformer.from_preset(tmp_path)
    model = VisionTransformer.from_preset(tmp_path, crop_remainder=True)
    photo = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype="uint8")
    found = to_numpy(model(model.preprocessor(photo)))
    assert relative_error(found, features(theirs, tmp_path, photo)) <= 2e-6


@pytest.mark.without_backend
def test_convert_keeps_the_stored_positions_and_the_size_that_is_fed(dinov2, tmp_path):
    folder, _ = dinov2
    keras_vit.convert(folder, tmp_path / "x", "transformers/dinov2")
    info = keras_vit.info(tmp_path / "x")
    assert (info.config.image_size, info.fed_size) == (STORED, FED)
    before, after = (
        json.loads((place / "preprocessor_config.json").read_text())
        for place in (folder, tmp_path / "x")
    )
    assert all(after[key] == before[key] for key in ("size", "crop_size"))
    keras_vit.convert(folder, tmp_path / "y", "transformers/dinov2", image_size=24)
    info = keras_vit.info(tmp_path / "y")
    assert (info.config.image_size, info.fed_size) == ((24, 24), (24, 24))


@pytest.mark.usefixtures("offline")
def test_a_model_of_timm_that_resizes_its_positions_is_fed_its_input_size(tmp_path):
    """timm takes the size of images from pretrained_cfg, that of positions from model_args."""
    checkpoints.save(random_tiny(numerics={"gelu": "exact"}), tmp_path / "x", "timm")
    edit_json(tmp_path / "x" / "config.json", "pretrained_cfg", input_size=[3, 24, 40])
    assert keras_vit.info(tmp_path / "x").fed_size is None
    edit_json(tmp_path / "x" / "config.json", "model_args", dynamic_img_size=True)
    model = VisionTransformer.from_preset(tmp_path / "x")
    assert model.config.image_size == model.preprocessor.image_size == (24, 40)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'x'}", pretrained=True).eval()
    images = normal(2, 24, 40, 3)
    with torch.no_grad():
        expected = theirs(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
    assert relative_error(to_numpy(model(images)), expected) <= 1e-5
    keras_vit.convert(tmp_path / "x", tmp_path / "y", "timm")
    assert keras_vit.info(tmp_path / "y").config.image_size == (16, 16)
