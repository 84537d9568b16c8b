"""Explanations of a model: maps over images, their faithfulness, and the figures of the papers."""

from keras_vit.explanation.attention import attention_maps, attention_rollout, read_tokens
from keras_vit.explanation.faithfulness import (
    Curve,
    Faithfulness,
    compare_methods,
    deletion,
    insertion,
)
from keras_vit.explanation.maps import Explanation, explain
from keras_vit.explanation.model_figures import (
    Filters,
    TokenNorms,
    attention_distance,
    looks_untrained,
    patch_filters,
    position_similarity,
    token_norms,
)

__all__ = [
    "Curve",
    "Explanation",
    "Faithfulness",
    "Filters",
    "TokenNorms",
    "attention_distance",
    "attention_maps",
    "attention_rollout",
    "compare_methods",
    "deletion",
    "explain",
    "insertion",
    "looks_untrained",
    "patch_filters",
    "position_similarity",
    "read_tokens",
    "token_norms",
]
