"""The configuration of rotary position embeddings (RoPE)."""

import dataclasses

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import POSITIVE_NUMBER, choice, pair

ROPE_FORMS = ("dinov3", "axial", "axial_xy", "axial_xy_from_1", "mixed", "mixed_xy")
"""Forms of rotary position embeddings, see `Rope`."""


@dataclasses.dataclass(frozen=True)
class Rope(Fields):
    """The options of rotary position embeddings (RoPE) for patches in rows and columns.

    `keras_vit.layers.RotaryPositions` documents the formulas.

    Args:
        form: `"dinov3"`: coordinates run from -1 to 1 along each side of an image of any
            size; channels are paired half a head apart. `"axial"`: coordinates count patches,
            neighbouring channels are paired, and the first half of the angles belongs to the row
            (EVA-02). `"axial_xy"`: the first half belongs to the column (RoPE-ViT).
            `"axial_xy_from_1"`: the same, but patches are counted from 1 (Perception Encoder).
            `"mixed"` and `"mixed_xy"`: as the axial forms, with learned frequencies for row and
            column in every block and head.
        theta: base of the frequencies, or of the initial values of learned frequencies.
        reference_grid: grid (rows, columns) to which axial forms scale the grid of every image;
            None for no scaling.

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    form: str = field("axial", choice(*ROPE_FORMS))
    theta: float = field(10_000.0, POSITIVE_NUMBER)
    reference_grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference_grid is not None:
            self._set("reference_grid", pair(self._prefix + "reference_grid", self.reference_grid))

    @property
    def is_learned(self) -> bool:
        """Whether the frequencies are learned, for each block and head."""
        return self.form in ("mixed", "mixed_xy")

    @property
    def pairs_neighbours(self) -> bool:
        """Whether neighbouring channels are rotated in pairs, not channels half a head apart."""
        return self.form != "dinov3"

    @property
    def starts_with_columns(self) -> bool:
        """Whether the first half of the angles belongs to the column of a patch."""
        return self.form in ("axial_xy", "axial_xy_from_1", "mixed_xy")

    @property
    def first(self) -> int:
        """Number of the first row and column."""
        return 1 if self.form == "axial_xy_from_1" else 0
