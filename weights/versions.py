"""Other releases than those of `constraints.txt`: python -m weights.versions (make test-versions).

Each row of `ROWS` puts the oldest or the newest releases that `pyproject.toml` promises before the
packages of this environment, and runs `weights.release` on a backend, or the tests of a library.
VERSIONS.md is the record: it gets the day of each run, at once, and what failed.

    python -m weights.versions --only keras-nightly --backends torch
"""

import argparse
import dataclasses
import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "weights" / "VERSIONS.md"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
BACKENDS = ("jax", "torch", "tensorflow", "openvino")
HUB = ("tests/presets/test_hub.py", "tests/presets/test_bucket.py", "tests/presets")
NEEDS_OLD_NUMPY = ("numpy==2.1.3", "protobuf==5.29.5")
"""What TensorFlow 2.19 demands."""
NIGHTLY, OPENVINO = "keras-nightly==3.16.0.dev2026102704", "keras-openvino==0.0.1"


@dataclasses.dataclass(frozen=True)
class Row:
    """Releases that are put in front, and what is run with them.

    Args:
        packages: demands of pip.
        backend: Keras's backend.
        tests: files for pytest; `weights.release` without them.
        python: a command, for a fresh environment with the newest releases of all packages.
    """

    packages: tuple[str, ...]
    backend: str
    tests: tuple[str, ...] = ()
    python: str = ""


def rows() -> Iterator[Row]:
    """Yields the oldest and the newest release of each package, and the next Keras."""
    for keras in ("keras==3.14.0", "keras==3.15.1", NIGHTLY):
        for backend in BACKENDS:
            own = (OPENVINO,) if (keras, backend) == (NIGHTLY, "openvino") else ()
            if (keras, backend) != ("keras==3.14.0", "openvino"):  # shapes without a batch
                yield Row((keras, *own), backend)
    yield Row(("torch==2.15.0",), "torch")
    yield Row(("jax==0.12.0.1", "jaxlib==0.12.0.1"), "jax", python="python3.12")
    yield Row(("keras==3.14.0", "jax==0.5.0", "jaxlib==0.5.0"), "jax")
    yield Row(("keras==3.14.0", "tensorflow==2.19.0", *NEEDS_OLD_NUMPY), "tensorflow")
    yield Row(("keras==3.15.0", "openvino==2026.0.0"), "openvino")
    for backend in BACKENDS:
        yield Row(("numpy==2.0.0",), backend)
    yield Row(("huggingface-hub==2.4.0",), "torch", HUB)  # 2.0.0 asks the Hub about each card
    rooms = "tests/checkpoints/test_"
    written = f"{rooms}cases.py", f"{rooms}written_files.py"
    for transformers in ("transformers==5.19.0", "transformers==5.24.0"):  # 5.19 allows hub 2
        yield Row((transformers,), "torch", (f"{rooms}live_transformers.py", *written))
    yield Row(("timm==1.0.31",), "torch", (f"{rooms}live_timm.py", *written))
    hub = (f"{rooms}live_keras_hub.py", f"{rooms}cases.py")
    yield Row(("keras-hub==0.32.0",), "tensorflow", hub)


def install(packages: tuple[str, ...], folder: Path) -> list[str]:
    """Returns a folder for each package; pip fills the ones that lack.

    They hold no demands of the packages, except for the libraries that torch is linked with.
    """
    found = []
    for package in packages:
        if not (target := folder / package).is_dir():
            options = ["--no-compile", "--target", str(target)]
            options += [] if package.startswith("torch==") else ["--no-deps"]
            subprocess.run([sys.executable, *PIP, *options, package], check=True)
        found.append(str(target.resolve()))
    return found


def fresh(row: Row, folder: Path) -> str:
    """Returns the interpreter of an environment with keras_vit and the newest of its packages."""
    place = folder / "-".join([row.python, *row.packages])
    subprocess.run([row.python, "-m", "venv", place], check=True)
    python, own = str(place / "bin" / "python"), ["--editable", f"{ROOT}[{row.backend}]"]
    subprocess.run([python, *PIP, *own, *row.packages], check=True)
    return python


def run(row: Row, folder: Path) -> tuple[str, bool]:
    """Runs a row; returns the last line of what it printed and whether all was right."""
    python = fresh(row, folder) if row.python else sys.executable
    path = [] if row.python else install(row.packages, folder)
    what = ["pytest", "-q", "-n", "0", *row.tests] if row.tests else ["weights.release"]
    done = subprocess.run(
        [python, "-m", *what],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]),
            "KERAS_BACKEND": row.backend,
        },
        stdout=subprocess.PIPE,
        stderr=None if not row.tests else subprocess.DEVNULL,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no answer"]
    return lines[-1], done.returncode == 0 and (not row.tests or "passed" in lines[-1])


def record(path: Path, row: Row, answer: str) -> None:
    """Puts the answer of a row into the table, in the column of its backend."""
    start = f"| {', '.join(row.packages).replace('==', ' ')} |"
    lines = path.read_text().splitlines()
    place = next((k for k, known in enumerate(lines) if known.startswith(start)), None)
    if place is None:  # after the last row of the table
        place = max(k + 1 for k, known in enumerate(lines) if known.startswith("|"))
        lines.insert(place, start + " |" * len(BACKENDS))
    cells = lines[place].split("|")
    cells[2 + BACKENDS.index(row.backend)] = f" {answer.replace('|', ' ')} "
    lines[place] = "|".join(cells)
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="parts of packages' names")
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-versions")
    parser.add_argument("--record", type=Path, default=RECORD)
    chosen = parser.parse_args()
    wrong = 0
    for row in rows():
        named = any(word in package for word in chosen.only for package in row.packages)
        if named and row.backend in chosen.backends:
            answer, is_right = run(row, chosen.folder)
            day = datetime.date.today().isoformat()
            record(chosen.record, row, day if is_right else f"{day} FAILED: {answer}")
            print(*row.packages, row.backend, answer, sep=", ", flush=True)
            wrong += not is_right
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
