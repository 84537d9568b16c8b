"""Multi-label models: scores as scikit-learn has them, thresholds, and how they are kept."""

import json

import keras
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, log_loss

import keras_vit
from keras_vit import VisionTransformer, evaluate
from keras_vit.data import from_arrays
from keras_vit.errors import ConfigError, PresetError
from keras_vit.evaluation import choose_thresholds
from keras_vit.training import TransferRecipe
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal

CLASSES = 4


@pytest.fixture(scope="module")
def model():
    """Random weights, whose probabilities are near 0.5, and a threshold per class."""
    return random_tiny(num_classes=CLASSES, task="multi_label", thresholds=[0.5, 0.45, 0.55, 0.5])


@pytest.fixture(scope="module")
def images():
    return normal(40, 16, 16, 3)


@pytest.fixture(scope="module")
def labels():
    """Zeros and ones: some images have no label, and no image has the last class."""
    hot = np.random.default_rng(0).random((40, CLASSES)) < 0.3
    hot[:, -1] = False
    return hot.astype("float32")


def test_scores_are_those_of_scikit_learn(model, images, labels):
    """A class without images has no score and does not count in the means."""
    scores = evaluate(model, (images, labels), batch_size=16, prepared=True)
    shares = model.probabilities(images, prepared=True).astype("float64")
    has_images, taken = slice(CLASSES - 1), shares >= model.thresholds
    precision = average_precision_score(labels[:, has_images], shares[:, has_images], average=None)
    f1 = f1_score(labels[:, has_images], taken[:, has_images], average=None, zero_division=0)
    np.testing.assert_allclose(scores.class_average_precision[:-1], precision, rtol=1e-9)
    np.testing.assert_allclose(scores.class_f1[:-1], f1, rtol=1e-9)
    assert scores.class_f1[-1] is None
    assert scores.mean_average_precision == pytest.approx(precision.mean())
    assert scores.f1 == pytest.approx(f1.mean())
    losses = [log_loss(labels[:, k], shares[:, k], labels=[0, 1]) for k in range(CLASSES)]
    assert scores.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert (scores.task, scores.count, scores.left_out) == ("multi_label", 40, 0)
    first = labels[np.arange(40), shares.argmax(axis=1)]
    assert scores.top1 == pytest.approx(first.mean())
    json.dumps(scores.to_dict())


def test_chosen_thresholds_have_the_highest_f1_of_all(model, images, labels):
    """No other threshold of any class is better; a class without images keeps its threshold."""
    chosen = choose_thresholds(model, (images, labels), prepared=True)
    shares = model.probabilities(images, prepared=True)
    for k in range(CLASSES - 1):
        best = f1_score(labels[:, k], shares[:, k] >= chosen[k])
        others = [f1_score(labels[:, k], shares[:, k] >= value) for value in shares[:, k]]
        assert best == pytest.approx(max(others))
    assert chosen[-1] == model.thresholds[-1]
    with pytest.raises(ConfigError, match="no thresholds"):
        choose_thresholds(tiny(num_classes=CLASSES), (images, labels), prepared=True)


def test_class_names_of_the_data_find_their_thresholds(model, images, labels):
    """Data with some of the classes, in another order."""
    named = VisionTransformer.from_config({**model.get_config(), "class_names": list("abcd")})
    named.set_weights(model.get_weights())
    data = from_arrays(
        np.zeros((8, 16, 16, 3), "uint8"),
        np.eye(2)[[0, 1] * 4],
        named.preprocessor,
        class_names=["c", "a"],
    )
    before, after = named.thresholds, choose_thresholds(named, data)
    assert before[1] == after[1]
    assert before[3] == after[3]
    assert evaluate(named, data).class_counts == (4, 0, 4, 0)


def test_classify_returns_all_labels_above_their_threshold(model, images):
    """The most probable first; `top` limits them, and an image may have none."""
    shares = model.probabilities(images, prepared=True)
    logits = model.inference.run(model, images, ["logits"])["logits"]
    np.testing.assert_allclose(shares, 1 / (1 + np.exp(-logits)), rtol=1e-6)
    pixels = list(model.preprocessor.pixels(images))
    for answer, row in zip(
        model.classify(pixels),
        model.probabilities(model.preprocessor(pixels), prepared=True),
        strict=True,
    ):
        expected = sorted(np.flatnonzero(row >= model.thresholds), key=lambda k: -row[k])
        assert [label for label, _ in answer] == [str(k) for k in expected]
    assert max(map(len, model.classify(pixels, top=1))) == 1
    model_of_none = VisionTransformer.from_config({**model.get_config(), "thresholds": 1.0})
    assert model_of_none.classify(pixels[:2]) == [[], []]


