"""A stranger's first hour: README and start page from top to bottom, in fresh environments.

    python -m weights.first_hour dist --backends jax torch tensorflow     # make dist

The files of `dist` are served on this machine as a package index, from which pip installs
keras-vit-zoo by name, with each backend alone. Then every program and command of a page runs as
printed, in an empty folder. `[jax]` in a `pip install` means the backend that is tried.

A block `text` directly after a program or commands shows what the program or the last command
prints; the two must be equal except for white space, and `...` stands for any text.

A server on this machine stands for the bucket of the published checkpoints, with random weights;
steps that name `hf://` are skipped, and tests/presets runs them against its own server. OpenVINO,
which cannot train, and the sdist run the pages up to the first program.
"""

import argparse
import contextlib
import doctest
import functools
import os
import re
import shlex
import subprocess
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "start.md")
_BLOCK = re.compile(
    r"(?:^```python\n(?P<program>.*?)^```\n"
    r"|^```console\n(?P<console>.*?)^```\n"
    r"|(?P<indented>(?:^    [^\n]+\n)+))"
    r"(?:\n*```text\n(?P<output>.*?)^```)?",
    re.DOTALL | re.MULTILINE,
)
_LINE = re.compile(r"^(?:    |\$ )((?:keras-vit|pip install) (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_PRESET = re.compile(r"\b(?:r\d+_)?vit_[a-z]+\d+\.\w+")
_EQUAL = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BACKENDS = {"jax", "torch", "tensorflow", "openvino"}
_FILES = """
import sys
from pathlib import Path

import keras_vit
from keras_vit.presets.bucket import OFFICIAL
from keras_vit.presets.catalog import preset_named

bucket, *names = sys.argv[1:]
for row in map(preset_named, names):
    path = Path(bucket, row.source.removeprefix(OFFICIAL))
    if row.source.startswith(OFFICIAL) and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        build = getattr(keras_vit, row.variant)
        model = build(image_size=row.image_size, num_classes=row.num_classes)
        keras_vit.checkpoints.save(model, path, "google")
"""
"""Writes checkpoints of random weights for presets of the bucket."""


class Step(NamedTuple):
    """A program or commands, and the output that the page shows below them."""

    program: str | None
    commands: tuple[str, ...]
    output: str | None

    @property
    def needs_the_hub(self) -> bool:
        """Whether the step needs an account or a repository of the Hugging Face Hub."""
        return "hf://" in "".join([self.program or "", *self.commands])


def steps(text: str) -> Iterator[Step]:
    """Yields the steps of a page in their order."""
    for block in _BLOCK.finditer(text):
        commands = _LINE.findall(block["console"] or block["indented"] or "")
        if block["program"] or commands:
            yield Step(block["program"], (*commands,), block["output"])


def follow(
    run: Callable[..., str],
    install: Callable[..., None],
    backend: str,
    bucket: Path,
    text: str,
    whole: bool = True,
) -> int:
    """Follows a page; returns the number of steps that were run.

    Args:
        run: runs a program of the fresh environment with arguments and, as keywords, variables of
            the environment; returns what it prints.
        install: installs packages.
        backend: the backend that is tried.
        bucket: folder that is served as the bucket; files of presets that it lacks are written.
        text: the page, which names JAX.
        whole: whether the steps after the first program run too.

    Raises:
        CalledProcessError: a program or a command failed.
        AssertionError: a step prints something else than the page shows.
    """
    count, variables = 0, {}
    wanted = [step for step in steps(text) if not step.needs_the_hub]
    presets = sorted(set(_PRESET.findall(str(wanted)))) if whole else []
    with served(bucket) as variables["KERAS_VIT_BUCKET"]:
        for step in wanted:
            printed = ""
            for command in step.commands:
                if not command.startswith("pip install "):
                    printed = run("sh", "-c", command, **variables)
                elif packages := _packages(command, backend):
                    install(*packages)
                    if _extras(packages) & _BACKENDS - {backend}:
                        variables["KERAS_BACKEND"] = backend  # as the pages say for several
                    if presets:
                        run("python", "-c", _FILES, str(bucket), *presets, **variables)
                        presets = []
            if step.program is not None:
                printed = run("python", "-c", step.program, **variables)
            if not doctest.OutputChecker().check_output(step.output or "...\n", printed, _EQUAL):
                shown = "\n".join([step.program or "", *step.commands]).strip()
                raise AssertionError(f"{shown}\nexpected:\n{step.output}\nfound:\n{printed}")
            count += 1
            if step.program is not None and not whole:
                break
    return count


def _packages(command: str, backend: str) -> list[str]:
    """Returns the packages that a line installs if one backend is tried; none for another one."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)[2:]
    packages = [re.sub(r"\bjax\b(?=[^\[]*\])", backend, word) for word in words]
    others = _BACKENDS - {backend}
    return [] if (extras := _extras(packages)) and extras <= others else packages


def _extras(packages: Sequence[str]) -> set[str]:
    """Returns the extras that the packages name."""
    return {e for p in packages for e in re.sub(r"^[^\[]*\[?|\]", "", p).split(",") if e}


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the files of a folder and lists of its folders on this machine; yields the address."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Writes no line per request."""

    handler = functools.partial(Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Environment:
    """A fresh virtual environment with the versions of constraints.txt.

    Args:
        folder: its place.
        *options: options of `pip install`.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        venv.create(folder, with_pip=True)
        self.folder, self.here, self._options = folder, folder, options

    def move_to(self, name: str) -> None:
        """Lets programs run in a new, empty folder from now on."""
        self.here = self.folder / name
        self.here.mkdir()

    def install(self, *packages: str) -> None:
        """Installs packages."""
        constraints = ["--constraint", str(ROOT / "constraints.txt"), *self._options]
        command = ["python", "-m", "pip", "install", "--quiet", *constraints, *packages]
        subprocess.run(command, check=True, cwd=self.here, env=self._variables({}))

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Runs a program of the environment in the folder; returns what it prints."""
        found = subprocess.run(
            [program, *arguments],
            check=True,
            cwd=self.here,
            env=self._variables({"HOME": str(self.folder), **variables}),
            stdout=subprocess.PIPE,
            text=True,
        )
        return found.stdout

    def _variables(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "KERAS_BACKEND")}
        path = os.pathsep.join([str(self.folder / "bin"), kept["PATH"]])
        return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "PATH": path, **more}

    def run_aloud(self, program: str, *arguments: str, **variables: str) -> str:
        """Runs a program as `run`, and prints its first words and its seconds."""
        begun = time.perf_counter()
        found = self.run(program, *arguments, **variables)
        words = " ".join(" ".join([program, *arguments]).split())
        print(f"{time.perf_counter() - begun:6.1f} s  {words[:80]}", flush=True)
        return found

    def packages(self) -> int:
        """Returns the number of packages that are installed."""
        count = "import importlib.metadata as m; print(len({d.name for d in m.distributions()}))"
        return int(self.run("python", "-c", count))

    def megabytes(self) -> float:
        """Returns the size of the environment on disk."""
        files = (p for p in self.folder.rglob("*") if p.is_file() and not p.is_symlink())
        return sum(p.stat().st_size for p in files) / 2**20


