"""What a model sees: maps of images, how good they are, and the figures of the papers."""

from keras_vit.explanation.attention import attention_maps, attention_rollout, read_tokens
from keras_vit.explanation.faithfulness import (
    Curve,
    Faithfulness,
    compare_methods,
    deletion,
    insertion,
    points_at,
    share_inside,
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
    "points_at",
    "read_tokens",
    "share_inside",
]
