"""Helpers for what runs beside a test: code in a new process, and waiting for an answer."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def python(
    code: str, *arguments: object, cwd: Path | None = None, **variables: str | None
) -> subprocess.CompletedProcess:
    """Runs code in a new process of Python, and returns its status and output.

    Args:
        code: the program.
        arguments: its arguments.
        cwd: its folder; that of the test by default.
        variables: further environment variables; None removes one.
    """
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
    )


def eventually(answer: Callable[[], Any], seconds: int = 60) -> Any:
    """Calls a function until its answer is not empty, and returns the answer."""
    for _ in range(seconds * 100):
        if value := answer():
            return value
        time.sleep(0.01)
    raise AssertionError("it did not happen")
