"""Other releases than those of `constraints.txt`: python -m weights.versions (make test-versions).

Each row of `ROWS` puts the oldest or the newest releases that `pyproject.toml` promises before the
packages of this environment, and runs `weights.release` on a backend, or the tests of a library.
VERSIONS.md is the record: it gets a row for each run, with the day, at once.

    python -m weights.versions --only keras --checkout ../keras    # Keras's main branch too
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
BACKENDS = ("jax", "torch", "tensorflow", "openvino")
HUB = ("tests/presets/test_hub.py", "tests/presets/test_bucket.py", "tests/presets")
NEEDS_OLD_NUMPY = ("numpy==2.1.3", "protobuf==5.29.5")
"""What TensorFlow 2.19 demands."""


@dataclasses.dataclass(frozen=True)
class Row:
    """Releases that are put in front, and what is run with them.

    Args:
        packages: demands of pip, or the folder of a checkout.
        backend: Keras's backend.
        tests: files for pytest; `weights.release` without them.
    """

    packages: tuple[str, ...]
    backend: str
    tests: tuple[str, ...] = ()


def rows(checkout: str | None = None) -> Iterator[Row]:
    """Yields the oldest and the newest release of each package, and a checkout of Keras."""
    for keras in ("keras==3.14.0", "keras==3.15.1", *([checkout] if checkout else [])):
        for backend in BACKENDS:
            if (keras, backend) != ("keras==3.14.0", "openvino"):  # shapes without a batch
                yield Row((keras,), backend)
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
    """Returns a folder for each package, without its demands; pip fills the ones that lack."""
    found = []
    for package in packages:
        target = Path(package) if Path(package).is_dir() else folder / package
        if not target.is_dir():
            options = [
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--no-compile",
                "--target",
            ]
            subprocess.run(
                [sys.executable, "-m", "pip", "install", *options, target, package], check=True
            )
        found.append(str(target.resolve()))
    return found


def run(row: Row, folder: Path) -> tuple[str, bool]:
    """Runs a row; returns the last line of what it printed and whether all was right."""
    path = os.pathsep.join([*install(row.packages, folder), str(ROOT)])
    what = ["pytest", "-q", "-n", "0", *row.tests] if row.tests else ["weights.release"]
    done = subprocess.run(
        [sys.executable, "-m", *what],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "KERAS_BACKEND": row.backend},
        stdout=subprocess.PIPE,
        stderr=None if not row.tests else subprocess.DEVNULL,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no answer"]
    return lines[-1], done.returncode == 0 and (not row.tests or "passed" in lines[-1])


def record(path: Path, row: Row, answer: str) -> None:
    """Puts the answer of a row into the table, in place of its last one."""
    what = " ".join(Path(name).stem for name in row.tests) or "weights.release"
    names = (_name(package) for package in row.packages)
    key = f"| {', '.join(names)} | {row.backend} | {what} |"
    lines = path.read_text().splitlines() if path.exists() else []
    line = f"{key} {datetime.date.today().isoformat()} | {answer.replace('|', ' ')} |"
    place = next((k for k, known in enumerate(lines) if known.startswith(key)), None)
    if place is None:  # behind the table's last row
        place = max((k + 1 for k, known in enumerate(lines) if known.startswith("|")), default=0)
        lines.insert(place, "")
    lines[place] = line
    path.write_text("\n".join(lines) + "\n")


def _name(package: str) -> str:
    """A package by its release, a checkout by its commit."""
    if not Path(package).is_dir():
        return package.replace("==", " ")
    command = ["git", "-C", package, "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{Path(package).name} at {commit or 'an unknown commit'}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="parts of packages' names")
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--checkout", help="a folder with a checkout of Keras")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-versions")
    parser.add_argument("--record", type=Path, default=RECORD)
    chosen = parser.parse_args()
    wrong = 0
    for row in rows(chosen.checkout):
        named = any(word in package for word in chosen.only for package in row.packages)
        if named and row.backend in chosen.backends:
            answer, is_right = run(row, chosen.folder)
            record(chosen.record, row, answer if is_right else f"FAILED: {answer}")
            print(*row.packages, row.backend, answer, sep=", ", flush=True)
            wrong += not is_right
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
