"""The figures of a GPU, in calls of ten minutes: python -m benchmarks.gpu FILE.json.

`ROWS` go from what matters most to what matters least; a call (`make bench-gpu`) measures those
that FILE lacks for this GPU and this code of keras_vit, and begins no row that does not fit into
`--minutes`. The first half takes ten minutes wherever a GPU is at hand, the second ten on the same
day or another. FILE has the form of the other results and gets every figure as soon as it is known.

`--tiny` measures models of one block with few images, which any machine does in minutes.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.harness import ROOT
from benchmarks.sizes import size_named
from keras_vit.support.files import write_json

CALL = ("timm", "keras_vit-torch-call", "keras_vit-jax-call")
LOOP = ("timm", "keras_vit-torch-loop", "keras_vit-jax-loop")
CALL_COMPILED = (*CALL, "timm-compiled", "keras_vit-torch-call-compiled")
LOOP_COMPILED = (*LOOP, "timm-compiled", "keras_vit-torch-fit-compiled")


class Row(NamedTuple):
    """A measurement: a task with a model, or the tests of a backend; the minutes it may take."""

    minutes: float
    task: str
    model: str
    batch: int = 0
    peers: Sequence[str] = ()
    image_size: int | None = None

    def tiny(self) -> "Row":
        """The same with a model of one block, two images and no compiler of torch."""
        if self.task == "tests":
            return self
        family = self.model.partition("-")[0]
        model = f"tiny {family}" if family.startswith("DINO") else "tiny"
        plain = [peer for peer in self.peers if "compiled" not in peer]
        return self._replace(minutes=4, model=model, batch=2, peers=plain, image_size=None)

    @property
    def request(self) -> dict[str, Any]:
        """What `python -m benchmarks` is asked for."""
        if self.task == "tests":
            return {"task": "tests", "backend": self.model}
        size = size_named(self.model, self.image_size).image_size
        asked = {"task": self.task, "model": self.model, "image_size": size}
        return {**asked, "batch": self.batch, "dtype": "bfloat16"}


ROWS = (
    # The first half.
    Row(2, "forward", "B/16", 256, CALL_COMPILED),
    Row(2, "train", "B/16", 128, LOOP_COMPILED),
    Row(1.5, "tests", "torch"),
    Row(1.5, "tests", "jax"),
    Row(1, "forward", "L/16", 256, CALL),
    Row(1, "train", "L/16", 32, LOOP),
    Row(1, "train", "DINOv2-B/14", 32, LOOP),
    # The second.
    Row(1, "forward", "S/16", 256, CALL),
    Row(1.5, "train", "S/16", 128, (*LOOP, "keras_vit-torch-fit", "keras_vit-jax-fit")),
    Row(1, "train", "DINOv3-S/16", 64, LOOP),
    Row(1, "forward", "B/16", 1, CALL),
    Row(1, "train", "H/14", 16, LOOP),
    Row(1, "forward", "B/16", 8, CALL, 1024),  # 4,097 tokens; DINOv2-B/14 has 1,370
    Row(1, "train", "B/16", 16, LOOP, 384),
    Row(1, "train", "B/16", 512, LOOP[1:]),
    Row(0.5, "train", "Ti/16", 256, LOOP),
)
"""All peers of a row are in the GPU's memory together."""


def measure(rows: Sequence[Row], file: Path, minutes: float, tiny: bool = False) -> list[str]:
    """Measures the rows that FILE lacks while there is time; returns what became of each."""
    machine, end, done = report.machine(), time.monotonic() + 60 * minutes, []
    same = {key: machine[key] for key in ("accelerator", "code")}
    for row in rows:
        runs = json.loads(file.read_text()) if file.exists() else []
        known = [r for r in runs if r["request"] == row.request and r.get("done")]
        if any(same.items() <= run["machine"].items() for run in known):
            done.append("known")
        elif time.monotonic() + 60 * row.minutes > end:
            done.append("no time was left")
        elif row.task == "tests":
            command = ["pytest", "-q", "-n", "0", "-m", "gpu", "tests/test_gpu.py"]
            code, text = _run(command, 60 * row.minutes, KERAS_BACKEND=row.model)
            result = {"rows": [{"peer": row.model, "result": text.splitlines()[-1]}]}
            run = {"request": row.request, "machine": machine, "done": code == 0, **result}
            write_json(file, [*runs, run])
            done.append(f"code {code}")
        else:
            code, _ = _run(["benchmarks", *_options(row, file, tiny)], 60 * row.minutes)
            done.append("done" if code == 0 else f"code {code}")
        print(*row.request.values(), done[-1], sep=", ", flush=True)
    return done


def _options(row: Row, file: Path, tiny: bool) -> list[str]:
    # Products by the libraries of CPUs would take most of the time.
    options = {**row.request, "units": ("products", "products-xla"), "peers": row.peers}
    options |= {"rounds": 1, "seconds": 0.1} if tiny else {"rounds": 3}
    options |= {"start-seconds": 40 * row.minutes, "json": file}
    pairs = ((name, v if isinstance(v, (list, tuple)) else [v]) for name, v in options.items())
    return [str(w) for name, own in pairs for w in (f"--{name.replace('_', '-')}", *own)]


def _run(command: Sequence[str], seconds: float, **variables: str) -> tuple[int, str]:
    """Runs a module of Python; its processes end by `seconds`."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL, "it took too long"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    """Measures what the file lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # the row ends with this process
    rows = [row.tiny() if asked.tiny else row for row in ROWS]
    measure(rows, asked.file, asked.minutes, asked.tiny)


if __name__ == "__main__":
    main()
