"""The configuration of pooling: from the tokens of the last block to the input of the head."""

import dataclasses
from typing import Literal, TypeAlias, get_args

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import choice

POOLINGS = (
    "token",
    "tokens",
    "gap",
    "mean",
    "map",
    "map_of_patches",
    "unpooled",
    "token_and_mean",
    "token_and_distillation",
)
"""Kinds of pooling, see `Pool`."""
TOKEN_POOLINGS = ("token", "tokens", "token_and_mean", "token_and_distillation")
"""Poolings that need a class token."""
StagePooling: TypeAlias = Literal["token", "gap", "token_and_mean"]
STAGE_POOLINGS = choice(*get_args(StagePooling), None)
"""Poolings of any stage into one vector, whatever the model's own; None keeps the tokens."""


@dataclasses.dataclass(frozen=True)
class Pool(Fields):
    """The pooling of the tokens of the last block into the input of the head (Eq. 4).

    Args:
        kind: the input of the head. `"token"`: the class token (the paper), or the mean of several
            class tokens; `"tokens"`: all class tokens concatenated (RADIO); `"gap"`: the mean of
            the patch tokens; `"mean"`: the mean of all tokens (keras-hub); `"map"`: multi-head
            attention pooling of all tokens; `"map_of_patches"`: attention pooling of the patch
            tokens (SBB); `"unpooled"`: every token; `"token_and_mean"`: the class token
            concatenated with the mean of the patch tokens, `2 * hidden_size` values (DINOv2), or
            more with `blocks`; `"token_and_distillation"`: separate heads for the class token and
            the distillation token, whose logits are averaged (DeiT).
        blocks: with `"token_and_mean"`, the number of last blocks whose class tokens are
            concatenated, earliest first, each after the last norm; the mean is that of the last
            block (4 in DINOv2's larger linear classifiers).
        norm: place of the last norm: `"before"` the pooling (the paper); `"after"` the mean of
            the tokens (`fc_norm` of timm); `"none"` for no such norm.
        num_heads: heads of attention pooling; None: those of the blocks.
        mlp_dim: width of the hidden layer in the MLP of attention pooling; None: that of the
            blocks.

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    kind: str = field(
        "token",
        choice(*POOLINGS),
        lacking={
            "tokens": "concatenated class tokens",
            "mean": "a mean of all tokens",
            "token_and_mean": "a head on the class token and the mean of the patches",
            "token_and_distillation": "a distillation head",
            "map_of_patches": "attention pooling of the patches only",
        },
    )
    blocks: int = field(1, lacking="a head on the class tokens of several blocks")
    norm: str = field(
        "before",
        choice("before", "after", "none"),
        lacking={"none": "an encoder without a last norm"},
    )
    num_heads: int | None = field(None, lacking="a different number of heads in attention pooling")
    mlp_dim: int | None = field(None, lacking="a different MLP width in attention pooling")

    @property
    def is_map(self) -> bool:
        """Whether the pooling is multi-head attention pooling."""
        return self.kind in ("map", "map_of_patches")

    @property
    def is_mean(self) -> bool:
        """Whether the pooling is the mean of tokens."""
        return self.kind in ("gap", "mean")
