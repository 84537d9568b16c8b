"""The settings of rotary positions."""

import dataclasses

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import POSITIVE_NUMBER, choice, pair

ROPE_FORMS = ("dinov3", "axial", "mixed")
"""Forms of rotary positions."""
ROPE_INDEXINGS = ("ij", "xy")


@dataclasses.dataclass(frozen=True)
class Rope(Fields):
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
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    _prefix = "rope."

    form: str = field("axial", choice(*ROPE_FORMS))
    theta: float = field(10_000.0, POSITIVE_NUMBER)
    offset: float = 0.0
    reference_grid: tuple[int, int] | None = None
    indexing: str = field("ij", choice(*ROPE_INDEXINGS))

    def __post_init__(self) -> None:
        self._validate()
        if self.reference_grid is not None:
            self._set("reference_grid", pair("rope.reference_grid", self.reference_grid))
