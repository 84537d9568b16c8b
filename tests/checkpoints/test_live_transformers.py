"""What transformers leaves out of its JSON, and states in it, of a model and its processor."""

import json

import pytest

import keras_vit
from tests.checkpoints.cases import TOWERS, VISION
from tests.checkpoints.files import arrays_of, copy, refused, write_arrays
from tests.checkpoints.headers import write_sparse
from tests.live import random_transformers, torch, transformers

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from transformers.core_model_loading import revert_weight_conversion  # noqa: E402


@pytest.fixture
def save(tmp_path):
    """Saves a model of `VISION`'s sizes."""

    def save_model(kind, **fields):
        random_transformers(kind, **VISION, **fields).save_pretrained(tmp_path)

    return save_model


STATED = ("ViT", "DeiT", "DPT", "Flava", "IJepa", "Beit", "Data2Vec", "Dinov2", "DINOv3")
"""Classes whose config.json has to state the number of heads."""


OMITTING = [c for c in TOWERS if not c.kind.startswith(STATED) and "vision_config" not in c.fields]


@pytest.mark.parametrize("case", OMITTING, ids=str)
def test_the_defaults_of_the_class_fill_what_config_json_omits(case, tmp_path):
    """A release writes only what differs from the defaults of its class."""
    kind = getattr(transformers, case.kind)
    config = kind.config_class(**case.fields, num_hidden_layers=2, architectures=[case.kind])
    with torch.device("meta"):
        theirs = kind(config)
    arrays = revert_weight_conversion(theirs, theirs.state_dict())
    shapes = {name: ["F32", list(array.shape)] for name, array in arrays.items()}
    write_sparse(tmp_path / "model.safetensors", shapes)
    theirs.config.save_pretrained(tmp_path)
    whole = keras_vit.info(tmp_path).config
    names = {*case.fields, "model_type", "architectures", "num_hidden_layers"}
    content = json.loads((tmp_path / "config.json").read_text())
    few = {key: value for key, value in content.items() if key in names}
    (tmp_path / "config.json").write_text(json.dumps(few))
    found = keras_vit.info(tmp_path).config
    initial = {"layer_scale": whole.block.layer_scale}  # only new models have this value
    assert found.replace(block=initial) == whole


def test_a_pooler_beside_a_classifier_is_not_read_as_a_layer_of_it(tmp_path):
    """transformers' classifier reads the class token, and leaves the pooler out too."""
    folder, pooler = copy("hf_classifier", tmp_path), {"vit.pooler.dense.weight": (24, 24)}
    write_arrays(folder / "model.safetensors", ("", arrays_of("hf_classifier")), ("", pooler))
    info = keras_vit.info(folder)
    assert info.config.representation_size is None
    assert list(info.ignored) == list(pooler)


@pytest.mark.parametrize("depth", [3, 9])
def test_a_tower_is_sought_at_few_levels(depth, save, tmp_path):
    """A hostile file of many or deep objects costs no minutes, and names no family."""
    save("SiglipVisionModel", vision_use_head=False)
    config = json.loads((tmp_path / "config.json").read_text())
    for _ in range(depth):
        config = {"model_type": "whole", "part": config}
    config |= {str(k): {"model_type": "x"} for k in range(99)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if depth == 3:
        assert keras_vit.info(tmp_path).family == "transformers/siglip"
    else:
        refused(tmp_path, "model_type='whole'")


def test_images_of_tipsv2_are_those_of_its_own_processor(save, tmp_path):
    """`Tipsv2ImageProcessor` resizes tensors by the bilinear filter, and has no mean and no std."""
    save("Tipsv2VisionModel")
    own = {"name": "transformers", "resize": "tensor", "mean": 0.0, "std": 1.0}
    assert keras_vit.info(tmp_path).protocol == own


def test_radios_own_mean_and_std_follow_those_of_its_processor(save, tmp_path):
    save("RadioModel", max_img_size=32, norm_mean=[0.5, 0.4, 0.3], norm_std=[0.2, 0.3, 0.4])
    own = {"image_processor_type": "CLIPImageProcessor", "size": {"height": 24, "width": 24}}
    own |= {"do_center_crop": False, "do_normalize": True, "image_mean": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(own))
    info = keras_vit.info(tmp_path)
    std = 0.26862954  # CLIP's
    found = info.protocol["mean"][0], info.protocol["std"][0], info.config.image_size
    assert found == (round(0.5 + std * 0.5, 9), round(std * 0.2, 9), (24, 24))
