"""Heads from a `Dense` layer, from a file, and from embeddings of words as CLIP and SigLIP have."""

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit import VisionTransformer
from keras_vit.evaluation import linear_probe
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal
from tests.runs import BACKEND

if BACKEND == "torch":
    from tests.live import torch, transformers

IMAGES = normal(2, 16, 16, 3)
NAMES = ("a", "b", "c")


def functional(model, head):
    return keras.Model(model.input, head(model.get_layer("pre_logits").output))


def assert_head_is_kept(classifier, folder, expected, tolerance=1e-5):
    """Fails unless a classifier and its preset have names and these logits."""
    classifier.save_to_preset(folder / "preset")
    for each in (classifier, VisionTransformer.from_preset(folder / "preset")):
        assert (each.config, each.class_names) == (classifier.config, NAMES)
        assert_close(each.predict(IMAGES, verbose=0), expected, tolerance)
    answer = classifier.classify(np.zeros((16, 16, 3), "uint8"), top=3)[0]
    assert {label for label, _ in answer} == set(NAMES)


@pytest.mark.every_backend
def test_a_functional_head_comes_back_with_classify_and_presets(tmp_path):
    """After a training step of the plain model, which changes the encoder too."""
    model, head = random_tiny(), keras.layers.Dense(3)
    plain = functional(model, head)
    plain.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    plain.train_on_batch(IMAGES, np.array([0, 2]))
    assert_head_is_kept(model.with_head(head, class_names=NAMES), tmp_path, to_numpy(plain(IMAGES)))


@pytest.mark.every_backend
@pytest.mark.parametrize("options", [{"activation": "softmax"}, {"use_bias": False}])
def test_activation_and_missing_bias_of_a_head_are_kept(options):
    """A softmax becomes `classifier_activation`, no bias zeros; training keeps the layer."""
    model, head = random_tiny(), keras.layers.Dense(3, **options)
    expected = to_numpy(functional(model, head)(IMAGES))
    classifier = model.with_head(head)
    assert_close(classifier(IMAGES), expected)
    assert classifier.prediction.classifier_activation == options.get("activation")
    classifier.compile("sgd", "auto")
    classifier.train_on_batch(IMAGES, np.array([0, 2]))
    np.testing.assert_array_equal(to_numpy(functional(model, head)(IMAGES)), expected)


def test_a_new_head_takes_no_setting_of_the_old_one():
    """Thresholds, and pre_logits of length 1, are left behind by every way to a new head."""
    words = random_tiny().head_from_embeddings(normal(3, 16), NAMES, scale=2.0)
    head = keras.layers.Dense(2)
    expected = to_numpy(functional(words, head)(IMAGES))
    copy = words.with_head(head)
    assert_close(copy(IMAGES), expected)
    probe = linear_probe(normal(6, 16), [0, 1] * 3, l2=1.0)
    classifier = probe.build_model(words)
    features = to_numpy(words(IMAGES, stages=["pre_logits"])["pre_logits"])
    assert_close(classifier(IMAGES), features @ probe.kernel + probe.bias)
    assert random_tiny(task="multi_label", thresholds=0.3).with_head(head).thresholds is None


@pytest.mark.parametrize(
    ("kind", "count"), [("token", 1), ("token_and_mean", 1), ("gap", 0), ("mean", 1)]
)
def test_a_head_in_a_file_reads_what_its_width_says(kind, count, tmp_path):
    """Twice the width is class token and mean of the patches, as in DINOv2's classifiers."""
    model = random_tiny(pool={"kind": kind}, tokens={"class_tokens": count, "registers": 1})
    width = 16 + 16 * count
    head = {"weight": normal(3, width, seed=1), "bias": normal(3, seed=2)}
    save_file(head, tmp_path / "head.safetensors")
    classifier = model.with_head(tmp_path / "head.safetensors", class_names=NAMES)
    tokens = model.tokens(IMAGES, prepared=True)
    features = [tokens.patches.mean(axis=(1, 2))]
    if count:
        features.insert(0, tokens.class_token)
    expected = np.concatenate(features, axis=1) @ head["weight"].T + head["bias"]
    assert_head_is_kept(classifier, tmp_path, expected)


