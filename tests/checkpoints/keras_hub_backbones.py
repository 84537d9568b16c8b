"""Small backbones of keras-hub with two towers, for tests and for the campaigns of weights/fuzz."""

from typing import Any


def make_backbone(family: str) -> tuple[Any, Any]:
    """Returns a backbone of two small encoders, and its vision encoder."""
    import keras_hub

    sizes = {"hidden_dim": 16, "num_layers": 2, "num_heads": 2, "intermediate_dim": 24}
    text = {**sizes, "vocabulary_size": 30, "embedding_dim": 16, "max_sequence_length": 8}
    models = keras_hub.models
    vision = getattr(models, f"{family}VisionEncoder")(
        **sizes, patch_size=4, image_shape=(16, 16, 3)
    )
    projection = {"projection_dim": 8} if family == "CLIP" else {}
    text_encoder = getattr(models, f"{family}TextEncoder")(**text)
    return getattr(models, f"{family}Backbone")(vision, text_encoder, **projection), vision
