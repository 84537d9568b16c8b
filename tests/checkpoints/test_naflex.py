"""Images of unequal shape in one batch: their preparation, and the limits of a checkpoint.

`test_cases` compares the outputs.
"""

import shutil

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests.checkpoints.references import run_naflex
from tests.golden import CASES, NAFLEX, expected, relative_error
from tests.live import load_folder, transformers
from tests.plain import edit_json

pytestmark = pytest.mark.usefixtures("offline")

NAMES = [name for name, case in CASES.items() if case["family"] == "naflex"]


def pictures_of(want):
    return [Image.fromarray(want[key]) for key in sorted(want) if key.startswith("picture")]


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_prepared_as_by_the_library(name):
    """The same patches in the same places, within a step of 8 bits that rounding may differ by."""
    want = expected(name)
    preprocessor = VisionTransformer.from_preset(NAFLEX / name).preprocessor
    ours = preprocessor(pictures_of(want))
    theirs = preprocessor.pack(want["patches"], want["shapes"], want["mask"])
    np.testing.assert_array_equal(ours[..., -2:], theirs[..., -2:])
    assert np.abs(ours - theirs).max() <= 1.01 * 2 / 255


@pytest.mark.parametrize("limit", [36, 10, 7])
def test_the_limit_of_the_processor_is_that_of_the_model(limit, tmp_path):
    """The processor may allow more or fewer patches than there are positions, 25 here."""
    folder = shutil.copytree(NAFLEX / "hf_siglip2", tmp_path / "theirs")
    edit_json(folder / "preprocessor_config.json", max_num_patches=limit)
    pictures = pictures_of(expected("hf_siglip2"))
    theirs = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    given = theirs(images=pictures, return_tensors="np")
    names = {"patches": "pixel_values", "mask": "pixel_attention_mask", "shapes": "spatial_shapes"}
    batch = {name: np.asarray(given[key]) for name, key in names.items()}
    model = VisionTransformer.from_preset(folder)
    prepared = model.preprocessor(pictures)
    assert prepared.shape[1] == limit
    assert np.abs(prepared[..., :-2] - batch["patches"]).max() <= 1.01 * 2 / 255
    found = model.predict(model.preprocessor.pack(**batch), verbose=0)
    assert relative_error(found, run_naflex(load_folder(folder), batch)["logits"]) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", keras_vit.info(folder).family)
    assert VisionTransformer.from_preset(tmp_path / "ours").config == model.config
    again = transformers.AutoImageProcessor.from_pretrained(tmp_path / "ours", backend="pil")
    assert (again.patch_size, again.max_num_patches) == (4, limit)