def try_distribution(dist: Path, backends: Sequence[str]) -> None:
    """Follows the pages in an environment per backend.

    Raises:
        CalledProcessError: an installation, a program or a command failed.
        AssertionError: a step prints something else than its page shows.
    """
    tries = [("wheel", backend) for backend in backends] + [("sdist", backends[0])]
    with tempfile.TemporaryDirectory() as bucket, tempfile.TemporaryDirectory() as index:
        # The list of a folder is a page of the simple index (PEP 503).
        Path(index, "keras-vit-zoo").symlink_to(dist.resolve())
        for kind, backend in tries:
            with tempfile.TemporaryDirectory() as folder, served(Path(index)) as address:
                options = ["--no-binary", "keras-vit-zoo"] if kind == "sdist" else []
                fresh = Environment(Path(folder), "--extra-index-url", address, *options)
                begun, whole = time.perf_counter(), kind == "wheel" and backend != "openvino"
                done = 0
                for page in PAGES:
                    fresh.move_to(page.stem)
                    job = (fresh.run_aloud, fresh.install, backend, Path(bucket))
                    done += follow(*job, page.read_text(encoding="utf-8"), whole)
            seconds = time.perf_counter() - begun
            print(f"{kind}, {backend} alone: {done} steps in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with a wheel and an sdist")
    parser.add_argument("--backends", nargs="+", default=["jax", "torch", "tensorflow"])
    asked = parser.parse_args()
    try_distribution(asked.dist, asked.backends)
