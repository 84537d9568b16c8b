"""Small backbones of keras-hub with two towers, for tests and for the campaigns of weights/fuzz."""

import importlib
from typing import Any


def make_backbone(family: str) -> tuple[Any, Any]:
    """Returns a backbone of two small encoders, and its vision encoder."""
    import keras_hub

    sizes = {"hidden_dim": 16, "num_layers": 2, "num_heads": 2, "intermediate_dim": 24}
    text = {**sizes, "vocabulary_size": 30, "embedding_dim": 16, "max_sequence_length": 8}
    backbone = getattr(keras_hub.models, f"{family}Backbone")
    classes = f"keras_hub.src.models.{family.lower()}.{family.lower()}"
    encoders = {}
    for part, fields in (("vision", {"patch_size": 4, "image_shape": (16, 16, 3)}), ("text", {})):
        module = importlib.import_module(f"{classes}_{part}_encoder")
        encoder = getattr(module, f"{family}{part.title()}Encoder")
        encoders[part] = encoder(**{**(text if part == "text" else sizes), **fields})
    projection = {"projection_dim": 8} if family == "CLIP" else {}
    return backbone(encoders["vision"], encoders["text"], **projection), encoders["vision"]
