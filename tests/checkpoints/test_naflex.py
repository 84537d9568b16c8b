"""Images of unequal shape in one batch, as SigLIP 2 and timm's NaFlexViT compute them.

The goldens are compared on every backend; on torch the libraries read files too.
"""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.models.inference import run
from tests.checkpoints.files import DATA, assert_comes_back
from tests.golden import relative_error
from tests.live import load_folder, randomised, timm, torch, transformers
from tests.plain import edit_json

on_torch = pytest.mark.on_backend("torch")
pytestmark = pytest.mark.usefixtures("offline")

FOLDER = DATA / "naflex"
CASES = sorted(path.stem for path in FOLDER.glob("*.npz"))


def expected(name):
    """The arrays of a case, and its pictures as Pillow images."""
    with np.load(FOLDER / f"{name}.npz") as file:
        want = dict(file)
    pictures = [Image.fromarray(want[key]) for key in sorted(want) if key.startswith("picture")]
    return want, pictures


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_unequal_images_equals_the_library(name):
    """Logits, or pooled features, and every token that is no padding, within 1e-5."""
    want, _ = expected(name)
    model = VisionTransformer.from_preset(FOLDER / name)
    assert model.config.stem.is_packed
    assert len(set(want["mask"].sum(axis=1))) > 1  # padding is part of the batch
    batch = model.preprocessor.pack(want["patches"], want["shapes"], want["mask"])
    names = ["encoder_norm", "logits" if model.config.num_classes else "pre_logits"]
    if model.config.pool.norm == "after":
        names[0] = f"block_{model.config.num_layers - 1}"
    found = run(model, batch, names)
    assert relative_error(found[names[1]], want["logits"]) <= 1e-5
    if "encoded" in want:
        mask = want["mask"].astype(bool)
        skip = model.config.num_prefix_tokens
        tokens = found[names[0]]
        assert relative_error(tokens[:, skip:][mask], want["encoded"][:, skip:][mask]) <= 1e-5
        assert skip == 0 or relative_error(tokens[:, :skip], want["encoded"][:, :skip]) <= 1e-5


@pytest.mark.parametrize("name", CASES)
def test_pictures_are_prepared_as_by_the_library(name):
    """The same patches in the same places, within a step of 8 bits that rounding may differ by."""
    want, pictures = expected(name)
    preprocessor = VisionTransformer.from_preset(FOLDER / name).preprocessor
    ours = preprocessor(pictures)
    theirs = preprocessor.pack(want["patches"], want["shapes"], want["mask"])
    np.testing.assert_array_equal(ours[..., -2:], theirs[..., -2:])
    assert np.abs(ours - theirs).max() <= 1.01 * 2 / 255


@pytest.mark.parametrize("name", CASES)
def test_the_weights_serve_images_of_one_size_too(name):
    """A plain stem computes the same for images of the stored size."""
    packed = VisionTransformer.from_preset(FOLDER / name)
    plain = VisionTransformer.from_preset(FOLDER / name, stem={"kind": "none"})
    image = np.random.default_rng(0).uniform(-1, 1, (2, *plain.config.image_size, 3))
    image = image.astype("float32")
    assert relative_error(run(packed, packed.preprocessor.stack(image)), run(plain, image)) <= 1e-5


def outputs(model, batch):
    """What a model of timm, or of transformers, computes of a case's patches."""
    tensors = {name: torch.from_numpy(batch[name]) for name in ("patches", "mask", "shapes")}
    with torch.no_grad():
        if isinstance(model, transformers.PreTrainedModel):
            compute = getattr(model, "get_image_features", model)
            return compute(*tensors.values()).pooler_output.numpy()
        places = np.zeros((*batch["mask"].shape, 2), "int64")
        for image, (rows, columns) in zip(places, batch["shapes"], strict=True):
            image[: rows * columns] = np.argwhere(np.ones((rows, columns)))
        places = {"patch_coord": torch.from_numpy(places), "patch_valid": tensors["mask"].bool()}
        return model.eval()({"patches": tensors["patches"], **places}).numpy()


def predict(model, batch):
    packed = model.preprocessor.pack(batch["patches"], batch["shapes"], batch["mask"])
    return model.predict(packed, verbose=0)


