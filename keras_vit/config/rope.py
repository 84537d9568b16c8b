"""The settings of rotary positions."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.config.rules import choice, each, enforce, is_number, known_fields, pair

ROPE_FORMS = ("dinov3", "axial", "mixed")
"""Forms of rotary positions."""
ROPE_INDEXINGS = ("ij", "xy")

_RULES = (
    choice("form", ROPE_FORMS),
    choice("indexing", ROPE_INDEXINGS),
    *each("theta", lambda v: is_number(v) and v > 0, "a positive number"),
    *each("offset", is_number, "a number"),
)


@dataclasses.dataclass(frozen=True)
class Rope:
    """The rotation of queries and keys by the row and column of their patch.

    `keras_vit.layers.RotaryPositions` states the formulas.

    Args:
        form: `"dinov3"`: coordinates run from -1 to 1 along each side of an image of any
            size; channels are paired half a head apart. `"axial"`: coordinates count patches,
            neighbouring channels are paired (EVA-02, the Perception Encoder, SBB). `"mixed"`:
            as axial, with frequencies that every block and head learns for row and column.
        theta: base of the frequencies; for `"mixed"`, of the initial frequencies.
        offset: added to row and column (1 in the Perception Encoder); not for `"dinov3"`.
        reference_grid: grid (rows, columns) to which `"axial"` scales the grid of every image;
            None counts the patches without scaling.
        indexing: `"ij"`: the first half of the angles belongs to the row; `"xy"`: to the column.

    Raises:
        ConfigError: names the field, what was found and what was expected.
    """

    form: str = "axial"
    theta: float = 10_000.0
    offset: float = 0.0
    reference_grid: tuple[int, int] | None = None
    indexing: str = "ij"

    def __post_init__(self) -> None:
        enforce(self, _RULES, "rope.")
        if self.reference_grid is not None:
            grid = pair("rope.reference_grid", self.reference_grid)
            object.__setattr__(self, "reference_grid", grid)
        for field in ("theta", "offset"):
            object.__setattr__(self, field, float(getattr(self, field)))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain JSON types."""
        grid = self.reference_grid
        return {**dataclasses.asdict(self), "reference_grid": grid and list(grid)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Rope":
        """Builds from `to_dict()`'s output. Raises `ConfigError` on an unknown field."""
        return cls(**known_fields(cls, fields, "rope."))
