"""Images of unequal shape in one batch, as SigLIP 2 and timm's NaFlexViT compute them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.models.inference import run
from tests.golden import relative_error

FOLDER = Path(__file__).parents[1] / "data" / "naflex"
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


@pytest.mark.parametrize("name", CASES)
def test_files_are_written_back_as_they_were_read(name, tmp_path):
    """Every array bit by bit; and the configuration and the preparation of images."""
    if name == "hf_siglip2_classifier":
        pytest.skip("the class of transformers has a pooling head, which it does not read")
    model = VisionTransformer.from_preset(FOLDER / name)
    checkpoints.save(model, tmp_path / "x", keras_vit.info(FOLDER / name).family)
    files = [path / "model.safetensors" for path in (FOLDER / name, tmp_path / "x")]
    assert files[0].read_bytes() == files[1].read_bytes()
    again = VisionTransformer.from_preset(tmp_path / "x")
    assert again.config == model.config
    assert again.preprocessor == model.preprocessor
