"""`Prediction`: what the outputs of a model say about an image."""

import pytest

from keras_vit.config import Prediction
from keras_vit.errors import ConfigError
from tests.plain import raises

pytestmark = pytest.mark.without_backend


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((3, "classification"), ["task='classification'", "single_label, multi_label"]),
        ((3, "single_label", "softmx"), ["classifier_activation='softmx'", "mean 'softmax'"]),
        ((-1,), ["num_classes", "-1"]),
        (
            (3, "multi_label", "softmax"),
            ["'softmax'", "task='multi_label'", "give 'sigmoid' or None"],
        ),
        ((3, "regression", "sigmoid"), ["task='regression' with num_classes=3: give None."]),
        ((3, "single_label", "sigmoid"), ["give 'softmax' or None, or task='multi_label'"]),
        ((1, "single_label", "softmax"), ["num_classes=1: give 'sigmoid' or None."]),
    ],
    ids=str,
)
def test_an_invalid_prediction_is_refused(fields, words):
    """The sigmoid of one of several classes is no share of their sum."""
    with raises(ConfigError, *words):
        Prediction(*fields)


def test_a_model_that_returns_features_has_no_task():
    """Nor has it an activation."""
    assert Prediction(0, "multi_label", "sigmoid") == Prediction(0)
    assert not Prediction(0).returns_logits


@pytest.mark.parametrize(
    ("fields", "is_binary", "answers", "returns_logits"),
    [
        ((3,), False, 3, True),
        ((3, "single_label", "softmax"), False, 3, False),
        ((1,), True, 2, True),
        ((1, "single_label", "sigmoid"), True, 2, False),
        ((1, "multi_label"), False, 1, True),
        ((1, "regression"), False, 1, False),
        ((0,), False, 0, False),
    ],
    ids=str,
)
def test_one_logit_is_two_classes_unless_the_task_says_otherwise(
    fields, is_binary, answers, returns_logits
):
    """With a sigmoid in the graph too."""
    made = Prediction(*fields)
    assert (made.is_binary, made.num_answers) == (is_binary, answers)
    assert made.returns_logits == returns_logits


def test_regression_is_refused_where_classes_are_needed():
    """The message names what gives the values."""
    Prediction(3).demand_classes("classify")
    with raises(ConfigError, "classify needs classes", "task='regression'", "predict"):
        Prediction(3, "regression").demand_classes("classify")
