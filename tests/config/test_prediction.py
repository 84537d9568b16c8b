"""`Prediction`: what the outputs of a model say about an image."""

import pytest

from keras_vit.config import Prediction

pytestmark = pytest.mark.without_backend


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
