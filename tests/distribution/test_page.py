"""The program for each backend in docs/devices.md runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]
BACKEND = keras.backend.backend()
TITLES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "torch"}


@pytest.mark.skipif(BACKEND not in TITLES, reason=f"{BACKEND} has one device.")
def test_the_program_of_the_page_runs_on_several_devices(tmp_path):
    """As it stands on the page; torchrun starts that for torch."""
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    section = page.split(f"## {TITLES[BACKEND]}\n")[1]
    (tmp_path / "train.py").write_text(re.findall(r"```py\n(.*?)```", section, re.DOTALL)[0])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *(launcher if BACKEND == "torch" else []), "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if BACKEND == "torch":
        assert (tmp_path / "preset" / "config.json").exists()
