"""Explanations of a model: maps over images, and how far they can be believed."""

from keras_vit.explanation.attention import attention_maps, attention_rollout, read_tokens
from keras_vit.explanation.faithfulness import (
    Curve,
    Faithfulness,
    compare_methods,
    deletion,
    insertion,
)
from keras_vit.explanation.maps import Explanation, explain

__all__ = [
    "Curve",
    "Explanation",
    "Faithfulness",
    "attention_maps",
    "attention_rollout",
    "compare_methods",
    "deletion",
    "explain",
    "insertion",
    "read_tokens",
]
