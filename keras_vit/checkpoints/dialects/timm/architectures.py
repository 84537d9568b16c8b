"""Arguments that follow from the name of a timm architecture, not from arrays or `model_args`."""

import re
from typing import Any

from keras_vit.checkpoints.dialects.json_fields import Json, object_at

TO_WRITE: dict[tuple[int, ...] | None, str] = {
    None: "vit_base_patch16_224",
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}
"""Units of a stem -> the registered architecture to write; `model_args` state differences."""

_HEADS = {
    "tiny": 3,
    "small": 6,
    "base": 12,
    "large": 16,
    "huge": 16,
    "giant": 16,
    "giantopt": 16,
    "gigantic": 16,
    "so400m": 16,
}
"""Size in an architecture's name -> number of heads."""

PLAIN = (
    rf"(?:vit|deit|eva|flexivit)_({'|'.join(_HEADS)})"
    r"(?:_(?:patch\d+|r_s16_p8|r26_s32|r50_s16|r50_s32|siglip|gap|sam|dino|miil|in21k|\d+))*"
)
"""Names of architectures with the blocks of a ViT. Another word, such as `rpn`, stands for
another block."""

_OTHERWISE: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"flexivit_.*", {"no_embed_class": True}),
    (r".*_(siglip|gap)_.*", {"class_token": False}),
    (r"vit_base_patch16_gap_.*", {"num_heads": 16}),
    (r"vit_(base_patch32|giantopt_patch16|so400m_patch16)_siglip_.*", {"act_layer": "gelu_tanh"}),
    (r"vit_large_patch16_siglip_(gap_)?512", {"act_layer": "gelu_tanh"}),
)
"""Patterns of architectures, and the arguments of each that do not follow from its arrays."""


def assumed_arguments(config: Json) -> dict[str, Any]:
    """Returns the arguments of a model that its `model_args` may leave out.

    Args:
        config: contents of `config.json`.
    """
    architecture = str(config.get("architecture"))
    plain = re.fullmatch(PLAIN, architecture)
    arguments: dict[str, Any] = {"class_token": True}
    if plain is not None:
        arguments["num_heads"] = _HEADS[plain[1]]
    for pattern, others in _OTHERWISE:
        if re.fullmatch(pattern, architecture):
            arguments |= others
    size = object_at(config, ("pretrained_cfg",)).get("input_size")
    if size is not None:
        arguments["img_size"] = size[-2:] if isinstance(size, list) else size
    arguments["global_pool"] = config.get("global_pool", "token")
    return arguments
