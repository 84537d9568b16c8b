"""Local processes without a new start of Python: forks of this one, before a backend has begun."""

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port of this machine that no program listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(count: int, act: Callable[[int, int], Any], folder: Path) -> list[int]:
    """Forks processes that call `act(index, port)`, and returns their ids.

    The result of process K is in `K.json` of the folder, or its traceback in `K.error`.
    """
    port, started = free_port(), []
    for index in range(count):
        child = os.fork()
        if child:
            started.append(child)
            continue
        try:
            result = act(index, port)
            (folder / f"{index}.json").write_text(json.dumps(result))
            status = 0
        except BaseException:
            (folder / f"{index}.error").write_text(traceback.format_exc())
            status = 1
        finally:
            sys.stdout.flush()
            os._exit(status)  # no destructor of a backend waits for the other processes
    return started


def results(count: int, act: Callable[[int, int], Any], folder: Path) -> list[Any]:
    """What `act` has returned in each process; the traceback of a failed process is raised."""
    for child in start(count, act, folder):
        os.waitpid(child, 0)
    for index in range(count):
        error = folder / f"{index}.error"
        if error.exists():
            raise RuntimeError(f"process {index}: {error.read_text()}")
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(count)]
