"""Vision towers of other classes of transformers compute what the library computes."""

import keras
import numpy as np
import pytest

from keras_vit import checkpoints
from keras_vit.inference import run
from tests import torchvision_shim  # noqa: F401  transformers imports torchvision

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the arithmetic is that of the families' goldens"
)

VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
VISION |= {"num_attention_heads": 4, "image_size": 32, "patch_size": 16}
TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
TEXT |= {"num_attention_heads": 2, "vocab_size": 64, "max_position_embeddings": 16}
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype("float32")


def two_towers(name):
    config = getattr(transformers, f"{name}Config")
    made = config(vision_config=VISION, text_config=TEXT, projection_dim=24)
    return getattr(transformers, f"{name}Model")(made)


def tokens_alone(package, name):
    module = __import__(f"transformers.models.{package}.configuration_{package}", fromlist=["x"])
    config = getattr(module, f"{name}VisionConfig")(**VISION)
    return getattr(transformers, f"{name}VisionTransformer")(config)


def alone(name):
    config = getattr(transformers, f"{name}VisionConfig")(**VISION)
    return getattr(transformers, f"{name}VisionModel")(config)


MODELS = {
    "metaclip_2": (lambda: two_towers("MetaClip2"), "block_1"),
    "chinese_clip": (lambda: two_towers("ChineseCLIP"), "block_1"),
    "altclip": (lambda: two_towers("AltCLIP"), "block_1"),
    "owlvit": (lambda: two_towers("OwlViT"), "block_1"),
    "git": (
        lambda: transformers.GitModel(transformers.GitConfig(vision_config=VISION, **TEXT)),
        "encoder_norm",
    ),
    "blip": (lambda: alone("Blip"), "encoder_norm"),
    "blip_2": (lambda: alone("Blip2"), "encoder_norm"),
    "idefics3": (lambda: tokens_alone("idefics3", "Idefics3"), "encoder_norm"),
    "smolvlm": (lambda: tokens_alone("smolvlm", "SmolVLM"), "encoder_norm"),
}


@pytest.mark.parametrize("family", MODELS)
def test_the_tokens_are_those_of_the_library(family, tmp_path):
    """Read from the whole model's folder, or from the tower's, with random weights."""
    make, stage = MODELS[family]
    torch.manual_seed(0)
    theirs = make().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    theirs.save_pretrained(tmp_path)
    tower = theirs.image_encoder if family == "git" else theirs
    tower = getattr(tower, "vision_model", tower)
    with torch.no_grad():
        expected = tower(pixel_values=torch.from_numpy(IMAGES)).last_hidden_state.numpy()
    model = checkpoints.load(tmp_path)
    tokens = run(model, IMAGES.transpose(0, 2, 3, 1), [stage])[stage]
    assert np.abs(tokens - expected).max() <= 1e-5 * np.abs(expected).max()
    assert checkpoints.inspect(tmp_path).dialect == f"transformers/{family}"


@pytest.mark.parametrize("family", ["MetaClip2", "ChineseCLIP", "AltCLIP"])
def test_the_embedding_is_the_projection_of_the_library(family, tmp_path):
    theirs = two_towers(family).eval()
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = theirs.get_image_features(pixel_values=torch.from_numpy(IMAGES))
    expected = getattr(expected, "pooler_output", expected).numpy()
    found = run(checkpoints.load(tmp_path), IMAGES.transpose(0, 2, 3, 1))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