def test_a_head_of_sigmoids_has_thresholds_of_a_half():
    """Without thresholds of its own; a model of another task takes none."""
    assert tiny(num_classes=2, task="multi_label").thresholds == (0.5, 0.5)
    assert tiny(num_classes=2).thresholds is None
    with pytest.raises(ConfigError, match='thresholds need task="multi_label"'):
        tiny(num_classes=2, thresholds=0.5)
    for wrong in ([0.5], 1.5, "half", [[0.5, 0.5]], [0.5, float("nan")]):
        with pytest.raises(ConfigError, match="expected a number from 0 to 1, or one for each"):
            tiny(num_classes=2, task="multi_label").thresholds = wrong


@pytest.mark.parametrize("thresholds", [0.25, (0.1, 0.2, 0.3)], ids=["one", "per class"])
def test_presets_and_keras_files_keep_thresholds(tmp_path, thresholds):
    """A new head has none; a preset of a model without them has no such field."""
    random_tiny(num_classes=3).save_to_preset(tmp_path / "plain")
    model = random_tiny(num_classes=3, task="multi_label")
    assert "thresholds" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    model.thresholds = thresholds
    expected = (0.25,) * 3 if thresholds == 0.25 else thresholds
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    again = VisionTransformer.from_preset(tmp_path / "preset")
    assert again.thresholds == expected
    assert keras_vit.info(tmp_path / "preset").thresholds == expected
    assert keras.saving.load_model(tmp_path / "model.keras").thresholds == expected
    bare = VisionTransformer.from_preset(tmp_path / "preset", load_weights=False)
    assert bare.thresholds == expected
    assert VisionTransformer.from_preset(tmp_path / "preset", num_classes=2).thresholds is None
    other = VisionTransformer.from_preset(tmp_path / "preset", task="multi_label", thresholds=0.75)
    assert other.thresholds == (0.75,) * 3


def test_a_preset_with_other_thresholds_than_classes_is_refused(tmp_path):
    """The message names the file."""
    tiny(num_classes=3, task="multi_label").save_to_preset(tmp_path / "preset")
    path = tmp_path / "preset" / "config.json"
    stored = {**json.loads(path.read_text()), "thresholds": [0.5, 0.5]}
    path.write_text(json.dumps(stored))
    with pytest.raises(PresetError, match=r"config.json: thresholds=\[0.5, 0.5\]"):
        VisionTransformer.from_preset(tmp_path / "preset")


def test_a_single_label_is_a_sigmoid_everywhere():
    """As in `loss="auto"`: its softmax would be 1 for every image."""
    model = random_tiny(num_classes=1, task="multi_label")
    pixels = np.random.default_rng(3).integers(0, 256, (6, 16, 16, 3), "uint8")
    logits = to_numpy(model(model.preprocessor(pixels)))[:, 0]
    expected = 1 / (1 + np.exp(-logits))
    shares = model.probabilities(model.preprocessor(pixels), prepared=True)[:, 0]
    np.testing.assert_allclose(shares, expected, rtol=1e-5)
    assert [len(answer) for answer in model.classify(pixels)] == (expected >= 0.5).tolist()
    labels = (logits > 0)[:, None]
    scores = evaluate(model, (pixels, labels))
    losses = -np.log(np.where(labels[:, 0], expected, 1 - expected))
    assert scores.loss == pytest.approx(losses.mean(), rel=1e-5)
    assert model.thresholds == (0.5,)
    judged = TransferRecipe(steps=10, batch_size=2).compile_args(model)
    assert isinstance(judged["loss"], keras.losses.BinaryCrossentropy)


def test_a_model_of_one_class_takes_rows_of_one_label():
    """Zeros and ones as floats, `(images, 1)`, as batches of `ImageData` have them."""
    model = random_tiny(num_classes=1, task="multi_label")
    model.get_layer("head").kernel.assign(np.zeros((model.config.hidden_size, 1)))  # one rank
    pixels, labels = np.zeros((6, 16, 16, 3), "uint8"), np.arange(6)[:, None] % 2
    scores = evaluate(model, from_arrays(pixels, labels, model))
    assert scores.class_counts == (3,)
    assert scores.mean_average_precision == pytest.approx(0.5)
