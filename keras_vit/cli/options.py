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


def size_of(pixels: tuple[int, ...] | None) -> int | tuple[int, int] | None:
    """Returns one number for a square, or height and width, or None."""
    if pixels is None:
        return None
    return (pixels[0], pixels[1]) if len(pixels) > 1 else pixels[0]


def drop_unset(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options without those that are None or False; 0 counts as stated."""
    return {k: v for k, v in options.items() if v is not None and v is not False}


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Output:
    """The form of an answer on stdout.

    Args:
        csv: print the answer as comma-separated lines.
        json: print the answer as JSON.
    """

    csv: Annotated[bool, Parameter(group=_FORMATS)] = False
    json: Annotated[bool, Parameter(group=_FORMATS)] = False


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Fields:
    """Facts that the files of a checkpoint leave open, or that the user changes.

    Args:
        image_size: pixels of the images, or height and width; the positions are resized to it.
        num_heads: number of attention heads, for files that do not state it.
    """

    image_size: Pixels | None = None
    num_heads: Positive | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that the user has stated."""
        return drop_unset({"image_size": size_of(self.image_size), "num_heads": self.num_heads})
