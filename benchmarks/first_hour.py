"""A stranger's first hour: from `pip install` in a fresh environment down the README.

    python -m benchmarks.first_hour try dist --backends jax torch tensorflow     # make dist
    python -m benchmarks.first_hour measure dist --out benchmarks/results/first_hour.json

`try` installs the wheel of `dist` with each backend alone and follows the README from top to bottom
(`benchmarks/readme.py`); it installs the sdist with the first backend and runs the first program.
It fails if a program or a command does. `measure` times the installation and the first answer
beside timm, transformers and keras-hub, in seconds of processor time on one thread, which another
program on the machine hardly changes. No published weights are needed for it: every library answers
with a ViT-Ti/16 of random weights at 224 pixels.
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks import readme

ROOT = Path(__file__).parents[1]
_TIMM = """
import sys, types
sys.modules["torchvision._meta_registrations"] = types.ModuleType("left_out")  # of CUDA's build
import timm, torch
model = timm.create_model("vit_tiny_patch16_224").eval()
print(model(torch.zeros(1, 3, 224, 224)).argmax())
"""
_TRANSFORMERS = """
import torch
from transformers import ViTConfig, ViTForImageClassification
sizes = dict(hidden_size=192, intermediate_size=768, num_attention_heads=3, num_labels=1000)
model = ViTForImageClassification(ViTConfig(**sizes)).eval()
print(model(torch.zeros(1, 3, 224, 224)).logits.argmax())
"""
_KERAS_HUB = """
import keras_hub, numpy as np
sizes = dict(patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768)
backbone = keras_hub.models.ViTBackbone(image_shape=(224, 224, 3), **sizes)
model = keras_hub.models.ViTImageClassifier(backbone, num_classes=1000, preprocessor=None)
print(model.predict(np.zeros((1, 224, 224, 3), "float32"), verbose=0).argmax())
"""
_KERAS_VIT = """
import keras_vit, numpy as np
model = keras_vit.vit_ti16()
print(model.predict(np.zeros((1, 224, 224, 3), "float32"), verbose=0).argmax())
"""
PEERS: dict[str, tuple[Sequence[str], str, dict[str, str]]] = {
    "timm": (("timm",), _TIMM, {}),
    "transformers": (("transformers[torch]", "pillow"), _TRANSFORMERS, {}),
    "keras-hub, JAX": (("keras-hub", "jax"), _KERAS_HUB, {"KERAS_BACKEND": "jax"}),
}
"""By the name of the library: packages, a program that answers, variables of the environment."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}


class Environment:
    """A fresh virtual environment in a folder of its own, with the versions of constraints.txt."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.before = self._packages(), self._megabytes()

    def install(self, *packages: str) -> None:
        """Installs packages."""
        constraints = str(ROOT / "constraints.txt")
        command = ["-m", "pip", "install", "--quiet", "--constraint", constraints, *packages]
        subprocess.run([self._path("python"), *command], check=True, cwd=self.folder)

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Runs a program of the environment, away from the checkout; returns what it prints."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "KERAS_BACKEND")}
        kept |= {"TF_CPP_MIN_LOG_LEVEL": "3", "HOME": str(self.folder), **variables}
        command = [self._path(program), *arguments]
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

    def added(self) -> tuple[int, int]:
        """Returns the number of packages that were installed, and their megabytes on disk."""
        packages, megabytes = self.before
        return self._packages() - packages, round(self._megabytes() - megabytes)

    def _path(self, program: str) -> Path:
        return self.folder / "bin" / program

    def _packages(self) -> int:
        count = "import importlib.metadata as m; print(len({d.name for d in m.distributions()}))"
        return int(self.run("python", "-c", count))

    def _megabytes(self) -> float:
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
                    to.install(f"keras-vit[{extras}] @ {uri}")

                answer, done = readme.follow(
                    fresh.run_aloud, install, backend, Path(bucket), None if whole else 2
                )
                seconds = time.perf_counter() - begun
            name = package.suffix.lstrip(".")
            print(f"{name}, {backend} alone: {done} steps in {seconds:.0f} s: {answer}", flush=True)


def measure(dist: Path, backends: Sequence[str], names: Sequence[str]) -> list[dict[str, object]]:
    """Returns a row per library: packages, megabytes, seconds to install, to answer, and again."""
    (wheel,) = dist.resolve().glob("*.whl")
    here = {b: f"keras-vit[{b}] @ {wheel.as_uri()}" for b in backends}
    jobs = {f"keras_vit, {b}": ([package], _KERAS_VIT, {}) for b, package in here.items()}
    jobs |= {name: PEERS[name] for name in names}
    rows: list[dict[str, object]] = []
    for name, (packages, program, variables) in jobs.items():
        with tempfile.TemporaryDirectory() as folder:
            fresh = Environment(Path(folder))
            begun = _processor_seconds()
            fresh.install(*packages)
            installed = round(_processor_seconds() - begun)
            count, megabytes = fresh.added()
            row: dict[str, object] = {"library": name, "packages": count, "megabytes": megabytes}
            times = []
            for _ in range(3):
                begun = _processor_seconds()
                fresh.run("python", "-c", program, **ONE_THREAD, **variables)
                times.append(_processor_seconds() - begun)
            row |= {"install_s": installed, "first_s": round(times[0], 1)}
            rows.append(row | {"again_s": round(min(times[1:]), 1)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def _processor_seconds() -> float:
    """Returns the processor time of all programs that have been run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("try", "measure"))
    parser.add_argument("dist", type=Path, help="folder with a wheel and an sdist")
    parser.add_argument("--backends", nargs="+", default=["jax", "torch", "tensorflow"])
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--out", type=Path, help="JSON file for the measurements")
    asked = parser.parse_args()
    if asked.what == "try":
        try_distribution(asked.dist, asked.backends)
    else:
        measured = measure(asked.dist, asked.backends, asked.peers)
        if asked.out:
            asked.out.write_text(json.dumps(measured, indent=1) + "\n")
