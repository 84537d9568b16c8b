"""The words of `ViTConfig`, and the rules about several of its fields together."""

from typing import Any

from keras_vit.config.rules import Rule, Values, is_int

CLASSIFIERS = ("token", "gap", "map", "unpooled", "token_unpooled")
"""What the head of the official code and of big_vision reads."""
FAMILY_CLASSIFIERS = ("token_and_mean", "token_and_distillation")
"""Classifiers of DINOv2 and of DeiT, which the official code does not have."""
POSITIONS = ("learned", "sincos2d", "none")
"""Kinds of absolute position embeddings."""
ACTIVATIONS = ("softmax", "sigmoid")
"""Functions that turn logits into probabilities, for `classifier_activation`."""
MLPS = ("plain", "gated")
"""Forms of a block's MLP."""
NORMS = ("layer", "rms")
"""Norms of a block."""
TOKEN_CLASSIFIERS = ("token", "token_unpooled", "token_and_mean", "token_and_distillation")
"""Classifiers that imply a class token."""
UNPOOLED_CLASSIFIERS = ("unpooled", "token_unpooled")

MOST_REGISTERS = 1024
"""Most register tokens of a model. DINOv2 and DINOv3 have 4."""

MOST_LAYERS = 1024
"""Most Transformer blocks of a model. The deepest published ones have 1,000 (DeepNet)."""


def _is_bias(value: Any) -> bool:
    each = value if isinstance(value, tuple) and len(value) == 3 else (value,)
    return all(isinstance(one, bool) for one in each)


BIASES = Values(_is_bias, "a bool, or one each for query, key and value")
CLASSES = Values(lambda v: is_int(v) and v >= 0, "an int, 0 for features alone")
REGISTERS = Values(
    lambda v: is_int(v) and 0 <= v <= MOST_REGISTERS, f"an int from 0 to {MOST_REGISTERS}"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "num_layers",
        lambda blocks: blocks <= MOST_LAYERS,
        f"num_layers={{num_layers}} is more than {MOST_LAYERS}, the most that keras_vit builds.",
    ),
    Rule(
        "hidden_size num_heads",
        lambda width, heads: width % heads == 0,
        "hidden_size={hidden_size} is not divisible by num_heads={num_heads}.",
    ),
    Rule(
        "position hidden_size",
        lambda kind, width: kind != "sincos2d" or (width % 4 == 0 and width >= 8),
        "position='sincos2d' needs a hidden_size that is a multiple of 4 and at least 8, "
        "found {hidden_size}.",
    ),
    Rule(
        "classifier class_token",
        lambda kind, token: not (kind in TOKEN_CLASSIFIERS and token is False),
        "classifier={classifier} needs class_token=True or None.",
    ),
    Rule(
        "distillation_token has_class_token",
        lambda distillation, token: token or not distillation,
        "distillation_token=True needs a class token.",
    ),
    Rule(
        "classifier representation_size projection_dim",
        lambda kind, *widths: kind not in FAMILY_CLASSIFIERS or widths == (None, None),
        "classifier={classifier} has neither representation_size nor projection_dim.",
    ),
    Rule(
        "representation_size projection_dim",
        lambda hidden, projected: None in (hidden, projected),
        "representation_size={representation_size} and projection_dim={projection_dim} exclude "
        "each other.",
    ),
    Rule(
        "class_token_in_mean classifier num_prefix_tokens",
        lambda pooled, kind, others: not pooled or (kind == "gap" and others),
        "class_token_in_mean=True needs classifier='gap' and a class token.",
    ),
    Rule(
        "numerics classifier final_norm",
        lambda numerics, kind, norm: not numerics.pool_before_norm or (kind == "gap" and norm),
        "numerics.pool_before_norm=True needs classifier='gap' and final_norm=True.",
    ),
    Rule(
        "hidden_size map_num_heads",
        lambda width, heads: heads is None or width % heads == 0,
        "hidden_size={hidden_size} is not divisible by map_num_heads={map_num_heads}.",
    ),
    Rule(
        "native_aspect resnet rope relative_position_bias position",
        lambda packed, *parts: not packed or not (any(parts[:3]) or parts[3] == "sincos2d"),
        "native_aspect=True has positions that are learned or none; it excludes resnet, rope, "
        "relative_position_bias and position='sincos2d'.",
    ),
    Rule(
        "rope head_dim",
        lambda rope, width: rope is None or width % 4 == 0,
        "rope needs heads of a multiple of 4 channels; hidden_size / num_heads is {head_dim}.",
    ),
)
"""The rules of `ViTConfig` about several fields; the valid values of one field stand with it."""
