"""The ResNet in front of a hybrid's patches (section 3.1 of the paper, last paragraph)."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import Values, is_number, is_positive_int
from keras_vit.errors import shown

GROUP_NORM_GROUPS = 32
"""Groups of every GroupNorm of the stem (the default of `flax.linen.GroupNorm`)."""

MOST_STAGES = 8
"""The deepest published stem has four stages; nine would reduce an image of 1024 to one pixel."""
MOST_UNITS = 1024
"""Most units of a stage; ResNet-200 has 36."""

_UNITS = Values(lambda units: isinstance(units, tuple | list), "the units per stage: (3, 4, 9)")
_FACTOR = Values(lambda v: is_number(v) and 0 < v < 1000, "a positive number below 1000")


class Unit(NamedTuple):
    """A bottleneck unit of a stem.

    Args:
        stage, number: place of the unit; both count from 1.
        channels: channels of its input; its output has `4 * filters`.
        filters: channels inside the bottleneck.
        strides: step of its second convolution in rows and columns.
    """

    stage: int
    number: int
    channels: int
    filters: int
    strides: int

    @property
    def name(self) -> str:
        """Name of the unit's layer, with which the paths of its weights start."""
        return f"stage{self.stage}_unit{self.number}"


@dataclasses.dataclass(frozen=True)
class ResNetStem(Fields):
    """The (possibly partial) ResNet in front of a hybrid's patches.

    Args:
        num_layers: bottleneck units per stage, at most 8 stages. The first stage keeps
            the resolution of the root, each later one halves it; `()` is the root
            alone (R+ViT-Ti/16).
        width_factor: the root has `int(64 * width_factor)` channels.

    Raises:
        ConfigError: a stage without units, or a width that the 32 groups of
            GroupNorm do not divide.
    """

    _prefix = "resnet."

    num_layers: tuple[int, ...] = field((), _UNITS)
    width_factor: float = field(1.0, _FACTOR)

    def _faults(self) -> Iterator[str]:
        units = self.num_layers
        if len(units) > MOST_STAGES:
            yield f"num_layers has more than {MOST_STAGES} stages: {shown(units)}."
        if not all(is_positive_int(count) and count <= MOST_UNITS for count in units):
            yield (
                f"num_layers must hold a positive int up to {MOST_UNITS} for each stage, found "
                f"{shown(units)}."
            )
        if self.width <= 0 or self.width % GROUP_NORM_GROUPS:
            yield (
                f"width_factor={self.width_factor} makes a root of {self.width} channels, which "
                f"GroupNorm's {GROUP_NORM_GROUPS} groups do not divide. Use a multiple of 0.5."
            )

    def __post_init__(self) -> None:
        self._validate()
        self._set("num_layers", tuple(self.num_layers))

    @property
    def width(self) -> int:
        """Channels of the root, and bottleneck channels of the first stage."""
        return int(64 * self.width_factor)

    def units(self) -> Iterator[Unit]:
        """Yields the bottleneck units, in the order of their calls."""
        channels = self.width
        for stage, count in enumerate(self.num_layers, start=1):
            filters = self.width * 2 ** (stage - 1)
            for number in range(1, count + 1):
                strides = 2 if stage > 1 and number == 1 else 1
                yield Unit(stage, number, channels, filters, strides)
                channels = 4 * filters

    @property
    def out_channels(self) -> int:
        """Number of channels of the stem's output, which the patch embedding reads."""
        if not self.num_layers:
            return self.width
        return 4 * self.width * 2 ** (len(self.num_layers) - 1)

    @property
    def halvings(self) -> int:
        """Number of times that the stem halves the resolution, rounding up each time."""
        return 2 + max(0, len(self.num_layers) - 1)
