"""Writes the absolute speeds of a JSON of `make bench` as a csv, to compare libraries.

python -m benchmarks.speeds benchmarks/results/cpu.json benchmarks/results/amd_epyc.csv

A row is a forward pass of `keras_vit` by `predict`, its last measurement in the file. `peak_mb` is
empty: the JSON has it for other runs.
"""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import keras_vit
from benchmarks.sizes import size_named

COLUMNS = (
    "model", "batch", "precision", "backend",
    "images_per_second", "ms", "peak_mb", "gmacs", "version",
)  # fmt: skip
PRODUCT = re.compile(r"keras_vit-(\w+)-predict(-compiled)?")


def rows_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each model, batch, precision and backend."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        request = run["request"]
        if request["task"] != "forward":
            continue
        size = size_named(request["model"])
        config = keras_vit.ViTConfig(**{**size.fields(), "image_size": request["image_size"]})
        gmacs = keras_vit.flops(config).forward / 2e9
        for row in run["rows"]:
            peer = PRODUCT.fullmatch(row["peer"])
            if not peer or "milliseconds" not in row:
                continue
            backend = peer[1] + (" compiled" if peer[2] else "")
            key = (variant_of(size), request["batch"], request["dtype"], backend)
            speed = request["batch"] * 1000 / row["milliseconds"]
            values = (*key, f"{speed:.2f}", row["milliseconds"], "", f"{gmacs:.3f}",
                      keras_vit.__version__)  # fmt: skip
            rows[key] = dict(zip(COLUMNS, values, strict=True))
    return [rows[key] for key in sorted(rows)]


def variant_of(size: Any) -> str:
    """Returns the name of a size in the catalog: `vit_s16`, `vit_s14.dinov2`."""
    name = size.name.rpartition("-")[2].lower().replace("/", "")
    return f"vit_{name}" + (f".{size.family}" if size.family else "")


def main(source: str, target: str) -> None:
    """Reads the JSON and writes the csv."""
    with Path(target).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows_of(json.loads(Path(source).read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
