"""What the head of a transformers checkpoint predicts, by `problem_type`, beside transformers."""

import json

import numpy as np
import pytest
import torch

import keras_vit
from keras_vit import VisionTransformer, checkpoints, evaluate
from tests.checkpoints.cases import VISION
from tests.live import channels_first, random_transformers
from tests.plain import normal

IMAGES = normal(4, 16, 16, 3)
HOT = np.eye(5, dtype="float32")[:4]
NUMBERS = normal(4, 2)
MANY, ONE, REGRESSION = ("multi_label_classification", "single_label_classification", "regression")
CASES = {
    "many": (5, MANY, HOT + HOT[::-1], MANY),
    "one": (5, ONE, np.arange(4), None),
    "unsaid": (5, None, np.arange(4), None),
    "numbers": (2, REGRESSION, NUMBERS, REGRESSION),
    "one_number": (1, None, NUMBERS[:, :1], REGRESSION),
    "one_class": (1, MANY, HOT[:, :1], MANY),
}
"""Number of outputs, the word of the file, targets, and the word that is written."""


def theirs(folder, classes, problem):
    fields = {**VISION, "num_labels": classes, "problem_type": problem}
    model = random_transformers("ViTForImageClassification", **fields)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("case", CASES)
def test_logits_the_loss_and_the_word_are_those_of_transformers(tmp_path, case):
    """Without the word, a single output is a number; `save` and `convert` write it back."""
    classes, problem, targets, written = CASES[case]
    reference = theirs(tmp_path / "in", classes, problem)
    labels = targets[:, 0] if case == "one_number" else targets
    with torch.no_grad():
        expected = reference(pixel_values=channels_first(IMAGES), labels=torch.tensor(labels))
    model = VisionTransformer.from_preset(tmp_path / "in")
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), expected.logits, atol=1e-5)
    model.compile("sgd", "auto")
    loss = model.evaluate(IMAGES, targets, verbose=0)
    np.testing.assert_allclose(loss, float(expected.loss), rtol=1e-5)
    if model.task == "regression":
        scores = evaluate(model, (IMAGES, targets), prepared=True)
        np.testing.assert_allclose(scores.loss, float(expected.loss), rtol=1e-5)
    checkpoints.save(model, tmp_path / "saved", family="transformers")
    keras_vit.convert(tmp_path / "in", tmp_path / "converted", "transformers")
    model.save_to_preset(tmp_path / "preset")
    for name in ("saved", "converted", "preset"):
        again = VisionTransformer.from_preset(tmp_path / name)
        assert (again.task, again.thresholds) == (model.task, model.thresholds)
        stored = json.loads((tmp_path / name / "config.json").read_text())
        assert name == "preset" or stored.get("problem_type") == written


def test_the_caller_and_a_new_head_beat_the_word(tmp_path):
    theirs(tmp_path / "in", 2, "regression")
    for fields in ({"task": "single_label"}, {"num_classes": 3}, {"num_classes": 0}):
        model = VisionTransformer.from_preset(tmp_path / "in", **fields)
        assert model.task == "single_label"
