"""Sweeps over what libraries publish: random weights, the library's forward pass against keras_vit.

    python -m weights.sweeps timm            # every pretrained tag; half an hour on one core
    python -m weights.sweeps transformers    # the classes of `weights/sweeps/transformers.py`
    python -m weights.sweeps keras_hub

Each model is made small, with a random value in every array, saved as the library saves it, and
read by keras_vit. It is equal, refused with a reason, or wrong. A sweep writes its outcomes to
`weights/sweeps/results/` and their table into `weights/sweeps/RECORD.md`; the module of a sweep
defines `outcomes`.
"""

import dataclasses
from collections.abc import Callable

TOLERANCE, HYBRID_TOLERANCE = 1e-5, 3e-5
"""Largest differences that count as equal, as shares of the largest value."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a model.

    Args:
        group: the row of the table that it counts for.
        names: the pretrained models, or the class with its options, of this kind.
        folder, file: `"equal"`, `"wrong ..."`, or the reason of the refusal, by folder and by the
            file of weights and its name; `file` is `""` where the library's files are never alone.
    """

    group: str
    names: tuple[str, ...]
    folder: str
    file: str = ""


def judged(
    compare: Callable[[], float], refusal: type[Exception], tolerance: float = TOLERANCE
) -> str:
    """Returns what a comparison ends in: equal, wrong, or the words of a refusal."""
    try:
        error = compare()
    except refusal as reason:
        return f"refused: {reason}"
    return "equal" if error <= tolerance else f"wrong by {error:.1e}"
