"""A model takes images of its processor's size, where the library's class resizes its positions."""

import json

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import Preprocessor, VisionTransformer, checkpoints, cli
from keras_vit.errors import CheckpointError
from tests.golden import relative_error
from tests.helpers import normal, random_tiny, to_numpy
from tests.live import random_transformers, timm, torch, transformers
from tests.words import edit_json, raises

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 24, "image_size": 28, "patch_size": 4}
FED = (20, 20)


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
    """The class token by transformers, of a photograph as its release prepares it."""
    prepare = transformers.AutoImageProcessor.from_pretrained(folder)
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
@pytest.mark.parametrize(
    ("name", "size", "grid"),
    [
        ("Dinov2", FED, (7, 7)),
        ("Dinov2WithRegisters", FED, (7, 7)),
        ("DINOv3ViT", FED, None),
        ("ViT", (28, 28), None),
    ],
)
def test_the_processors_size_counts_where_the_class_resizes_its_positions(
    name, size, grid, tmp_path
):
    """The grid of the stored positions stays; DINOv3 has none, and ViT's class keeps its own."""
    written(tmp_path, name, dict(zip(("height", "width"), FED, strict=True)))
    config = keras_vit.info(tmp_path).config
    assert (config.image_size, config.position_grid) == (size, grid)
    assert Preprocessor.from_preset(tmp_path).image_size == size
    assert Preprocessor.from_preset(tmp_path, 24).image_size == (24, 24)


@pytest.mark.without_backend
def test_info_says_both_sizes(dinov2, capsys):
    assert cli.main(["info", str(dinov2[0]), "--json"]) == 0
    resolution = json.loads(capsys.readouterr().out)["resolution"]
    assert resolution == "20x20, with positions of 7x7 patches"


@pytest.mark.without_backend
def test_a_processor_that_states_no_whole_size_leaves_the_stored_one(dinov2):
    folder, _ = dinov2
    edit_json(folder / "preprocessor_config.json", do_center_crop=False)
    assert keras_vit.info(folder).config.image_size == (28, 28)
    (folder / "preprocessor_config.json").unlink()
    assert keras_vit.info(folder).config.image_size == (28, 28)


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("load_weights", [True, False])
def test_a_stated_size_comes_before_the_processors(dinov2, load_weights):
    """The positions are then resized once."""
    for size, grid in ((24, (6, 6)), (28, (7, 7))):
        model = VisionTransformer.from_preset(dinov2[0], image_size=size, load_weights=load_weights)
        assert (model.config.image_size, model.config.source_grid) == ((size, size), grid)


@pytest.mark.on_one_backend("torch")
def test_pixels_that_fill_no_patch_are_dropped_as_by_the_class(tmp_path):
    theirs = written(tmp_path, "Dinov2", {"shortest_edge": 23}, crop=18)
    model = VisionTransformer.from_preset(tmp_path)
    photo = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype="uint8")
    found = to_numpy(model(model.preprocessor(photo)))
    assert relative_error(found, features(theirs, tmp_path, photo)) <= 2e-6


@pytest.mark.without_backend
def test_convert_keeps_the_stored_positions_and_the_size_of_images(dinov2, tmp_path):
    """A library that resizes no positions needs a size."""
    folder, _ = dinov2
    keras_vit.convert(folder, tmp_path / "x", "transformers/dinov2")
    assert keras_vit.info(tmp_path / "x").config == keras_vit.info(folder).config
    before, after = (
        json.loads((place / "preprocessor_config.json").read_text())
        for place in (folder, tmp_path / "x")
    )
    assert all(after[key] == before[key] for key in ("size", "crop_size"))
    with raises(CheckpointError, "positions of another grid", "image_size="):
        keras_vit.convert(folder, tmp_path / "y", "timm")
    keras_vit.convert(folder, tmp_path / "y", "timm", image_size=24)
    assert keras_vit.info(tmp_path / "y").config.grid == (6, 6)


@pytest.mark.usefixtures("offline")
def test_a_model_of_timm_that_resizes_its_positions_takes_images_of_its_input_size(tmp_path):
    """timm takes the size of images from pretrained_cfg, that of positions from model_args."""
    checkpoints.save(random_tiny(block={"activation": "gelu"}), tmp_path / "x", "timm")
    edit_json(tmp_path / "x" / "config.json", "pretrained_cfg", input_size=[3, 24, 40])
    assert keras_vit.info(tmp_path / "x").config.image_size == (16, 16)
    edit_json(tmp_path / "x" / "config.json", "model_args", dynamic_img_size=True)
    model = VisionTransformer.from_preset(tmp_path / "x")
    assert model.config.image_size == model.preprocessor.image_size == (24, 40)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'x'}", pretrained=True).eval()
    images = normal(2, 24, 40, 3)
    with torch.no_grad():
        expected = theirs(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
    assert relative_error(to_numpy(model(images)), expected) <= 1e-5
