"""Training on several devices beside training on one: python -m benchmarks.devices.

Runs the programs of `tests/distribution`, which the suite asserts on, and keeps their figures in a
file; docs/devices.md has the table. `--kills 20` kills trainings of two processes 20 times on JAX
and on torch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "benchmarks" / "results" / "devices.json"
TORCHRUN = ("torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m")
PROGRAMS = {
    "jax": ("tests.distribution.on_jax_devices",),
    "jax, 2 processes": ("tests.distribution.in_jax_processes", "{folder}"),
    "tensorflow": ("tests.distribution.on_tensorflow_replicas",),
    "tensorflow, 2 workers": ("tests.distribution.in_tensorflow_workers",),
    "torch": (*TORCHRUN, "tests.distribution.in_torch_processes", "{folder}"),
}
KILLS = ("tests.distribution.kills", "{folder}", "--kills")


def run(backend: str, *program: str) -> Any:
    """Returns what a program prints as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", *(part.format(folder=folder) for part in program)],
            cwd=ROOT,
            env={
                **os.environ,
                "KERAS_BACKEND": backend,
                "OMP_NUM_THREADS": "1",
                "KERAS_VIT_THOROUGH": "1",  # as many batches as the table says
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1].replace(folder, "FOLDER"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int)
    arguments = parser.parse_args()
    found = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    if arguments.kills:
        for backend in ("jax", "torch"):
            result = run(backend, *KILLS, str(arguments.kills))
            found.setdefault("kills", {})[backend] = result
    else:
        for name, program in PROGRAMS.items():
            found[name] = run(name.partition(",")[0], *program)
    OUT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
