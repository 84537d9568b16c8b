"""The configuration of the stem before the patch embedding: none, a ResNet, or packed patches."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import Values, choice, is_number, is_positive_int
from keras_vit.errors import shown

GROUP_NORM_GROUPS = 32
"""Groups of every GroupNorm in the stem (the default of `flax.linen.GroupNorm`)."""

MOST_STAGES = 8
"""Most stages: published stems have at most four; nine reduce 1024 pixels to one."""
MOST_UNITS = 1024
"""Most units per stage; ResNet-200 has 36."""

_UNITS = Values(lambda units: isinstance(units, tuple | list), "the units per stage: (3, 4, 9)")
_FACTOR = Values(lambda v: is_number(v) and 0 < v < 1000, "a positive number below 1000")


class Unit(NamedTuple):
    """A bottleneck unit of a stem.

    Args:
        stage, number: position of the unit; both are counted from 1.
        channels: channels of its input; its output has `4 * filters`.
        filters: channels inside the bottleneck.
        strides: stride of its second convolution.
    """

    stage: int
    number: int
    channels: int
    filters: int
    strides: int

    @property
    def name(self) -> str:
        """Name of the unit's layer, and prefix of the paths of its weights."""
        return f"stage{self.stage}_unit{self.number}"


class StdConv(NamedTuple):
    """The arithmetic of the standardised convolutions and the norms of a stem.

    Args:
        takes_root_of_sum: True standardises a kernel as `(w - mean) / sqrt(var + epsilon)`, False
            as `(w - mean) / (std + epsilon)`.
        epsilon: added to the variance or deviation of a kernel.
        norm_epsilon: added to the variance in every GroupNorm.
    """

    takes_root_of_sum: bool
    epsilon: float
    norm_epsilon: float


ARITHMETIC = {
    "resnet": StdConv(False, 1e-5, 1e-6),  # vit_jax/models_resnet.py
    "resnet_timm": StdConv(True, 1e-8, 1e-5),  # timm, layers/std_conv.py
}
"""The arithmetic of each kind of ResNet stem."""


@dataclasses.dataclass(frozen=True)
class Stem(Fields):
    """The stem before the patch embedding.

    Args:
        kind: `"none"`: a plain Vision Transformer; `"resnet"`: a hybrid (section 3.1, last
            paragraph); `"resnet_timm"`: a hybrid in timm's arithmetic, which uses different
            epsilons in kernels and norms; `"packed"`: images that keep their aspect ratio
            (NaFlex). Each is resized to at most the number of patches of `image_size`, and a batch
            is an array of packed patches, see `keras_vit.images.packing`.
        units: bottleneck units of a ResNet per stage, at most 8 stages. The first stage keeps
            the resolution of the root, and each later stage halves it; `()` for the root without
            stages (R+ViT-Ti/16).
        width_factor: the root of a ResNet has `int(64 * width_factor)` channels.

    Raises:
        ConfigError: a stage has no units, or the width is not divisible by the 32 groups of
            GroupNorm.
    """

    kind: str = field(
        "none",
        choice("none", *ARITHMETIC, "packed"),
        lacking={"packed": "packed patches of images of any shape"},
    )
    units: tuple[int, ...] = field((), _UNITS)
    width_factor: float = field(1.0, _FACTOR)

    def _faults(self) -> Iterator[str]:
        units = self.units
        if not self.is_resnet and (units or self.width_factor != 1):
            yield f"units and width_factor are for a ResNet; the stem has kind={self.kind!r}."
        if len(units) > MOST_STAGES:
            yield f"units has more than {MOST_STAGES} stages: {shown(units)}."
        if not all(is_positive_int(count) and count <= MOST_UNITS for count in units):
            yield (
                f"units must hold a positive int up to {MOST_UNITS} for each stage, found "
                f"{shown(units)}."
            )
        if self.width <= 0 or self.width % GROUP_NORM_GROUPS:
            yield (
                f"width_factor={self.width_factor} makes a root of {self.width} channels, not "
                f"divisible by the {GROUP_NORM_GROUPS} groups of GroupNorm. Use a multiple of 0.5."
            )

    def __post_init__(self) -> None:
        self._validate()
        self._set("units", tuple(self.units))

    @property
    def is_resnet(self) -> bool:
        """Whether the stem is a ResNet."""
        return self.kind in ARITHMETIC

    @property
    def is_packed(self) -> bool:
        """Whether the model takes packed patches."""
        return self.kind == "packed"

    @property
    def width(self) -> int:
        """Channels of the root, and bottleneck channels of the first stage."""
        return int(64 * self.width_factor)

    def list_units(self) -> Iterator[Unit]:
        """Yields the bottleneck units, in the order of their calls."""
        channels = self.width
        for stage, count in enumerate(self.units, start=1):
            filters = self.width * 2 ** (stage - 1)
            for number in range(1, count + 1):
                strides = 2 if stage > 1 and number == 1 else 1
                yield Unit(stage, number, channels, filters, strides)
                channels = 4 * filters

    @property
    def out_channels(self) -> int:
        """Number of channels of the stem's output, which the patch embedding reads."""
        if not self.units:
            return self.width
        return 4 * self.width * 2 ** (len(self.units) - 1)

    @property
    def halvings(self) -> int:
        """How many times the stem halves the resolution, rounding up each time."""
        return 2 + max(0, len(self.units) - 1) if self.is_resnet else 0
