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
PACKAGES = {"timm": "timm", "transformers": "transformers", "keras_hub": "keras-hub"}
"""Libraries of the sweeps, and their names on the package index."""

_VERDICTS = ("equal", "refused", "wrong")


def write(library: str, outcomes: Iterable[Outcome]) -> None:
    """Writes the JSON of a sweep."""
    package = PACKAGES[library]
    results = {
        "library": f"{package} {metadata.version(package)}",
        "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes],
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{library}.json").write_text(json.dumps(results, indent=1) + "\n")


def read(library: str) -> tuple[str, list[Outcome]]:
    """Returns the library with its version, and the outcomes of its last sweep."""
    actual = json.loads((FOLDER / f"{library}.json").read_text())
    rows = [Outcome(**{**row, "names": tuple(row["names"])}) for row in actual["outcomes"]]
    return actual["library"], rows


def counts(outcomes: Iterable[Outcome], way: str) -> collections.Counter[str]:
    """Returns the number of models by verdict, by the folder or by the file with its name."""
    actual: collections.Counter[str] = collections.Counter()
    for outcome in outcomes:
        actual[_verdict(getattr(outcome, way))] += len(outcome.names)
    return actual


def _verdict(answer: str) -> str:
    return answer.partition(" ")[0].rstrip(":")


def markdown(library: str) -> str:
    """Returns the counts of every group as a Markdown table, and the reasons of the refusals."""
    version, outcomes = read(library)
    ways = [way for way in ("folder", "file") if any(getattr(o, way) for o in outcomes)]
    words = {"folder": "folder", "file": "file with its name"}
    columns = [f"{words[way]}: {', '.join(_VERDICTS)}" for way in ways]
    groups = {o.group: [p for p in outcomes if p.group == o.group] for o in outcomes}
    same = {
        g
        for g, own in groups.items()
        if all({getattr(o, w) for o in own} == {"equal"} for w in ways)
    }
    rows = [(f"`{group}`", members) for group, members in groups.items() if group not in same]
    if same:
        joined = [outcome for outcome in outcomes if outcome.group in same]
        rows.insert(0, (", ".join(f"`{group}`" for group in groups if group in same), joined))
    if len(rows) > 1:
        rows.append(("all", outcomes))
    lines = [f"| {version} | models | {' | '.join(columns)} |", "|---" * (len(ways) + 2) + "|"]
    for title, members in rows:
        told = [counts(members, way) for way in ways]
        cells = [", ".join(str(actual[verdict]) for verdict in _VERDICTS) for actual in told]
        lines.append(f"| {title} | {sum(told[0].values())} | {' | '.join(cells)} |")
    for way in ways:
        if reasons := _reasons(outcomes, way):
            lines += ["", f"Not equal by the {words[way]}:", ""]
            lines += [f"- {len(names)}: {why} (`{names[0]}`)" for why, names in reasons.items()]
    return "\n".join(lines)


def _reasons(outcomes: Iterable[Outcome], way: str) -> dict[str, list[str]]:
    """Returns why models are not equal, the most frequent reason first, and their names."""
    actual: dict[str, list[str]] = collections.defaultdict(list)
    for outcome in outcomes:
        answer = getattr(outcome, way)
        if answer != "equal":
            actual[_short(answer)] += outcome.names
    return dict(sorted(actual.items(), key=lambda pair: -len(pair[1])))


def _short(answer: str) -> str:
    """The reason without the facts of one model: what to give, and who has which value."""
    reason = re.split(r"\. (Give|Choose by) | in any of the ", answer.removeprefix("refused: "))[0]
    reason = re.sub(r"^(a JSON file beside the weights: |read as [\w/]+: )", "", reason)
    named = r"^architecture='[^']*', an architecture with (.*), which keras_vit lacks"
    return re.sub(named, r"\1", reason.rstrip("."))


def document(library: str) -> None:
    """Puts the table of a library into weights/sweeps/RECORD.md."""
    _put(library, markdown(library))


def _put(name: str, table: str) -> None:
    """Puts a table between its marks."""
    first, last = f"<!-- python -m weights.sweeps {name} -->", f"<!-- end of {name} -->"
    before, _, rest = DOCUMENT.read_text().partition(first)
    _, _, after = rest.partition(last)
    DOCUMENT.write_text(f"{before}{first}\n\n{table}\n\n{last}{after}")


RELEASES = FOLDER / "releases.json"


def write_release(library: str, outcomes: list[Outcome]) -> None:
    """Adds the counts of the installed release to those of other releases, and documents them."""
    releases = json.loads(RELEASES.read_text())
    verdicts = counts(outcomes, "folder")
    release = f"{PACKAGES[library]} {metadata.version(PACKAGES[library])}"
    releases.setdefault(release, {}).update({verdict: verdicts[verdict] for verdict in _VERDICTS})
    RELEASES.write_text(json.dumps(releases, indent=1) + "\n")
    _put("releases", releases_markdown())


def releases_markdown() -> str:
    """Returns the counts of every release as a Markdown table."""
    columns = ("models", *_VERDICTS, "tests both ways: passed, failed")
    lines = [f"| release | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for release, row in json.loads(RELEASES.read_text()).items():
        verdicts = [row[verdict] for verdict in _VERDICTS]
        cells = [sum(verdicts), *verdicts, f"{row['passed']}, {row['failed']}"]
        lines.append(f"| {release} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
