"""A stranger's first hour: the README from top to bottom, in a fresh environment.

    python -m weights.first_hour dist --backends jax torch tensorflow     # make dist

It installs the wheel of `dist` with each backend alone and runs the programs and the commands of
the README in their order, in one folder, with the files that the README names;
`pip install "keras-vit-zoo[...]"` installs the extras of that line from the wheel, with the backend
that is tried in the place of JAX. A server on this machine stands for the bucket of the published
checkpoints and gives one of random weights. The programs that need an account or a repository of
the Hugging Face Hub are left out; tests/presets runs them against a server of its own. The sdist is
installed with the first backend and runs the first program.
"""

import argparse
import contextlib
import functools
import os
import re
import shlex
import subprocess
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PUBLISHED = "vit_b16.augreg_i21k_ft_i1k_384"
"""The preset of the catalog that the commands of the README load."""
_STEP = re.compile(
    r'^```python\n(?P<program>.*?)^```|^    pip install "keras-vit-zoo\[(?P<extras>[^\]]*)\]"'
    r"|^    keras-vit (?P<command>[^\n]*)$",
    re.DOTALL | re.MULTILINE,
)
_FILES = """
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

import keras_vit

for name in ("digit.png", "photo.jpg"):
    with Image.open(keras_vit.data.example_image()) as image:
        image.convert("RGB").save(name)
pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), "uint8")
for k, image in enumerate(pixels):
    folder = Path("digits", ("even", "odd")[k % 2])
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(folder / f"{k}.png")
Path("photos").mkdir()
shutil.copy("digit.png", "photos")
sizes = {"image_size": 32, "patch_size": 16, "hidden_size": 96, "mlp_dim": 96, "num_heads": 12}
model = keras_vit.VisionTransformer(**sizes, num_layers=1, num_classes=1000)
keras_vit.checkpoints.save(model, "ViT-B_16.npz", "google")
keras_vit.checkpoints.save(model, "vit-for-transformers", "transformers", lossy=True)
"""
"""Writes the files that the README names."""
_CHECKPOINT = """
import sys
from pathlib import Path

import keras_vit
from keras_vit.presets.bucket import OFFICIAL
from keras_vit.presets.catalog import preset_named

name, bucket = sys.argv[1:]
row = preset_named(name)
path = Path(bucket, row.source.removeprefix(OFFICIAL))
if not path.exists():
    path.parent.mkdir(parents=True)
    build = getattr(keras_vit, row.variant)
    model = build(image_size=row.image_size, num_classes=row.num_classes)
    keras_vit.checkpoints.save(model, path, "google")
"""
"""Writes a checkpoint of random weights to the place of a preset in the bucket."""


class Step(NamedTuple):
    """A program, a command after the word `keras-vit`, or the extras of an installation."""

    program: str | None
    extras: str | None
    command: str | None

    @property
    def needs_the_hub(self) -> bool:
        """Whether the step needs an account or a repository of the Hugging Face Hub."""
        return "hf://" in (self.program or self.command or "")


def steps() -> list[Step]:
    """Returns the steps of the README in their order."""
    return [Step(**found.groupdict()) for found in _STEP.finditer(README.read_text())]


