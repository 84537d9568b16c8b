"""The program for torch in docs/devices.md runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="ddp is for torch.")
def test_the_program_of_the_page_runs_in_two_processes(tmp_path):
    """As it stands on the page, under torchrun."""
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    section = page.split("## torch\n")[1]
    (tmp_path / "train.py").write_text(re.findall(r"```py\n(.*?)```", section, re.DOTALL)[0])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = subprocess.run(
        [sys.executable, *launcher, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-3000:]
    assert (tmp_path / "preset" / "config.json").exists()
