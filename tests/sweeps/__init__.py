"""Sweeps over what libraries publish: random weights, the library's forward pass against keras_vit.

    python -m tests.sweeps timm

Each pretrained model of the library is made with two blocks and a random value in every array,
saved as the library saves it, and read by keras_vit from the folder and from the file alone. Every
model is equal, refused with a reason, or wrong. The table is printed as Markdown.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable

TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a model.

    Args:
        group: the row of the table that it counts for.
        names: the pretrained models of this kind.
        folder, file: `"equal"`, `"wrong ..."`, or the reason of the refusal, by folder and by the
            file of weights alone.
    """

    group: str
    names: tuple[str, ...]
    folder: str
    file: str


def judged(compare: Callable[[], float], refusal: type[Exception]) -> str:
    """Returns what a comparison ends in: equal, wrong, or the words of a refusal."""
    try:
        error = compare()
    except refusal as reason:
        return f"refused: {reason}"
    return "equal" if error <= TOLERANCE else f"wrong by {error:.1e}"


def table(outcomes: Iterable[Outcome]) -> str:
    """Returns the counts of every group as a Markdown table, and all refusals below it."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    reasons: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        for way in ("folder", "file"):
            answer = getattr(outcome, way)
            verdict = answer.partition(" ")[0].rstrip(":")
            counts[outcome.group][f"{way} {verdict}"] += len(outcome.names)
            if verdict != "equal":
                reasons[f"{way}: {answer}"].update(outcome.names)
        counts[outcome.group]["all"] += len(outcome.names)
    columns = [f"{way} {v}" for way in ("folder", "file") for v in ("equal", "refused", "wrong")]
    lines = [
        f"| models | all | {' | '.join(columns)} |",
        "|---" * (len(columns) + 2) + "|",
        *(
            f"| {group} | {found['all']} | {' | '.join(str(found[c]) for c in columns)} |"
            for group, found in counts.items()
        ),
        "",
        *(
            f"- {len(names)}: {why} ({', '.join(sorted(names)[:2])})"
            for why, names in reasons.items()
        ),
    ]
    return "\n".join(lines)
