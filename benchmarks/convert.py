"""Converting a ViT-L/16 checkpoint (1.2 GB) between dialects: time and peak memory.

    python -m benchmarks.convert /tmp/convert benchmarks/convert.json

Each conversion runs in a process of its own and is timed in turn with a plain copy of
the same bytes, read and written in blocks of 16 MiB: until the bytes are on the disk, and
until they are in the memory that the system writes from. One turn is not counted; of the
others the median ratio is. The peak is that of the process, mapped pages included.
"""

import argparse
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import keras_vit
from benchmarks.report import machine, markdown
from keras_vit.checkpoints.containers import write_npz
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.translate import plan
from keras_vit.models.builders import variant

RING = ("google", "google_linen", "big_vision", "big_vision_scan", "timm", "transformers",
        "keras_hub", "keras_vit", "google")  # fmt: skip
TURNS = 7


def make_source(path: Path) -> None:
    """Writes random weights in the names of the published files."""
    rng = np.random.default_rng(0)
    moves = plan(variant("vit_l16").config(), DIALECTS["google"])
    arrays = ((move.name, rng.standard_normal(move.file_shape, dtype="float32")) for move in moves)
    write_npz(path, arrays)


def list_files(checkpoint: Path) -> list[Path]:
    """The files of a checkpoint, which may be a folder."""
    return sorted(checkpoint.iterdir()) if checkpoint.is_dir() else [checkpoint]


def to_disk(files: list[Path]) -> None:
    """Waits until the files are on the disk."""
    for file in files:
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())


def timed(work: Callable[[], None], destination: Path) -> dict[str, float]:
    """Seconds until the bytes are written, and until they are on the disk."""
    start = time.perf_counter()
    work()
    written = time.perf_counter() - start
    to_disk(list_files(destination))
    return {"seconds": written, "disk_seconds": time.perf_counter() - start}


def copy_once(source: Path, destination: Path) -> dict[str, float]:
    """Reads and writes the bytes of a checkpoint."""

    def copy() -> None:
        with destination.open("wb") as target:
            for file in list_files(source):
                with file.open("rb") as stream:
                    while block := stream.read(2**24):
                        target.write(block)

    return timed(copy, destination)


def remove(path: Path) -> None:
    """Removes a file or folder if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def convert_once(source: Path, destination: Path, dialect: str) -> dict[str, float]:
    """Converts in a fresh process; returns its seconds and its peak megabytes."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.convert",
        "--one",
        str(source),
        str(destination),
        dialect,
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def one(source: str, destination: str, dialect: str) -> None:
    """The conversion in the fresh process."""

    def work() -> None:
        keras_vit.convert(source, destination, dialect, lossy=True, num_heads=16)

    seconds = timed(work, Path(destination))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**seconds, "peak_mb": peak}))


def turn(source: Path, destination: Path, copy: Path, dialect: str) -> dict[str, float]:
    """A copy and a conversion, each started when the disk has no other writes."""
    remove(destination)
    remove(copy)
    os.sync()
    copied = copy_once(source, copy)
    remove(copy)
    os.sync()
    done = convert_once(source, destination, dialect)
    return {
        "to_disk": done["disk_seconds"] / copied["disk_seconds"],
        "to_memory": done["seconds"] / copied["seconds"],
        **done,
    }


def main() -> None:
    """Makes the source, runs the ring, writes the figures."""
    if "--one" in sys.argv:
        one(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("work", type=Path, help="folder for 4 GB of files")
    parser.add_argument("json", type=Path, help="where the figures go")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    source = arguments.work / "google.0"
    make_source(source)
    size_mb = source.stat().st_size / 2**20
    rows = []
    for step, (theirs, other) in enumerate(itertools.pairwise(RING), start=1):
        destination = arguments.work / f"{other}.{step}"
        copy = arguments.work / "copy"
        turns = [turn(source, destination, copy, other) for _ in range(TURNS + 1)][1:]
        median = {key: statistics.median(t[key] for t in turns) for key in turns[0]}
        rows.append({
            "from": theirs,
            "to": other,
            "to_disk_of_copy": round(median["to_disk"], 2),
            "to_memory_of_copy": round(median["to_memory"], 2),
            "seconds": round(median["seconds"], 2),
            "peak_of_file": round(max(t["peak_mb"] for t in turns) / size_mb, 2),
        })  # fmt: skip
        remove(source)
        source = destination
    figures = {"file_mb": round(size_mb), "machine": machine(), "rows": rows}
    arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(markdown(f"ViT-L/16, {round(size_mb)} MB", rows))


if __name__ == "__main__":
    main()