@on_torch
@pytest.mark.parametrize("name", [name for name in CASES if "classifier" not in name])
def test_written_files_are_those_that_were_read_and_the_library_computes_the_same(name, tmp_path):
    """Their JSON has the arguments of timm, and the patch size and limit of the processor."""
    model, out = VisionTransformer.from_preset(FOLDER / name), tmp_path / "x"
    assert_comes_back(FOLDER / name, tmp_path, model)
    assert VisionTransformer.from_preset(out).preprocessor == model.preprocessor
    want, _ = expected(name)
    assert relative_error(outputs(load_folder(out), want), want["logits"]) <= 1e-6
    if name.startswith("hf"):
        processor = transformers.AutoImageProcessor.from_pretrained(out)
        assert (processor.patch_size, processor.max_num_patches) == (4, 25)


@on_torch
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("timm")])
def test_a_file_without_json_is_read_by_the_arguments_of_timm(name, tmp_path):
    """`read={"timm": ...}` and an image size take the place of `config.json`."""
    config = json.loads((FOLDER / name / "config.json").read_text())
    file = shutil.copy(FOLDER / name / "model.safetensors", tmp_path)
    read = {"timm": {"model_name": config["architecture"], **config["model_args"]}}
    whole = VisionTransformer.from_preset(FOLDER / name, load_weights=False).config
    alone = VisionTransformer.from_preset(
        file, read=read, image_size=whole.image_size, load_weights=False
    ).config
    assert alone.source_grid == whole.source_grid
    assert alone.replace(position_grid=None) == whole


@on_torch
def test_a_tower_beside_its_text_reads_patches_of_any_shape(tmp_path):
    """The file of both towers gives the image features of `Siglip2Model`."""
    want, _ = expected("hf_siglip2")
    sizes = json.loads((FOLDER / "hf_siglip2" / "config.json").read_text())
    vision = {key: value for key, value in sizes.items() if isinstance(value, int)}
    text = {k: v for k, v in vision.items() if k not in ("patch_size", "num_patches")}
    text |= {"vocab_size": 30, "projection_size": 24}
    config = transformers.Siglip2Config(vision_config=vision, text_config=text)
    theirs = randomised(transformers.Siglip2Model(config))
    theirs.save_pretrained(tmp_path)
    ours = VisionTransformer.from_preset(tmp_path)
    assert relative_error(predict(ours, want), outputs(theirs, want)) <= 1e-5


@on_torch
@pytest.mark.parametrize("limit", [36, 10, 7])
def test_the_limit_of_the_processor_is_that_of_the_model(limit, tmp_path):
    """The processor may allow more or fewer patches than there are positions, 25 here."""
    folder = shutil.copytree(FOLDER / "hf_siglip2", tmp_path / "theirs")
    edit_json(folder / "preprocessor_config.json", max_num_patches=limit)
    _, pictures = expected("hf_siglip2")
    theirs = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    given = theirs(images=pictures, return_tensors="np")
    names = {"patches": "pixel_values", "mask": "pixel_attention_mask", "shapes": "spatial_shapes"}
    batch = {name: np.asarray(given[key]) for name, key in names.items()}
    model = VisionTransformer.from_preset(folder)
    prepared = model.preprocessor(pictures)
    assert prepared.shape[1] == limit
    assert np.abs(prepared[..., :-2] - batch["patches"]).max() <= 1.01 * 2 / 255
    assert relative_error(predict(model, batch), outputs(load_folder(folder), batch)) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", keras_vit.info(folder).family)
    assert VisionTransformer.from_preset(tmp_path / "ours").config == model.config


@on_torch
@pytest.mark.parametrize("changed", [{}, {"attn_pool_num_heads": 1, "attn_pool_mlp_ratio": 1.5}])
def test_attention_pooling_of_other_sizes_gives_the_same_both_ways(changed, tmp_path):
    """The arrays do not tell the number of heads."""
    sizes = {"patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3, **changed}
    arguments = {**sizes, "pos_embed_grid_size": (3, 3)}
    name = "naflexvit_base_patch16_map"
    theirs = randomised(timm.create_model(name, num_classes=3, **arguments))
    timm.models.save_for_hf(theirs, tmp_path / "a", model_args=arguments, safe_serialization=True)
    patches = np.random.default_rng(0).standard_normal((1, 8, 48)).astype("float32")
    batch = {"patches": patches, "mask": np.ones((1, 8), bool), "shapes": np.array([[2, 4]])}
    ours = VisionTransformer.from_preset(tmp_path / "a", image_size=12)
    want = outputs(theirs, batch)
    assert relative_error(predict(ours, batch), want) <= 1e-5
    checkpoints.save(ours, tmp_path / "b", "timm/naflex")
    assert relative_error(outputs(load_folder(tmp_path / "b"), batch), want) <= 1e-6
