"""Options that several commands share."""

import dataclasses
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
"""An integer above 0."""

Share = Annotated[float, Parameter(validator=Number(gte=0, lt=1))]
"""A number in [0, 1)."""

Pixels = Annotated[tuple[Positive, ...], Parameter(consume_multiple=(1, 2))]
"""One number of pixels for a square, or height and width."""

_FORMATS = Group("Form of the answer", validator=mutually_exclusive)


def size_of(pixels: tuple[int, ...]) -> int | tuple[int, int]:
    """Returns one number for a square, or height and width."""
    return (pixels[0], pixels[1]) if len(pixels) > 1 else pixels[0]


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Output:
    """The form of an answer on stdout.

    Args:
        csv: print comma-separated lines.
        json: print JSON.
    """

    csv: Annotated[bool, Parameter(group=_FORMATS)] = False
    json: Annotated[bool, Parameter(group=_FORMATS)] = False


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Fields:
    """Facts that the files of a checkpoint leave open, or that the user changes.

    Args:
        image_size: pixels, or height and width, to which the positions are resized.
        num_heads: attention heads, for files that do not state them.
    """

    image_size: Pixels | None = None
    num_heads: Positive | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that the user has stated."""
        size = {} if self.image_size is None else {"image_size": size_of(self.image_size)}
        heads = {} if self.num_heads is None else {"num_heads": self.num_heads}
        return {**size, **heads}
