"""The words of `ViTConfig`, and the rules about several of its fields together."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, get_args

from keras_vit.config.rules import Values, choice, is_int
from keras_vit.errors import shown

POOLINGS = ("token", "gap", "map", "unpooled", "token_unpooled")
"""What the head of the official code and of big_vision reads."""
FAMILY_POOLINGS = ("token_and_mean", "token_and_distillation")
"""Poolings of DINOv2 and of DeiT, which the official code does not have."""
POSITIONS = ("learned", "sincos2d", "none")
"""Kinds of absolute position embeddings."""
ACTIVATIONS = ("softmax", "sigmoid")
"""Functions that turn logits into probabilities, for `classifier_activation`."""
Task: TypeAlias = Literal["single_label", "multi_label", "regression"]
"""What is predicted for an image: one class, any number of classes, or numbers."""
TASKS = choice(*get_args(Task))
MLPS = ("plain", "gated")
"""Forms of a block's MLP."""
NORMS = ("layer", "rms")
"""Norms of a block."""
QK_NORMS = ("head", "width")
"""Channels of queries and keys that are normed together."""
TOKEN_POOLINGS = ("token", "token_unpooled", "token_and_mean", "token_and_distillation")
"""Poolings that imply a class token."""
UNPOOLED_POOLINGS = ("unpooled", "token_unpooled")
StagePooling: TypeAlias = Literal["token", "gap", "token_and_mean"]
STAGE_POOLINGS = choice(*get_args(StagePooling), None)
"""How the tokens of any stage become one vector, whatever the model pools; None: not at all."""

MOST_REGISTERS = 1024
"""Most register tokens of a model. DINOv2 and DINOv3 have 4."""

MOST_LAYERS = 1024
"""Most Transformer blocks of a model. The deepest published ones have 1,000 (DeepNet)."""


def _is_bias(value: Any) -> bool:
    each = value if isinstance(value, tuple) and len(value) == 3 else (value,)
    return all(isinstance(one, bool) for one in each)


BIASES = Values(_is_bias, "a bool, or one each for query, key and value")
CLASSES = Values(lambda v: is_int(v) and v >= 0, "an int, 0 for features alone")
CLASS_TOKENS = Values(
    lambda v: is_int(v) and 1 <= v <= MOST_REGISTERS, f"an int from 1 to {MOST_REGISTERS}"
)
REGISTERS = Values(
    lambda v: is_int(v) and 0 <= v <= MOST_REGISTERS, f"an int from 0 to {MOST_REGISTERS}"
)
COUNT_OR_0 = Values(lambda v: is_int(v) and v >= 0, "an int from 0 on")


def find_faults(config: Any) -> Iterator[str]:
    """Yields a sentence for each rule about several fields that a `ViTConfig` breaks."""
    width, pooling = config.hidden_size, config.pooling
    if config.num_layers > MOST_LAYERS:
        blocks = shown(config.num_layers)
        yield f"num_layers={blocks} is more than {MOST_LAYERS}, the most that keras_vit builds."
    for name in ("num_heads", "map_num_heads"):
        heads = getattr(config, name)
        if heads is not None and width % heads:
            yield f"hidden_size={shown(width)} is not divisible by {name}={shown(heads)}."
    if config.position == "sincos2d" and (width % 4 or width < 8):
        yield (
            "position='sincos2d' needs a hidden_size that is a multiple of 4 and at least 8, found "
            f"{shown(width)}."
        )
    if pooling in TOKEN_POOLINGS and config.class_token is False:
        yield f"pooling={pooling!r} needs class_token=True or None."
    if config.distillation_token and not config.has_class_token:
        yield "distillation_token=True needs a class token."
    if config.num_class_tokens > 1 and (config.distillation_token or config.class_token_blocks > 1):
        yield (
            f"num_class_tokens={config.num_class_tokens} excludes distillation_token and "
            "class_token_blocks."
        )
    of_one = ("softmax",) if config.is_binary else ()  # it would be 1 for every image
    refused = {"multi_label": ("softmax",), "regression": ACTIVATIONS}.get(config.task, of_one)
    if config.classifier_activation in refused:
        yield (
            f"task={config.task!r} with num_classes={shown(config.num_classes)} excludes "
            f"classifier_activation={config.classifier_activation!r}; classifier_activation=None "
            "leaves it out."
        )
    layers = config.representation_size, config.projection_dim
    if pooling in FAMILY_POOLINGS and layers != (None, None):
        yield f"pooling={pooling!r} has neither representation_size nor projection_dim."
    if None not in layers:
        yield "representation_size={} and projection_dim={} exclude each other.".format(
            *map(shown, layers)
        )
    yield from _find_pooling_faults(config)
    beside = (config.resnet, config.rope, config.relative_position_bias)
    resize = config.numerics.position_resize == "bilinear_longer_side"
    if config.native_aspect and (any(beside) or resize or config.position == "sincos2d"):
        yield (
            "native_aspect=True has positions that are learned or none; it excludes resnet, rope, "
            "relative_position_bias, position='sincos2d' and position_resize="
            "'bilinear_longer_side'."
        )
    if config.rope is not None and config.head_dim % 4:
        yield (
            "rope needs heads of a multiple of 4 channels; hidden_size / num_heads is "
            f"{shown(config.head_dim)}."
        )


def _find_pooling_faults(config: Any) -> Iterator[str]:
    pooling, blocks = config.pooling, config.class_token_blocks
    if blocks > 1 and (pooling != "token_and_mean" or blocks > config.num_layers):
        yield (
            f"class_token_blocks={shown(blocks)} needs pooling='token_and_mean' and at least "
            f"as many blocks, found pooling={pooling!r} and {config.num_layers} blocks."
        )
    if config.joined_class_tokens > config.num_class_tokens:
        yield (
            f"joined_class_tokens={shown(config.joined_class_tokens)} is more than "
            f"num_class_tokens={config.num_class_tokens}."
        )
    if config.class_token_in_mean and not (pooling == "gap" and config.num_prefix_tokens):
        yield "class_token_in_mean=True needs pooling='gap' and a class token."
    if config.numerics.pool_before_norm and not (pooling == "gap" and config.final_norm):
        yield "numerics.pool_before_norm=True needs pooling='gap' and final_norm=True."
