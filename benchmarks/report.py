"""Turns measured times into rows, and rows into tables.

python -m benchmarks.report benchmarks/results/cpu.json    # speeds in units of timm's, and more
python -m benchmarks.report FILE.json --csv FILE.csv       # `predict` in timm's form, for docs/
"""

import argparse
import csv
import datetime
import hashlib
import json
import os
import platform
import re
import statistics
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Result
from benchmarks.peers import UNITS
from benchmarks.sizes import name_of_variant, size_named
from keras_vit.support.processor import processor

_PACKAGES = ("keras", "torch", "jax", "tensorflow", "openvino", "onnxruntime")
_PEERS = ("timm", "transformers", "keras-hub", "flax")

Row = dict[str, Any]
Runs = list[dict[str, Any]]


def speed_rows(result: Result) -> list[Row]:
    """One row per peer: its speed as a share of the anchor's speed, with its range."""
    rows: list[Row] = []
    for name, turns in result.turns.items():
        ratios = result.ratios(name) or [float("nan")]
        rows.append({
            "peer": name,
            "share": round(statistics.median(ratios), 3),
            "range": [round(min(ratios), 3), round(max(ratios), 3)],
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
    columns = dict.fromkeys(column for row in good for column in row)
    cells = [[_text(row.get(column, "")) for column in columns] for row in good]
    lines = [f"**{title}**", ""]
    if good:
        lines += [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]
    lines += ["", *(f"{row['peer']}: {row['failed']}" for row in rows if "failed" in row)]
    return "\n".join(lines).strip() + "\n"


def _text(value: Any) -> str:
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)


def machine() -> dict[str, Any]:
    """The machine: processor, cores, accelerator, versions, date; and the code of keras_vit."""
    import torch

    installed = {found.name.lower(): found.version for found in metadata.distributions()}
    code = hashlib.sha256()
    for path in sorted((ROOT / "keras_vit").rglob("*.py")):
        code.update(path.read_bytes())
    return {
        "processor": f"{os.cpu_count()} x {processor().name}",
        "instruction_sets": list(processor().instruction_sets),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "versions": {name: installed.get(name, "absent") for name in (*_PACKAGES, *_PEERS)},
        "code": code.hexdigest()[:12],
        "date": datetime.date.today().isoformat(),
    }


def tables(runs: Runs) -> str:
    """Returns the newest figures as Markdown: speeds in units of timm's, then further tasks."""
    speeds: dict[str, dict[str, Row]] = {}
    others = {}
    for run in runs:
        asked, rows = run["request"], {row["peer"]: row for row in run["rows"]}
        if asked["task"] not in ("forward", "train"):
            title = ", ".join(f"{name} {value}" for name, value in asked.items())
            others[title, *rows] = markdown(title, run["rows"])
        elif "share" in rows.get("timm", ()):
            kind = f"{asked['task']}, {asked['dtype']}: the speed in units of timm's"
            column = f"{asked['model']}, {asked['image_size']} pixels, batch {asked['batch']}"
            for peer, row in rows.items():
                if "share" in row and peer not in UNITS:
                    line = speeds.setdefault(kind, {}).setdefault(peer, {"peer": peer})
                    line[column] = round(row["share"] / rows["timm"]["share"], 2)
    compared = [markdown(title, [*lines.values()]) for title, lines in speeds.items()]
    return "\n".join([*compared, *others.values()])


COLUMNS = ("model", "batch", "precision", "backend", "images_per_second", "ms", "peak_mb", "gmacs")


def write_csv(runs: Runs, path: Path) -> None:
    """Writes the newest `predict` of each model, batch, precision and backend, in timm's form.

    Rows of the file about other measurements stay. A model has the name of its presets.
    """
    from keras_vit import ViTConfig
    from keras_vit.models import flops

    known = csv.DictReader(path.read_text().splitlines()) if path.exists() else []
    lines = [tuple(row[column] for column in COLUMNS) for row in known]
    for run in (run for run in runs if run["request"]["task"] == "forward"):
        asked = run["request"]
        name = name_of_variant(asked["model"])
        size = size_named(asked["model"], asked["image_size"])
        gmacs = flops(ViTConfig(**size.fields())).forward / 2e9
        for row in run["rows"]:
            found = re.fullmatch(r"keras_vit-(\w+)-predict", row["peer"])
            if found and "share" in row:
                speed = f"{1000 * asked['batch'] / row['milliseconds']:.1f}"
                key = (name, str(asked["batch"]), asked["dtype"], found[1])
                figures = (speed, f"{row['milliseconds']:.2f}", str(row["peak_mb"]), f"{gmacs:.2f}")
                lines.append((*key, *figures))
    merged = {line[:4]: line for line in lines}
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *merged.values()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    measured = json.loads(asked.file.read_text())
    write_csv(measured, asked.csv) if asked.csv else print(tables(measured))
