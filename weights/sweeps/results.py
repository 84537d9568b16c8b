"""The outcomes of sweeps as JSON, and their tables in weights/sweeps/RECORD.md."""

import collections
import dataclasses
import json
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from weights.sweeps import Outcome

FOLDER = Path(__file__).parent / "results"
DOCUMENT = Path(__file__).with_name("RECORD.md")
RELEASES = FOLDER / "releases.json"
WAYS = {"folder": "folder", "file": "file with its name"}
_VERDICTS = ("equal", "refused", "wrong")


def _release(library: str) -> str:
    package = library.replace("_", "-")
    return f"{package} {metadata.version(package)}"


def write(library: str, outcomes: Iterable[Outcome]) -> None:
    """Writes the JSON of a sweep, and its table."""
    rows = [dataclasses.asdict(outcome) for outcome in outcomes]
    content = {"library": _release(library), "outcomes": rows}
    (FOLDER / f"{library}.json").write_text(json.dumps(content, indent=1) + "\n")
    document(library)


def _counts(outcomes: Iterable[Outcome], way: str) -> list[int]:
    """The number of models of each verdict, by the folder or by the file with its name."""
    found: collections.Counter[str] = collections.Counter()
    for outcome in outcomes:
        found[re.split("[ :]", getattr(outcome, way))[0]] += len(outcome.names)
    return [found[verdict] for verdict in _VERDICTS]


def document(library: str) -> None:
    """Puts the counts of every group and the reasons of the refusals into RECORD.md."""
    content = json.loads((FOLDER / f"{library}.json").read_text())
    outcomes = [Outcome(**row) for row in content["outcomes"]]
    ways = [way for way in WAYS if getattr(outcomes[0], way)]
    groups = collections.defaultdict(list)
    for outcome in outcomes:
        groups[f"`{outcome.group}`"].append(outcome)
    rows = [*groups.items()] if len(groups) == 1 else [*groups.items(), ("all", outcomes)]
    columns = [f"{WAYS[way]}: {', '.join(_VERDICTS)}" for way in ways]
    lines = [_line((content["library"], "models", *columns)), _line(["---"] * (len(ways) + 2))]
    for title, members in rows:
        told = [_counts(members, way) for way in ways]
        cells = (", ".join(map(str, counts)) for counts in told)
        lines.append(_line((title, sum(told[0]), *cells)))
    reasons: dict[str, dict[str, None]] = collections.defaultdict(dict)  # names, each once
    for outcome in outcomes:
        for way in ways:
            reasons[_short(getattr(outcome, way))] |= dict.fromkeys(outcome.names)
    reasons.pop("equal", None)
    lines += ["", "Not equal, by the folder or by the file:", ""] if reasons else []
    for why, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        lines.append(f"- {len(names)}: {why} (`{next(iter(names))}`)")
    _put(library, lines)


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _short(answer: str) -> str:
    """The reason without the facts of one model: what to give, and who has which value."""
    reason = re.split(
        r"\. (Give|Choose by) | of a known family ", answer.removeprefix("refused: ")
    )[0]
    reason = re.sub(r"^(a JSON file beside the weights: |read as [\w/]+: )", "", reason)
    named = r"^architecture='[^']*', an architecture with (.*), which keras_vit lacks"
    return re.sub(named, r"\1", reason.rstrip("."))


def _put(name: str, lines: list[str]) -> None:
    """Puts a table between its marks in RECORD.md."""
    first, last = f"<!-- python -m weights.sweeps {name} -->", f"<!-- end of {name} -->"
    before, _, rest = DOCUMENT.read_text().partition(first)
    table = "\n".join(lines)
    DOCUMENT.write_text(f"{before}{first}\n\n{table}\n\n{last}{rest.partition(last)[2]}")


def write_release(library: str, outcomes: list[Outcome]) -> None:
    """Adds the counts of the installed release to those of other releases, and documents them."""
    releases = json.loads(RELEASES.read_text())
    counts = zip(_VERDICTS, _counts(outcomes, "folder"), strict=True)
    releases.setdefault(_release(library), {}).update(counts)
    RELEASES.write_text(json.dumps(releases, indent=1) + "\n")
    lines = [_line(("release", "models", *_VERDICTS, "tests both ways: passed, failed"))]
    lines.append(_line(["---"] * 6))
    for release, row in releases.items():
        told = [row[verdict] for verdict in _VERDICTS]
        lines.append(_line((release, sum(told), *told, f"{row['passed']}, {row['failed']}")))
    _put("releases", lines)
