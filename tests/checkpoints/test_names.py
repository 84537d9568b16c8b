"""Files in the names of other code: Facebook's, open_clip's, TimmWrapper's, TensorFlow's."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests.checkpoints.files import DATA, arrays_of, find, refused, write_arrays
from tests.golden import FAMILIES as FOLDER
from tests.golden import relative_error
from tests.plain import edit_json

HEADS = {"num_heads": 3}


def test_files_in_facebooks_names_are_told_apart_and_lack_what_the_pre_training_alone_reads():
    """DINO's names are those of timm; `tests/checkpoints/test_parity.py` compares the outputs."""
    found = {n: keras_vit.info(find(f"px_facebook_{n}.safetensors"), **HEADS) for n in FACEBOOKS}
    assert {name: info.family for name, info in found.items()} == FACEBOOKS
    assert "pretraining" in found["mae"].ignored["mask_token"]
    assert "decoder" in found["mae"].ignored["decoder_norm.weight"]


FACEBOOKS = {"dinov2": "facebook", "dinov2_swiglu": "facebook", "mae": "facebook", "dino": "timm"}


def test_a_file_of_open_clip_needs_its_gelu_or_its_config(tmp_path):
    """The GELU decides the output, so it is not guessed; the epsilon stays at open_clip's 1e-5."""
    path, block = find("px_open_clip_quickgelu.safetensors"), {"activation": "gelu_tanh"}
    assert keras_vit.info(path, **HEADS, block=block).config.block.epsilon == 1e-5
    tower = {"image_size": 16, "layers": 2, "width": 24, "head_width": 8, "patch_size": 4}
    content = {"model_cfg": {"embed_dim": 10, "quick_gelu": True, "vision_cfg": tower}}
    content["preprocess_cfg"] = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    shutil.copy(path, tmp_path / "open_clip_model.safetensors")
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content))
    info = keras_vit.info(tmp_path)
    assert (info.config.num_heads, info.config.block.activation) == (3, "quick_gelu")
    assert (info.config.projection_size, info.protocol["mean"]) == (10, [0.1, 0.2, 0.3])
    edit_json(tmp_path / "open_clip_config.json", "model_cfg", "vision_cfg", pool_type="avg")
    refused(tmp_path, "pool_type='avg'")


def test_a_timm_wrapper_has_the_classes_of_its_arrays_and_the_parts_of_its_architecture(tmp_path):
    """config.json may state another number; null leaves an argument to the architecture.

    transformers calls `timm.create_model`, which leaves it out; timm's own loading does not.
    """
    folder = shutil.copytree(FOLDER / "px_wrapper_classifier", tmp_path / "x")
    info = keras_vit.info(folder)
    assert (info.family, info.prefix, info.config.num_classes) == ("timm", "timm_model.", 5)
    edit_json(folder / "config.json", "model_args", act_layer=None, pre_norm=False)
    for kind, activation in (("timm_wrapper", "quick_gelu"), (None, "gelu")):
        name = "vit_base_patch16_clip_quickgelu_224"
        edit_json(folder / "config.json", architecture=name, model_type=kind)
        assert keras_vit.info(folder).config.block.activation == activation


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("hf_deit_model", 1e-12), ("hf_msn_classifier", 1e-6), ("hf_beit_model_shared", 1e-12)],
)
def test_a_file_of_transformers_alone_has_the_epsilon_of_its_class(name, epsilon, tmp_path):
    """MSN's classifier is told from ViT's by its blocks, which transformers 5 writes at the top."""
    file = write_arrays(tmp_path / "x.safetensors", ("", arrays_of(name)))
    assert keras_vit.info(file, **HEADS).config.block.epsilon == epsilon


@pytest.mark.parametrize("file", (DATA / "formats").glob("*.npz"), ids=lambda path: path.stem)
def test_a_folder_of_tensorflow_gives_the_outputs_of_the_library(file):
    """Within 1e-5 of the largest value; the file named alone is the same model by its JSON."""
    with np.load(file) as arrays:
        (value,) = (array for name, array in arrays.items() if name != "image")
        image = arrays["image"]
    folder = file.with_suffix("")
    model = VisionTransformer.from_preset(folder)
    assert relative_error(model.predict(image, verbose=0), value) <= 1e-5
    alone, whole = keras_vit.info(folder / "tf_model.h5"), keras_vit.info(folder)
    assert (alone.family, alone.config) == (whole.family, whole.config)