def follow(
    run: Callable[..., str],
    install: Callable[[str], None],
    backend: str,
    bucket: Path,
    count: int | None = None,
) -> tuple[str, int]:
    """Follows the README; returns the answer of its first program, and the number of steps run.

    Args:
        run: runs a program of the fresh environment with arguments and, as keywords, variables of
            the environment; returns what it prints.
        install: installs extras of keras_vit, separated by commas.
        backend: the backend that is tried. The README names JAX.
        bucket: folder that is served as the bucket; the checkpoint that it lacks is written.
        count: the steps to run; None for all.

    Raises:
        CalledProcessError: a program or a command failed.
        AssertionError: the first answer is another one than the README's.
    """
    wanted = [step for step in steps() if not step.needs_the_hub][:count]
    answer, variables = "", {}
    with served(bucket) as address:
        for step in wanted:
            if step.extras is not None:
                extras = [backend if extra == "jax" else extra for extra in step.extras.split(",")]
                install(",".join(extras))
                if {"jax", "torch", "tensorflow"} & set(extras) - {backend}:
                    variables["KERAS_BACKEND"] = backend  # as the README says for several
            elif step.command is not None:
                run("keras-vit", *shlex.split(step.command, comments=True), **variables)
            elif answer:
                run("python", "-c", step.program, **variables)
            else:
                answer = run("python", "-c", step.program).strip()
                if not answer.startswith("[[('8',"):
                    raise AssertionError(f"expected the digit 8, found {answer}")
                if count is None:
                    run("python", "-c", _FILES)
                    run("python", "-c", _CHECKPOINT, PUBLISHED, str(bucket))
                    variables["KERAS_VIT_BUCKET"] = address
    return answer, len(wanted)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the files of a folder on this machine; yields the address."""

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
    """A fresh virtual environment in a folder of its own, with the versions of constraints.txt."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder

    def install(self, *packages: str) -> None:
        """Installs packages."""
        constraints = str(ROOT / "constraints.txt")
        command = ["-m", "pip", "install", "--quiet", "--constraint", constraints, *packages]
        subprocess.run([self._path("python"), *command], check=True, cwd=self.folder)

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Runs a program of the environment, away from the checkout; returns what it prints."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "KERAS_BACKEND")}
        kept |= {"TF_CPP_MIN_LOG_LEVEL": "3", "HOME": str(self.folder), **variables}
        command = [str(self._path(program)), *arguments]
        found = subprocess.run(
            command, check=True, cwd=self.folder, env=kept, stdout=subprocess.PIPE, text=True
        )
        return found.stdout

    def run_aloud(self, program: str, *arguments: str, **variables: str) -> str:
        """Runs a program as `run`, and prints its first words and its seconds."""
        begun = time.perf_counter()
        found = self.run(program, *arguments, **variables)
        words = " ".join(" ".join([program, *arguments]).split())
        print(f"{time.perf_counter() - begun:6.1f} s  {words[:80]}", flush=True)
        return found

    def _path(self, program: str) -> Path:
        return self.folder / "bin" / program

    def packages(self) -> int:
        """Returns the number of packages that are installed."""
        count = "import importlib.metadata as m; print(len({d.name for d in m.distributions()}))"
        return int(self.run("python", "-c", count))

    def megabytes(self) -> float:
        """Returns the size of the environment on disk."""
        files = (p for p in self.folder.rglob("*") if p.is_file() and not p.is_symlink())
        return sum(p.stat().st_size for p in files) / 2**20


def try_distribution(dist: Path, backends: Sequence[str]) -> None:
    """Follows the README in an environment per backend.

    OpenVINO, which cannot train, and the sdist run the first program of the README alone.

    Raises:
        CalledProcessError: an installation, a program or a command failed.
        AssertionError: the first answer is another one than the README's.
    """
    (wheel,), (sdist,) = dist.resolve().glob("*.whl"), dist.resolve().glob("*.tar.gz")
    tries = [(wheel, backend) for backend in backends] + [(sdist, backends[0])]
    with tempfile.TemporaryDirectory() as bucket:
        for package, backend in tries:
            whole = package is wheel and backend != "openvino"
            with tempfile.TemporaryDirectory() as folder:
                fresh, begun = Environment(Path(folder)), time.perf_counter()

                def install(
                    extras: str, to: Environment = fresh, uri: str = package.as_uri()
                ) -> None:
                    to.install(f"keras-vit-zoo[{extras}] @ {uri}")

                answer, done = follow(
                    fresh.run_aloud, install, backend, Path(bucket), None if whole else 2
                )
                seconds = time.perf_counter() - begun
            name = package.suffix.lstrip(".")
            print(f"{name}, {backend} alone: {done} steps in {seconds:.0f} s: {answer}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with a wheel and an sdist")
    parser.add_argument("--backends", nargs="+", default=["jax", "torch", "tensorflow"])
    asked = parser.parse_args()
    try_distribution(asked.dist, asked.backends)
