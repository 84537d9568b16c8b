"""How the tokens of the last block become the input of the head (Eq. 4)."""

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
"""What the head reads."""
TOKEN_POOLINGS = ("token", "tokens", "token_and_mean", "token_and_distillation")
"""Poolings that need a class token."""
StagePooling: TypeAlias = Literal["token", "gap", "token_and_mean"]
STAGE_POOLINGS = choice(*get_args(StagePooling), None)
"""How the tokens of any stage become one vector, whatever the model pools; None: not at all."""


@dataclasses.dataclass(frozen=True)
class Pool(Fields):
    """The pooling of tokens before the head.

    Args:
        kind: the input of the head. `"token"`: the class token (the paper), the mean of several;
            `"tokens"`: all class tokens side by side (RADIO); `"gap"`: the mean of the patches;
            `"mean"`: the mean of all tokens (keras-hub); `"map"`: multi-head attention pooling of
            all tokens; `"map_of_patches"`: of the patches alone (SBB); `"unpooled"`: every token;
            `"token_and_mean"`: the class token and, after it, the mean of the patches,
            `2 * hidden_size` values (DINOv2), or more by `blocks`; `"token_and_distillation"`: a
            head each for the class token and the distillation token, whose logits are averaged
            (DeiT).
        blocks: number of last blocks, each followed by the last norm, whose class tokens
            `"token_and_mean"` reads, from the earliest to the last; the mean is the last block's
            (4 in DINOv2's larger linear classifiers).
        norm: place of the last norm: `"before"` the pooling (the paper); `"after"` the mean of
            the tokens (`fc_norm` of timm); `"none"`, no such norm.
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
            "tokens": "class tokens side by side",
            "mean": "a mean of all tokens",
            "token_and_mean": "a head that reads class token and mean",
            "token_and_distillation": "a distillation head",
            "map_of_patches": "attention pooling of the patches alone",
        },
    )
    blocks: int = field(1, lacking="a head that reads class tokens of several blocks")
    norm: str = field(
        "before",
        choice("before", "after", "none"),
        lacking={"none": "an encoder without a last norm"},
    )
    num_heads: int | None = field(None, lacking="another number of heads in attention pooling")
    mlp_dim: int | None = field(None, lacking="another width in attention pooling")

    @property
    def is_map(self) -> bool:
        """Whether the pooling is multi-head attention pooling."""
        return self.kind in ("map", "map_of_patches")

    @property
    def is_mean(self) -> bool:
        """Whether the pooling is the mean of tokens."""
        return self.kind in ("gap", "mean")
