"""Embeddings of words as a head: the zero-shot logits of transformers' CLIP and SigLIP."""

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit import VisionTransformer
from keras_vit.errors import ConfigError
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.live import torch, transformers
from tests.plain import normal

pytestmark = pytest.mark.every_backend

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
TOWER = {**SIZES, "num_attention_heads": 2}
VISION = {**TOWER, "image_size": 16, "patch_size": 8}
WORDS = {**TOWER, "vocab_size": 30, "max_position_embeddings": 8, "eos_token_id": 2}
LABELS = ["a cat", "a dog", "a house", "a tree"]


def two_towers(kind):
    """A model of transformers with random weights, whose logits are not all alike."""
    torch.manual_seed(1)
    if kind == "clip":
        config = transformers.CLIPConfig(vision_config=VISION, text_config=WORDS, projection_dim=12)
        model = transformers.CLIPModel(config)
    else:
        config = transformers.SiglipConfig(vision_config=VISION, text_config=WORDS)
        model = transformers.SiglipModel(config)
        torch.nn.init.constant_(model.logit_scale, 2.3)
        torch.nn.init.constant_(model.logit_bias, -10.5)
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    return model.eval()


def reference(model):
    """Embeddings of four texts, and the logits of two images, by the library."""
    images = normal(2, 3, 16, 16)
    tokens = torch.randint(3, 30, (len(LABELS), 6), generator=torch.Generator().manual_seed(2))
    tokens[:, -1] = 2
    with torch.no_grad():
        out = model(input_ids=tokens, pixel_values=torch.tensor(images))
    texts = (7 * out.text_embeds).numpy()  # of any length
    return np.moveaxis(images, 1, -1), texts, out.logits_per_image.numpy()


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_logits_equal_those_of_the_two_towers(kind, tmp_path):
    """Temperature and bias come from the file of both towers; a preset answers in the words."""
    model = two_towers(kind)
    model.save_pretrained(tmp_path / "towers")
    images, texts, expected = reference(model)
    vision = VisionTransformer.from_preset(tmp_path / "towers")
    ours = vision.head_from_embeddings(texts, LABELS)
    assert_close(ours(images), expected, 1e-5)
    scale, bias = float(model.logit_scale.exp()), vision.provenance.get("logit_bias")
    by_hand = vision.head_from_embeddings(texts, LABELS, scale=scale, bias=bias)
    assert_close(by_hand(images), expected, 1e-5)
    ours.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert_close(loaded(images), expected, 1e-5)
    answer = loaded.classify(np.zeros((16, 16, 3), "uint8"), top=2)[0]
    assert {label for label, _ in answer} < set(LABELS)


@pytest.mark.parametrize("form", ["mapping", "npz", "safetensors", "array", "variable"])
def test_several_texts_of_a_class_are_averaged_as_unit_vectors(form, tmp_path):
    """Unit vectors, mean, unit vector, as CLIP's notebook of prompts does."""
    model = random_tiny()
    texts = normal(3, 5, 16) * np.array([1, 2, 3, 4, 5], "float32")[:, None]
    units = texts / np.linalg.norm(texts, axis=-1, keepdims=True)
    means = units.mean(axis=1)
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    arrays, labels = dict(zip("abc", texts, strict=True)), None
    given = arrays
    if form == "npz":
        given = tmp_path / "words.npz"
        np.savez(given, **arrays)
    elif form == "safetensors":
        given = tmp_path / "words.safetensors"
        save_file(arrays, given)
    elif form == "array":
        given, labels = texts, ["a", "b", "c"]
    elif form == "variable":  # torch's has a gradient
        given = {name: keras.Variable(each).value for name, each in arrays.items()}
    ours = model.head_from_embeddings(given, labels, scale=3.0, bias=0.5)
    assert ours.class_names == ("a", "b", "c")
    images = normal(2, 16, 16, 3)
    image = to_numpy(model(images, stages=["pre_logits"])["pre_logits"])
    image /= np.linalg.norm(image, axis=-1, keepdims=True)
    assert_close(ours(images), 3 * image @ means.T + 0.5, 1e-5)


WIDTH = "expected .*, 16"


@pytest.mark.parametrize(
    ("embeddings", "labels", "options", "message"),
    [
        (normal(3, 7), "abc", {"scale": 1.0}, r"embedding of 'a' has shape \(1, 7\), " + WIDTH),
        ({"a": normal(16), "b": np.full(16, np.nan)}, None, {"scale": 1.0}, "'b' is zero or not"),
        ({"a": np.zeros(16), "b": normal(16)}, None, {"scale": 1.0}, "'a' is zero or not"),
        (normal(3, 16), None, {"scale": 1.0}, "give class_names"),
        (normal(3, 16), "ab", {"scale": 1.0}, "3 embeddings and 2 class_names"),
        (normal(3, 16), "aab", {"scale": 1.0}, "2 of them different"),
        ({"a": normal(16), "b": normal(16)}, "ac", {"scale": 1.0}, "differ in .*b.*c"),
        (np.full((3, 16), "x"), "abc", {"scale": 1.0}, "embeddings: expected vectors of numbers"),
        ({"a": normal(16), "b": [[1.0], [1.0, 2.0]]}, None, {}, "expected vectors of numbers"),
        (normal(3, 16), "abc", {}, "without a logit_scale"),
        (normal(3, 16), "abc", {"scale": np.inf}, "scale=inf"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(embeddings, labels, options, message):
    with pytest.raises(ConfigError, match=message):
        random_tiny().head_from_embeddings(embeddings, labels, **options)


@pytest.mark.parametrize("load_weights", [True, False])
@pytest.mark.parametrize("num_classes", [0, 3])
def test_another_head_has_no_unit_vectors(num_classes, load_weights, tmp_path):
    """They belong to the words; features and a new head are those of the vision tower."""
    model = random_tiny()
    model.head_from_embeddings(normal(4, 16), "abcd", scale=2.0).save_to_preset(tmp_path / "words")
    other = VisionTransformer.from_preset(
        tmp_path / "words", num_classes=num_classes, load_weights=load_weights
    )
    assert other.config.head == "linear"
    same = VisionTransformer.from_preset(tmp_path / "words", num_classes=4)
    assert same.config.head == "cosine"


def test_a_file_that_is_missing_is_named(tmp_path):
    from keras_vit.errors import CheckpointError

    with pytest.raises(CheckpointError, match=r"words\.npz.*does not exist"):
        random_tiny().head_from_embeddings(tmp_path / "words.npz", scale=1.0)
