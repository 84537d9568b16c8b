"""Local processes without a new start of Python: forks of this one, before a backend has begun."""

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def start(count: int, act: Callable[[int, int], Any], folder: Path) -> list[int]:
    """Forks processes that call `act(index, port)`, and returns their ids.

    The result of process K is in `K.json` of the folder.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, started = listener.getsockname()[1], []
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
            traceback.print_exc()
            status = 1
        finally:
            sys.stderr.flush()
            os._exit(status)  # no destructor of a backend waits for the other processes
    return started


def results(count: int, act: Callable[[int, int], Any], folder: Path) -> list[Any]:
    """What `act` has returned in each process; stderr has the traceback of one that failed."""
    ends = [os.waitpid(child, 0)[1] for child in start(count, act, folder)]
    assert not any(ends)
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(count)]
