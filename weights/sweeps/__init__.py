"""Sweeps over what libraries publish: random weights, the library's forward pass against keras_vit.

    python -m weights.sweeps timm            # every pretrained tag; half an hour on one core
    python -m weights.sweeps transformers    # the rows of `tests/checkpoints/cases.py`
    python -m weights.sweeps keras_hub       # with KERAS_BACKEND=tensorflow

Each model is made small, with a random value in every array, saved as the library saves it, and
read by keras_vit. It is equal, refused with a reason, or wrong. A sweep writes its outcomes to
`weights/sweeps/results/` and their table into `weights/sweeps/RECORD.md`.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keras_vit.errors import CheckpointError
from tests.checkpoints.cases import CASES, Case
from tests.checkpoints.references import Reading, differences, refer


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


def outcome(case: Case, group: str, names: tuple[str, ...], *given: Any) -> Outcome:
    """Compares one model of a library with keras_vit, by its folder and, of timm, by its file."""
    with TemporaryDirectory() as folder:
        readings = refer(case, Path(folder), *given).readings[:2]
        return Outcome(group, names, *(_judge(case, reading) for reading in readings))


def _judge(case: Case, reading: Reading) -> str:
    """What a comparison ends in: equal, wrong, or the words of a refusal without its path."""
    try:
        error = max(differences(reading).values())
    except CheckpointError as reason:
        return re.sub(r"^\S*?: ?", "refused: ", str(reason)).split("\n")[0][:300]
    return "equal" if error <= case.tolerance else f"wrong by {error:.1e}"


def outcomes(library: str, names: tuple[str, ...] = ()) -> Iterator[Outcome]:
    """Runs the sweep over some rows of a library, or all."""
    for case in CASES:
        is_compared = case.library == library and not case.refused
        if is_compared and (not names or case.kind in names):
            yield outcome(case, "classes", (str(case),))
