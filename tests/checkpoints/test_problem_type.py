"""What the head of a transformers checkpoint predicts, by `problem_type`, beside transformers."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints, evaluate
from keras_vit.errors import CheckpointError, ConfigError
from tests.helpers import normal
from tests.live import transformers

pytestmark = pytest.mark.on_one_backend("torch")

IMAGES = normal(4, 16, 16, 3)
HOT = np.eye(5, dtype="float32")[:4]
NUMBERS = normal(4, 2)
CASES = {
    "many": (5, "multi_label_classification", HOT + HOT[::-1], "multi_label_classification"),
    "one": (5, "single_label_classification", np.arange(4), None),
    "unsaid": (5, None, np.arange(4), None),
    "numbers": (2, "regression", NUMBERS, "regression"),
    "one_number": (1, None, NUMBERS[:, :1], "regression"),
    "one_class": (1, "multi_label_classification", HOT[:, :1], "multi_label_classification"),
}


def theirs(folder, classes, problem):
    config = transformers.ViTConfig(
        image_size=16,
        patch_size=8,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=classes,
        problem_type=problem,
    )
    model = transformers.ViTForImageClassification(config).eval()
    model.classifier.weight.data.normal_()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("case", CASES)
def test_logits_and_the_loss_auto_are_those_of_transformers(tmp_path, case):
    """Without the word, a single output is a number, as in transformers' own loss."""
    import torch

    classes, problem, targets, _ = CASES[case]
    reference = theirs(tmp_path / "in", classes, problem)
    labels = targets[:, 0] if case == "one_number" else targets
    pixels = torch.tensor(IMAGES.transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        expected = reference(pixel_values=pixels, labels=torch.tensor(labels))
    model = VisionTransformer.from_preset(tmp_path / "in")
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), expected.logits, atol=1e-5)
    model.compile("sgd", "auto")
    loss = model.evaluate(IMAGES, targets, verbose=0)
    np.testing.assert_allclose(loss, float(expected.loss), rtol=1e-5)
    if model.task == "regression":
        scores = evaluate(model, (IMAGES, targets), prepared=True)
        np.testing.assert_allclose(scores.loss, float(expected.loss), rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_word_is_written_back_and_read_again(tmp_path, case):
    """By `save` and by `convert`, which makes no model."""
    classes, problem, _, written = CASES[case]
    theirs(tmp_path / "in", classes, problem)
    model = VisionTransformer.from_preset(tmp_path / "in")
    checkpoints.save(model, tmp_path / "saved", family="transformers")
    keras_vit.convert(tmp_path / "in", tmp_path / "converted", "transformers")
    model.save_to_preset(tmp_path / "preset")
    for name in ("saved", "converted", "preset"):
        again = VisionTransformer.from_preset(tmp_path / name)
        assert again.thresholds == model.thresholds
        assert again.task == model.task
        if name != "preset":
            stored = json.loads((tmp_path / name / "config.json").read_text())
            assert stored.get("problem_type") == written


def test_a_multi_label_model_answers_by_sigmoid_from_a_half_on(tmp_path):
    theirs(tmp_path / "in", 5, "multi_label_classification")
    model = VisionTransformer.from_preset(tmp_path / "in")
    image = np.zeros((16, 16, 3), "uint8")
    logits = model.predict(model.preprocessor(image), verbose=0)[0].astype("float64")
    answers = dict(model.classify(image)[0])
    assert set(answers) == {str(k) for k in np.flatnonzero(logits > 0)}
    for name, share in answers.items():
        np.testing.assert_allclose(share, 1 / (1 + np.exp(-logits[int(name)])), rtol=1e-5)


def test_a_model_of_numbers_refuses_to_classify_and_names_the_fix(tmp_path):
    theirs(tmp_path / "in", 2, "regression")
    model = VisionTransformer.from_preset(tmp_path / "in")
    with pytest.raises(ConfigError, match=r"classify needs classes.*model\.predict"):
        model.classify(np.zeros((16, 16, 3), "uint8"))
    with pytest.raises(ConfigError, match="probabilities needs classes"):
        model.probabilities(IMAGES, prepared=True)
    with pytest.raises(ConfigError, match="this model has task='regression'"):
        model.thresholds = 0.5
    with pytest.raises(ConfigError, match=r"expected targets \(4, 2\)"):
        evaluate(model, (IMAGES, np.arange(4)), prepared=True)


def test_the_caller_and_a_new_head_beat_the_word(tmp_path):
    theirs(tmp_path / "in", 2, "regression")
    for fields in ({"task": "single_label"}, {"num_classes": 3}, {"num_classes": 0}):
        model = VisionTransformer.from_preset(tmp_path / "in", **fields)
        assert model.task == "single_label"


def test_an_unknown_word_is_refused_with_the_known_ones(tmp_path):
    theirs(tmp_path / "in", 2, "regression")
    path = tmp_path / "in" / "config.json"
    path.write_text(path.read_text().replace('"regression"', '"ranking"'))
    with pytest.raises(CheckpointError, match="multi_label_classification"):
        VisionTransformer.from_preset(tmp_path / "in")


def test_scores_of_numbers_are_those_of_scikit_learn(tmp_path):
    from sklearn.metrics import mean_absolute_error, r2_score

    theirs(tmp_path / "in", 2, "regression")
    model = VisionTransformer.from_preset(tmp_path / "in")
    scores = evaluate(model, (IMAGES, NUMBERS), batch_size=3, prepared=True)
    predicted = model.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(
        scores.mean_absolute_error, mean_absolute_error(NUMBERS, predicted), rtol=1e-5
    )
    np.testing.assert_allclose(scores.r2, r2_score(NUMBERS, predicted), rtol=1e-5)
