"""The configuration of learned tokens: class, distillation, register and mask tokens."""

import dataclasses

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import Values, is_int

MOST_TOKENS = 1024
"""Most learned tokens of one kind; DINOv2 and DINOv3 have 4 registers."""

_COUNT = Values(lambda v: is_int(v) and 0 <= v <= MOST_TOKENS, f"an int from 0 to {MOST_TOKENS}")


@dataclasses.dataclass(frozen=True)
class LearnedTokens(Fields):
    """The learned tokens before the patch tokens, in this order, and the mask token.

    Args:
        class_tokens: number of class tokens: 1 in the paper, 0 for none. With several (Pixio),
            pooling by `"token"` reads their mean.
        distillation: whether a distillation token follows the class token (DeiT).
        registers: number of register tokens (DINOv2, DINOv3; arXiv 2309.16588).
        mask: whether the weights include the mask token of masked pretraining, which checkpoints
            store and inference does not use.

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    _prefix = "tokens."

    class_tokens: int = field(1, _COUNT, lacking="several class tokens", plain=(0, 1))
    distillation: bool = field(False, lacking="a distillation token")
    registers: int = field(0, _COUNT, lacking="register tokens")
    mask: bool = field(False, lacking="a mask token")

    @property
    def num_before_registers(self) -> int:
        """Number of class and distillation tokens."""
        return self.class_tokens + self.distillation

    @property
    def num_before_patches(self) -> int:
        """Number of tokens before the patches."""
        return self.num_before_registers + self.registers
