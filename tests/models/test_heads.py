"""`with_head` makes a VisionTransformer of a `Dense` layer, or of a head in a file."""

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError, ConfigError
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

IMAGES = normal(2, 16, 16, 3)
NAMES = ("a", "b", "c")


def functional(model, head):
    return keras.Model(model.input, head(model.get_layer("pre_logits").output))


def test_a_functional_head_comes_back_with_classify_and_presets(tmp_path):
    """After a training step of the plain model, which changes the encoder too."""
    model, head = random_tiny(), keras.layers.Dense(3)
    plain = functional(model, head)
    plain.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    plain.train_on_batch(IMAGES, np.array([0, 2]))
    classifier = model.with_head(head, class_names=NAMES)
    assert_close(classifier(IMAGES), to_numpy(plain(IMAGES)))
    answer = classifier.classify(np.zeros((16, 16, 3), "uint8"), top=3)[0]
    assert {label for label, _ in answer} == set(NAMES)
    classifier.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.class_names == NAMES
    np.testing.assert_array_equal(to_numpy(loaded(IMAGES)), to_numpy(classifier(IMAGES)))


@pytest.mark.parametrize("options", [{"activation": "softmax"}, {"use_bias": False}])
def test_activation_and_missing_bias_of_a_head_are_kept(options):
    """A softmax becomes `classifier_activation`; without a bias the bias is zero."""
    model, head = random_tiny(), keras.layers.Dense(3, **options)
    expected = to_numpy(functional(model, head)(IMAGES))
    classifier = model.with_head(head)
    assert_close(classifier(IMAGES), expected)
    assert classifier.prediction.classifier_activation == options.get("activation")


def test_a_new_head_takes_no_setting_of_the_old_one():
    """Thresholds, and pre_logits of length 1, are left behind by every way to a new head."""
    from keras_vit.evaluation import linear_probe

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


def test_the_copy_shares_no_weight_with_the_model():
    """Training the copy does not change the model."""
    model, head = random_tiny(), keras.layers.Dense(3)
    before = to_numpy(functional(model, head)(IMAGES))
    copy = model.with_head(head)
    copy.set_weights([np.zeros_like(weight) for weight in copy.get_weights()])
    np.testing.assert_array_equal(to_numpy(functional(model, head)(IMAGES)), before)


@pytest.mark.parametrize(
    ("head", "width", "words"),
    [
        (lambda: keras.layers.Dense(3), None, "was called or built"),
        (lambda: keras.Sequential([keras.layers.Dense(3)]), 16, r"save it as a \.keras file"),
        (lambda: keras.layers.Dense(3), 7, "vectors of width 7 .*; the pre_logits .* have 16"),
        (lambda: keras.layers.Dense(3, activation="relu"), 16, "classifier_activation='relu'"),
    ],
)
def test_a_head_that_no_preset_can_hold_is_refused(head, width, words):
    """The message says what was expected, and what to do with another head."""
    layer = head()
    if width:
        layer.build((None, width))
    with pytest.raises(ConfigError, match=words):
        random_tiny().with_head(layer)


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
    assert_close(classifier(IMAGES), expected)
    classifier.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.class_names == NAMES
    assert_close(loaded(IMAGES), expected)


@pytest.mark.parametrize("fields", [{}, {"pool": {"kind": "token_and_mean"}}, {"dtype": "float16"}])
def test_a_head_of_four_blocks_reads_their_class_tokens(fields, tmp_path):
    """As `_LinearClassifierWrapper` of DINOv2's `hub/classifiers.py` with `layers=4`."""
    torch = pytest.importorskip("torch")
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
    tolerance = 5e-3 if fields.get("dtype") else 1e-5
    assert_close(classifier(IMAGES), expected, tolerance)
    assert_close(classifier.predict(IMAGES, verbose=0), expected, tolerance)
    picture = np.zeros((16, 16, 3), "uint8")
    assert {label for label, _ in classifier.classify(picture, top=3)[0]} == set(NAMES)
    classifier.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.config == classifier.config
    assert_close(loaded(IMAGES), expected, tolerance)
    loaded.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert_close(again(IMAGES), expected, tolerance)


def test_every_class_token_of_a_head_learns():
    model = random_tiny(num_layers=3, pool={"kind": "token_and_mean", "blocks": 2})
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = to_numpy(model.get_layer("head").kernel)
    model.train_on_batch(IMAGES, np.array([0, 2]))
    moved = np.abs(to_numpy(model.get_layer("head").kernel) - before).reshape(3, 16, -1)
    assert (moved.max(axis=(1, 2)) > 0).all()


def test_a_head_in_a_pickle_needs_permission(tmp_path):
    torch = pytest.importorskip("torch")
    model, path = random_tiny(), tmp_path / "dinov2_vits14_linear_head.pth"
    linear = torch.nn.Linear(32, 4)
    torch.save(linear.state_dict(), path)
    with pytest.raises(CheckpointError, match="this is a Python pickle|torch"):
        model.with_head(path)
    classifier = model.with_head(path, allow_pickle_weights=True)
    assert_close(classifier.get_layer("head").kernel, linear.weight.detach().numpy().T)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"weight": normal(3, 80), "bias": normal(3)}, "width 80; .* belongs to another encoder"),
        ({"weight": normal(3, 24), "bias": normal(3)}, "have 16 .* belongs to another encoder"),
        ({"weight": normal(3, 16), "bias": normal(4)}, r"expected a linear head.*\(4,\)"),
        ({"weight": normal(0, 16), "bias": normal(0)}, r"expected a linear head.*\(0, 16\)"),
        ({"decode_head.bn.bias": normal(3)}, r"expected a linear head.*decode_head\.bn\.bias"),
    ],
)
def test_a_file_without_a_fitting_head_is_refused(arrays, words, tmp_path):
    save_file(arrays, tmp_path / "head.safetensors")
    with pytest.raises(CheckpointError, match=rf"head\.safetensors: .*{words}"):
        random_tiny().with_head(tmp_path / "head.safetensors")
