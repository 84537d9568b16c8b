"""Absolute speed in timm's form, one csv per machine: python -m benchmarks.speed FILE.csv.

    python -m benchmarks.speed benchmarks/results/epyc.csv            # a quarter of an hour
    python -m benchmarks.speed benchmarks/results/epyc.csv --models vit_s16 --precisions bfloat16

The columns are model, batch, precision, backend, images per second, milliseconds per batch, peak
megabytes (of the GPU, or else of the process), billions of multiply-adds per image, and the version
of keras_vit. The backends take turns; a row is the median of the rounds, of which a batch of more
than 100 billion multiply-adds has one. A row that the file has already is measured anew in its
place; each is written as soon as it is known. Models come from small to large, and what does not
begin within `--minutes` is named.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import keras_vit
from benchmarks import harness
from benchmarks.sizes import size_named
from keras_vit.models.config.variants import VARIANTS

COLUMNS = (
    "model",
    "batch",
    "precision",
    "backend",
    "images_per_second",
    "ms",
    "peak_mb",
    "gmacs",
    "version",
)
_KEY = COLUMNS[:4]
_BACKENDS = ("torch", "jax", "tensorflow", "openvino")
_FAMILIES = {
    "vit_s14.dinov2": "DINOv2-S/14",
    "vit_b14.dinov2": "DINOv2-B/14",
    "vit_s16.dinov3": "DINOv3-S/16",
}
"""Models of the families by the beginning of their presets' names."""
_PEERS = {f"keras_vit-{backend}-predict": backend for backend in _BACKENDS}
Row = dict[str, str]


def measure(
    model: str, batch: int, precision: str, backends: Sequence[str], rounds: int, seconds: float
) -> tuple[list[Row], dict[str, str]]:
    """Returns a row per backend, and why a backend has none."""
    size = size_named(_FAMILIES.get(model, model))
    request = {"task": "forward", "model": size.name, "image_size": size.image_size}
    peers = [peer for peer, backend in _PEERS.items() if backend in backends]
    request |= {"batch": batch, "dtype": precision}
    gmacs = _gmacs(model)
    rounds = 1 if gmacs * batch > 100 else rounds
    with Console(stderr=True).status("") as status:
        result = harness.run(peers, request, rounds, status.update, seconds, units=())
    rows = []
    for peer, turns in result.turns.items():
        step = statistics.median(turn.seconds for turn in turns)
        values = (model, batch, precision, _PEERS[peer], f"{batch / step:.1f}", f"{step * 1e3:.2f}")
        peak = max(turn.peak_mb for turn in turns)
        values += (f"{peak:.0f}", f"{gmacs:.2f}", keras_vit.__version__)
        rows.append(dict(zip(COLUMNS, map(str, values), strict=True)))
    return rows, result.failed


def _gmacs(model: str) -> float:
    fields = size_named(_FAMILIES.get(model, model)).fields()
    return keras_vit.models.flops(keras_vit.ViTConfig(**fields)).forward / 2e9


def merge(path: Path, rows: list[Row]) -> None:
    """Writes the rows into the file, in the order of its own rows, and new ones behind them."""
    known: dict[tuple[str, ...], Row] = {}
    if path.exists():
        with path.open(newline="") as file:
            known = {tuple(row[name] for name in _KEY): row for row in csv.DictReader(file)}
    known |= {tuple(row[name] for name in _KEY): row for row in rows}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(known.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    names = (*VARIANTS, *_FAMILIES)
    parser.add_argument("--models", nargs="+", default=list(VARIANTS), choices=names)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--precisions", nargs="+", default=["float32"])
    parser.add_argument("--backends", nargs="+", default=_BACKENDS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--minutes", type=float, default=15)
    chosen = parser.parse_args()
    end = time.monotonic() + 60 * chosen.minutes
    for model in sorted(chosen.models, key=_gmacs):
        for batch in chosen.batches:
            for precision in chosen.precisions:
                if time.monotonic() > end:
                    print(f"{model}, batch {batch}, {precision}: no time was left", flush=True)
                    continue
                rows, failed = measure(
                    model, batch, precision, chosen.backends, chosen.rounds, chosen.seconds
                )
                merge(chosen.file, rows)
                for row in rows:
                    print(*row.values(), sep=",", flush=True)
                for peer, reason in failed.items():
                    print(f"{model}, batch {batch}, {precision}, {peer}: {reason}", flush=True)


if __name__ == "__main__":
    main()
