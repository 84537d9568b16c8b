"""Turns measured times into rows, and rows into tables.

python -m benchmarks.report benchmarks/results/cpu.json     # the tables of README.md
"""

import datetime
import json
import os
import platform
import statistics
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.harness import ANCHOR, Result
from benchmarks.peers import LIBRARIES, PEERS, UNITS
from keras_vit.support.processor import processor

_PACKAGES = (
    "keras",
    "torch",
    "jax",
    "tensorflow",
    "timm",
    "transformers",
    "keras-hub",
    "flax",
    "openvino",
    "onnxruntime",
    "ai-edge-litert",
)

Row = dict[str, Any]


def speed_rows(result: Result) -> list[Row]:
    """One row per peer: its speed as a share of the anchor's speed, with its range."""
    rows: list[Row] = []
    units = [unit for unit in UNITS if unit in result.turns]
    for name, turns in result.turns.items():
        ratios = (result.ratios(name) if ANCHOR in result.turns else []) or [float("nan")]
        of_fastest = result.of_fastest(name) if units else []
        rows.append({
            "peer": name,
            "share": round(statistics.median(ratios), 3),
            "range": [round(min(ratios), 3), round(max(ratios), 3)],
            "of_fastest": round(statistics.median(of_fastest), 3) if of_fastest else None,
            "milliseconds": round(statistics.median(t.seconds for t in turns) * 1e3, 2),
            "other_load": round(max(turn.other_load for turn in turns), 2),
            "peak_mb": round(max(turn.peak_mb for turn in turns)),
        })  # fmt: skip
    rows.sort(key=lambda row: -row["share"])
    return rows + [{"peer": name, "failed": reason} for name, reason in result.failed.items()]


def fresh_rows(answers: dict[str, list[dict[str, float]]], failed: dict[str, str]) -> list[Row]:
    """One row per peer: the median of each measurement."""
    rows: list[Row] = []
    for name, measures in answers.items():
        medians = {
            key: round(statistics.median(measure[key] for measure in measures), 3)
            for key in measures[0]
        }
        if "base_mb" in medians:
            medians["above_idle_mb"] = round(medians["peak_mb"] - medians["base_mb"], 1)
        rows.append({"peer": name, **medians})
    return rows + [{"peer": name, "failed": reason} for name, reason in failed.items()]


def markdown(title: str, rows: list[Row]) -> str:
    """Returns a table of the rows, with the failed peers below it."""
    good = [row for row in rows if "failed" not in row]
    lines = [f"**{title}**", ""]
    if good:
        columns = list(good[0])
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(_text(row[c]) for c in columns)} |" for row in good]
    lines += ["", *(f"{row['peer']}: {row['failed']}" for row in rows if "failed" in row)]
    return "\n".join(lines).strip() + "\n"


def _text(value: Any) -> str:
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)


def machine() -> dict[str, Any]:
    """The machine: processor, cores, accelerator, versions, date."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    return {
        "processor": _processor(),
        "instruction_sets": list(processor().instruction_sets),
        "accelerator": _accelerator(),
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    return f"{os.cpu_count()} x {processor().name}"


def _accelerator() -> str:
    try:
        import torch
    except ImportError:
        return "unknown"
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def tables(runs: list[dict[str, Any]]) -> str:
    """Returns the newest run of each kind as Markdown, with shares of one kind side by side."""
    newest: dict[str, dict[str, Any]] = {}
    for run in runs:
        peers = sorted(row["peer"] for row in run["rows"])
        newest[json.dumps([run["request"], peers], sort_keys=True)] = run
    side_by_side: dict[tuple[str, str], dict[str, dict[str, Row]]] = {}
    parts = []
    for run in newest.values():
        request, rows = run["request"], run["rows"]
        if "share" not in rows[0]:
            title = ", ".join(f"{name} {value}" for name, value in request.items())
            parts.append(markdown(title, rows))
            continue
        kind = (request["task"], request["dtype"])
        column = f"{request['model']} b{request['batch']}"
        for row in rows:
            side_by_side.setdefault(kind, {}).setdefault(row["peer"], {})[column] = row
    return "\n".join([*(_shares(*kind, rows) for kind, rows in side_by_side.items()), *parts])


def _shares(task: str, dtype: str, peers: dict[str, dict[str, Row]]) -> str:
    columns = sorted({column for rows in peers.values() for column in rows}, reverse=True)
    lines = [
        f"**{task}, {dtype}: share of the matrix products' speed (range)**\n",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for library in LIBRARIES:
        names = [n for n in peers if n not in UNITS and PEERS[n].library == library]
        if names:
            lines.append(f"| *{library}* |{' |' * len(columns)}")
        for name in sorted(names, key=lambda n: (not n.startswith("keras_vit"), n)):
            cells = (_share(peers[name].get(column)) for column in columns)
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _share(row: Row | None) -> str:
    if row is None:
        return ""
    if "failed" in row:
        return "failed"
    of_fastest = f", {row['of_fastest']:.2f} of the fastest" if row.get("of_fastest") else ""
    return f"{row['share']:.2f} ({row['range'][0]:.2f} to {row['range'][1]:.2f}){of_fastest}"


if __name__ == "__main__":
    print(tables(json.loads(Path(sys.argv[1]).read_text())))
