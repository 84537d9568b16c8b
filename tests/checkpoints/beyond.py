"""The models that a dialect or its library cannot express."""

from keras_vit.checkpoints.dialects.base import find_met


def beyond_library(dialect, config) -> list[str]:
    """What the dialect or its library cannot express of a model, in words."""
    return find_met(dialect.refusals, config) + find_met(dialect.limits, config)
