"""Python programs that start in milliseconds: forks of a process that has imported the backend.

An import of Keras and a backend takes five to ten seconds. A `Nursery` imports them once, and
then runs each program in a fork of its own: with the program's arguments, folder, variables and
output, and with no other trace of the programs before it. What a program tests must not be in
the import of Keras or the backend; `tests/support/test_import.py` tests that, in new processes.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]


class Nursery:
    """A process that has imported Keras and its backend, and computed nothing.

    Args:
        imports: modules to import, in this order.
        variables: environment of the process and, unless they say otherwise, of its programs.
    """

    def __init__(self, imports: str = "keras numpy sklearn.datasets", **variables: str) -> None:
        # A fork has the thread that forks alone, so no library may have started another.
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", *imports.split()],
            cwd=ROOT,
            env={**os.environ, **threads, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *arguments: object,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess:
        """Runs a program to its end.

        Args:
            arguments: those of `python`: a path, `-m` and a module, or `-c` and code; and those of
                the program.
            cwd: the program's folder; that of the caller by default.
            variables: environment variables beside those of the caller.

        Returns:
            Exit status, negative for a signal, and the text of stdout and stderr.
        """
        assert self._process.stdin and self._process.stdout
        with tempfile.TemporaryDirectory() as folder:
            streams = [str(Path(folder, name)) for name in ("stdout", "stderr")]
            request = {
                "arguments": list(map(str, arguments)),
                "cwd": str(cwd or Path.cwd()),
                "variables": {**os.environ, **(variables or {})},
                "streams": streams,
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            texts = [Path(stream).read_text(errors="replace") for stream in streams]
        return subprocess.CompletedProcess(request["arguments"], status, *texts)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _serve(imports: list[str]) -> None:
    """Reads a wanted program from each line of stdin, and answers with its exit status."""
    answers = os.fdopen(os.dup(1), "w")  # what an import prints must not be read as an answer
    os.dup2(2, 1)
    for name in imports:
        __import__(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            answers.close()
            _become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)


def _become(wanted: dict[str, Any]) -> NoReturn:
    """Runs the program as `python` would, and ends the process."""
    for stream, path in zip((1, 2), wanted["streams"], strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = 0
    try:
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["variables"])
        first, *rest = wanted["arguments"]
        if first == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path[0] = ""
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        elif first == "-m":
            sys.argv = rest
            sys.path[0] = wanted["cwd"]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = wanted["arguments"]
            sys.path[0] = str(Path(first).parent)
            runpy.run_path(first, run_name="__main__")
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1:])
