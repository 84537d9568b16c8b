"""Programs of this folder, which need processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras

ROOT = Path(__file__).parents[2]
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(*module: Any, cwd: Path = ROOT) -> str:
    """Runs `python -m MODULE ARGUMENTS...` on this backend, and returns what it prints."""
    program = subprocess.run(
        [sys.executable, "-m", *map(str, module)],
        cwd=cwd,
        env={
            **os.environ,
            "KERAS_BACKEND": keras.backend.backend(),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-3000:]
    return program.stdout


def findings(*module: Any) -> Any:
    """Returns the JSON that a program prints at last; libraries may print lines before."""
    return json.loads(run(*module).splitlines()[-1])
