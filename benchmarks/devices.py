"""Training on several devices beside training on one: python -m benchmarks.devices.

Runs the programs of `tests/distribution`, which the suite asserts on, and keeps their figures in
`benchmarks/results/devices.json`; docs/devices.md has the table.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
PROGRAMS = {
    "jax": ("-m", "tests.distribution.on_jax_devices"),
    "tensorflow": ("-m", "tests.distribution.on_tensorflow_replicas"),
    "torch": (*TORCHRUN, "-m", "tests.distribution.in_torch_processes", "{folder}"),
}


def main() -> None:
    found = {}
    for backend, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, *(part.format(folder=folder) for part in program)],
                cwd=ROOT,
                env={**os.environ, "KERAS_BACKEND": backend},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            sys.exit(f"{backend}: {done.stderr[-3000:]}")
        found[backend] = json.loads(done.stdout)
    out = ROOT / "benchmarks" / "results" / "devices.json"
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
