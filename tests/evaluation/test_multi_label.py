"""Multi-label models: scores as scikit-learn has them, thresholds, and how they are kept."""

import json

import keras
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, log_loss

import keras_vit
from keras_vit import VisionTransformer, evaluate
from keras_vit.data import from_arrays
from keras_vit.evaluation import choose_thresholds
from keras_vit.training import TransferRecipe
from tests.helpers import random_tiny, to_numpy
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
    truth, taken = labels[:, :-1], (shares >= model.thresholds)[:, :-1]
    precision = average_precision_score(truth, shares[:, :-1], average=None)
    f1 = f1_score(truth, taken, average=None, zero_division=0)
    np.testing.assert_allclose(scores.class_average_precision[:-1], precision, rtol=1e-9)
    np.testing.assert_allclose(scores.class_f1[:-1], f1, rtol=1e-9)
    losses = [log_loss(labels[:, k], shares[:, k], labels=[0, 1]) for k in range(CLASSES)]
    first = labels[np.arange(40), shares.argmax(axis=1)]
    found = (scores.mean_average_precision, scores.f1, scores.loss, scores.top1)
    expected = (precision.mean(), f1.mean(), np.mean(losses), first.mean())
    assert found == pytest.approx(expected, rel=1e-5)
    assert (scores.task, scores.count, scores.left_out) == ("multi_label", 40, 0)
    assert json.loads(json.dumps(scores.to_dict()))["class_f1"][-1] is None


def test_chosen_thresholds_have_the_highest_f1_of_all(model, images, labels):
    """No other threshold of any class is better; a class without images keeps its threshold."""
    chosen = choose_thresholds(model, (images, labels), prepared=True)
    shares = model.probabilities(images, prepared=True)
    for k in range(CLASSES - 1):
        best = f1_score(labels[:, k], shares[:, k] >= chosen[k])
        others = [f1_score(labels[:, k], shares[:, k] >= value) for value in shares[:, k]]
        assert best == pytest.approx(max(others))
    assert chosen[-1] == model.thresholds[-1]


def test_class_names_of_the_data_find_their_thresholds(model):
    """Data with some of the classes, in another order."""
    named = VisionTransformer.from_config({**model.get_config(), "class_names": list("abcd")})
    pixels, hot = np.zeros((8, 16, 16, 3), "uint8"), np.eye(2)[[0, 1] * 4]
    data = from_arrays(pixels, hot, named.preprocessor, class_names=["c", "a"])
    chosen = np.isclose(choose_thresholds(named, data), named.thresholds)
    assert chosen[[1, 3]].all() and not chosen[[0, 2]].any()
    assert evaluate(named, data).class_counts == (4, 0, 4, 0)


def test_classify_returns_all_labels_above_their_threshold(model, images):
    """The most probable first; `top` limits them, and an image may have none."""
    shares = model.probabilities(images, prepared=True)
    logits = model.inference.run(model, images, ["logits"])["logits"]
    np.testing.assert_allclose(shares, 1 / (1 + np.exp(-logits)), rtol=1e-6)
    pixels = list(model.preprocessor.pixels(images))
    for answer, row in zip(model.classify(pixels), model.probabilities(pixels), strict=True):
        expected = sorted(np.flatnonzero(row >= model.thresholds), key=lambda k: -row[k])
        assert [label for label, _ in answer] == [str(k) for k in expected]
    assert max(map(len, model.classify(pixels, top=1))) == 1
    model_of_none = VisionTransformer.from_config({**model.get_config(), "thresholds": 1.0})
    assert model_of_none.classify(pixels[:2]) == [[], []]


def test_presets_and_keras_files_keep_thresholds(tmp_path):
    """A new head has those that it is given, or a half; other models have none."""
    model, preset = random_tiny(num_classes=3, task="multi_label"), tmp_path / "preset"
    assert model.thresholds == (0.5,) * 3
    model.thresholds = expected = (0.1, 0.2, 0.3)
    model.save_to_preset(preset)
    model.save(tmp_path / "model.keras")
    load = VisionTransformer.from_preset
    for kept in (
        load(preset),
        load(preset, load_weights=False),
        keras_vit.info(preset),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        assert kept.thresholds == expected
    assert load(preset, num_classes=2).thresholds is None
    assert load(preset, task="multi_label", thresholds=0.75).thresholds == (0.75,) * 3
    load(preset, num_classes=2).save_to_preset(tmp_path / "plain")
    assert "thresholds" not in json.loads((tmp_path / "plain" / "config.json").read_text())


def test_a_single_label_is_a_sigmoid_everywhere():
    """As in `loss="auto"`: its softmax would be 1 for every image. Its labels are rows of one zero
    or one, as batches of `ImageData` have them."""
    model = random_tiny(num_classes=1, task="multi_label")
    pixels = np.random.default_rng(3).integers(0, 256, (6, 16, 16, 3), "uint8")
    logits = to_numpy(model(model.preprocessor(pixels)))[:, 0]
    expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(model.probabilities(pixels)[:, 0], expected, rtol=1e-5)
    assert [len(answer) for answer in model.classify(pixels)] == (expected >= 0.5).tolist()
    labels = logits > np.median(logits)
    losses = -np.log(np.where(labels, expected, 1 - expected))
    for data in ((pixels, labels[:, None]), from_arrays(pixels, labels[:, None] * 1, model)):
        scores = evaluate(model, data)
        assert scores.loss == pytest.approx(losses.mean(), rel=1e-5)
        assert (scores.class_counts, scores.mean_average_precision) == ((3,), 1.0)
    judged = TransferRecipe(steps=10, batch_size=2).compile_args(model)
    assert isinstance(judged["loss"], keras.losses.BinaryCrossentropy)
