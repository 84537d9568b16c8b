"""What is written whole or not at all, killed a few times; `tests.fuzz.kills` kills more often."""

import os
import subprocess
import sys

from tests.runs import KILLS


def test_kills_leave_whole_files_or_none():
    """Of presets, conversions and downloads, and readers beside writers; NumPy has no threads."""
    options = ["--count", str(KILLS), "--seconds", "1"]
    options += ["--only", "save", "convert", "download", "writers"]
    process = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.kills", *options],
        env={**os.environ, "KERAS_BACKEND": "numpy"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
