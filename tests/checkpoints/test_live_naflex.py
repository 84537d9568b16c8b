"""timm and transformers load what is written for images of unequal shape, and compute the same."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests.checkpoints.test_naflex import FOLDER, expected
from tests.golden import relative_error
from tests.helpers import only_under
from tests.words import edit_json

# The goldens are compared on every backend; here the libraries read files.
only_under("torch")
from tests.live import timm, torch, transformers  # noqa: E402

pytestmark = pytest.mark.usefixtures("offline")


def written(name, folder, **fields):
    """The arrays of a case, and a folder that keras_vit wrote of it."""
    model = VisionTransformer.from_preset(FOLDER / name, **fields)
    checkpoints.save(model, folder / "x", keras_vit.info(FOLDER / name).family)
    return expected(name)[0], folder / "x"


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("timm_*.npz")))
def test_timm_computes_the_same_from_written_files(name, tmp_path):
    """`create_model("local-dir:...")` takes the arguments in `config.json`."""
    want, folder = written(name, tmp_path)
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    places = np.zeros((*want["mask"].shape, 2), "int64")
    for image, (rows, columns) in zip(places, want["shapes"], strict=True):
        image[: rows * columns] = np.argwhere(np.ones((rows, columns)))
    inputs = {"patches": want["patches"], "patch_coord": places, "patch_valid": want["mask"]}
    with torch.no_grad():
        found = model({name: torch.from_numpy(array) for name, array in inputs.items()})
    assert relative_error(found.numpy(), want["logits"]) <= 1e-6


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("timm_*.npz")))
def test_a_file_without_json_is_read_by_the_arguments_of_timm(name, tmp_path):
    """`read={"timm": ...}` and an image size take the place of `config.json`."""
    config = json.loads((FOLDER / name / "config.json").read_text())
    shutil.copy(FOLDER / name / "model.safetensors", tmp_path / "alone.safetensors")
    whole = VisionTransformer.from_preset(FOLDER / name)
    alone = VisionTransformer.from_preset(
        tmp_path / "alone.safetensors",
        read={"timm": {"model_name": config["architecture"], **config["model_args"]}},
        image_size=whole.config.image_size,
    )
    assert alone.config.source_grid == whole.config.source_grid
    assert alone.config.replace(position_grid=None) == whole.config
    for one, other in zip(alone.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_transformers_computes_the_same_from_written_files(tmp_path):
    """The model, and the processor with its patch size and limit."""
    want, folder = written("hf_siglip2", tmp_path)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    assert isinstance(model, transformers.Siglip2VisionModel)
    inputs = [torch.from_numpy(want[name]) for name in ("patches", "mask", "shapes")]
    with torch.no_grad():
        found = model(*inputs).pooler_output.numpy()
    assert relative_error(found, want["logits"]) <= 1e-6
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    assert type(processor).__name__.startswith("Siglip2ImageProcessor")
    assert (processor.patch_size, processor.max_num_patches) == (4, 25)


def test_a_tower_beside_its_text_reads_patches_of_any_shape(tmp_path):
    """The file of both towers gives the image features of `Siglip2Model`."""
    want, _ = expected("hf_siglip2")
    sizes = json.loads((FOLDER / "hf_siglip2" / "config.json").read_text())
    vision = {key: value for key, value in sizes.items() if isinstance(value, int)}
    text = {k: v for k, v in vision.items() if k not in ("patch_size", "num_patches")}
    model = transformers.Siglip2Model(
        transformers.Siglip2Config(
            vision_config=vision, text_config={**text, "vocab_size": 30, "projection_size": 24}
        )
    ).eval()
    model.save_pretrained(tmp_path)
    inputs = [torch.from_numpy(want[name]) for name in ("patches", "mask", "shapes")]
    with torch.no_grad():
        features = model.get_image_features(*inputs)
    features = features if torch.is_tensor(features) else features.pooler_output
    ours = VisionTransformer.from_preset(tmp_path)
    batch = ours.preprocessor.pack(want["patches"], want["shapes"], want["mask"])
    assert relative_error(ours.predict(batch, verbose=0), features.numpy()) <= 1e-5


@pytest.mark.parametrize("limit", [36, 10, 7])
def test_the_limit_of_the_processor_is_that_of_the_model(limit, tmp_path):
    """The processor may allow more or fewer patches than there are positions, 25 here."""
    folder = shutil.copytree(FOLDER / "hf_siglip2", tmp_path / "theirs")
    edit_json(folder / "preprocessor_config.json", max_num_patches=limit)
    _, pictures = expected("hf_siglip2")
    theirs = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    given = theirs(images=pictures, return_tensors="pt")
    with torch.no_grad():
        want = transformers.AutoModel.from_pretrained(folder).eval()(**given).pooler_output
    model = VisionTransformer.from_preset(folder)
    prepared = model.preprocessor(pictures)
    assert prepared.shape[1] == limit
    assert np.abs(prepared[..., :-2] - given["pixel_values"].numpy()).max() <= 1.01 * 2 / 255
    packed = model.preprocessor.pack(
        given["pixel_values"], given["spatial_shapes"], given["pixel_attention_mask"]
    )
    np.testing.assert_array_equal(prepared[..., -2:], packed[..., -2:])
    assert relative_error(model.predict(packed, verbose=0), want.numpy()) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", keras_vit.info(folder).family)
    assert VisionTransformer.from_preset(tmp_path / "ours").config == model.config


@pytest.mark.parametrize("changed", [{}, {"attn_pool_num_heads": 1, "attn_pool_mlp_ratio": 1.5}])
def test_attention_pooling_of_other_sizes_gives_the_same_both_ways(changed, tmp_path):
    """The arrays do not tell the number of heads."""
    sizes = {"patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3, **changed}
    arguments = {**sizes, "pos_embed_grid_size": (3, 3)}
    theirs = timm.create_model("naflexvit_base_patch16_map", num_classes=3, **arguments).eval()
    torch.nn.init.normal_(theirs.head.weight)
    timm.models.save_for_hf(theirs, tmp_path / "a", model_args=arguments, safe_serialization=True)
    places = np.argwhere(np.ones((2, 4)))[None]
    patches = np.random.default_rng(0).standard_normal((1, 8, 48)).astype("float32")
    inputs = {"patches": patches, "patch_coord": places, "patch_valid": np.ones((1, 8), bool)}
    inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}
    with torch.no_grad():
        want = theirs(inputs).numpy()
    ours = VisionTransformer.from_preset(tmp_path / "a", image_size=12)
    packed = ours.preprocessor.pack(patches, [(2, 4)])
    assert relative_error(ours.predict(packed, verbose=0), want) <= 1e-5
    checkpoints.save(ours, tmp_path / "b", "timm/naflex")
    again = timm.create_model(f"local-dir:{tmp_path / 'b'}", pretrained=True).eval()
    with torch.no_grad():
        assert relative_error(again(inputs).numpy(), want) <= 1e-6