@pytest.mark.parametrize("fields", [{}, {"pool": {"kind": "token_and_mean"}}, {"dtype": "float16"}])
def test_a_head_of_four_blocks_reads_their_class_tokens(fields, tmp_path):
    """As `_LinearClassifierWrapper` of DINOv2's `hub/classifiers.py` with `layers=4`."""
    model = random_tiny(num_layers=5, tokens={"registers": 1}, num_classes=0, **fields)
    linear, path = torch.nn.Linear(5 * 16, 3), tmp_path / "dinov2_vits14_linear4_head.pth"
    torch.save(linear.state_dict(), path)
    classifier = model.with_head(path, class_names=NAMES, allow_pickle_weights=True)
    assert classifier.config.pool.blocks == 4
    names = [f"block_{block}/norm" for block in (1, 2, 3, 4)]
    layers = list(model.tokens(IMAGES, names, prepared=True).values())
    tokens = [torch.tensor(each.class_token) for each in layers]
    mean = torch.tensor(layers[-1].patches).flatten(1, 2).mean(dim=1)
    expected = linear(torch.cat([*tokens, mean], dim=1)).detach().numpy()
    assert_head_is_kept(classifier, tmp_path, expected, 5e-3 if fields.get("dtype") else 1e-5)


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


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_logits_equal_those_of_the_two_towers(kind, tmp_path):
    """Temperature and bias come from the file of both towers; a preset answers in the words."""
    model = two_towers(kind)
    model.save_pretrained(tmp_path / "towers")
    images = normal(2, 3, 16, 16)
    tokens = torch.randint(3, 30, (len(LABELS), 6), generator=torch.Generator().manual_seed(2))
    tokens[:, -1] = 2
    with torch.no_grad():
        out = model(input_ids=tokens, pixel_values=torch.tensor(images))
    images, expected = np.moveaxis(images, 1, -1), out.logits_per_image.numpy()
    vision = VisionTransformer.from_preset(tmp_path / "towers")
    ours = vision.head_from_embeddings(7 * out.text_embeds.numpy(), LABELS)  # of any length
    assert_close(ours(images), expected, 1e-5)
    ours.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.class_names == tuple(LABELS)
    assert_close(loaded(images), expected, 1e-5)


def test_several_texts_of_a_class_are_averaged_as_unit_vectors(tmp_path):
    """Unit vectors, mean, unit vector, as CLIP's notebook of prompts does; in every form."""
    model, images = random_tiny(), normal(2, 16, 16, 3)
    texts = normal(3, 5, 16) * np.array([1, 2, 3, 4, 5], "float32")[:, None]
    means = (texts / np.linalg.norm(texts, axis=-1, keepdims=True)).mean(axis=1)
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    image = to_numpy(model(images, stages=["pre_logits"])["pre_logits"])
    image /= np.linalg.norm(image, axis=-1, keepdims=True)
    arrays = dict(zip(NAMES, texts, strict=True))
    files = [tmp_path / "words.npz", tmp_path / "words.safetensors"]
    np.savez(files[0], **arrays)
    save_file(arrays, files[1])
    for given in (arrays, *files, texts):
        labels = NAMES if given is texts else None
        ours = model.head_from_embeddings(given, labels, scale=3.0, bias=0.5)
        assert ours.class_names == NAMES
        assert_close(ours(images), 3 * image @ means.T + 0.5, 1e-5)


@pytest.mark.parametrize("load_weights", [True, False])
def test_another_head_has_no_unit_vectors(load_weights, tmp_path):
    """They belong to the words; features and a new head are those of the vision tower."""
    model = random_tiny()
    model.head_from_embeddings(normal(4, 16), "abcd", scale=2.0).save_to_preset(tmp_path / "words")
    for count, head in ((0, "linear"), (3, "linear"), (4, "cosine")):
        fields = {"num_classes": count, "load_weights": load_weights}
        other = VisionTransformer.from_preset(tmp_path / "words", **fields)
        assert other.config.head == head
