"""A stranger's first minutes: from `pip install` in a fresh environment to the first answer.

    python -m benchmarks.first_hour try dist --backends jax torch tensorflow     # make dist
    python -m benchmarks.first_hour measure dist
    python -m benchmarks.first_hour here --out benchmarks/results/first_hour.json

`try` installs the wheel of `dist` with each backend alone, and the sdist with the first; in each it
runs the first program of the README and the first command, and fails if one does. `measure` times
the same beside timm, transformers and keras-hub; `here` counts packages and megabytes in the
present environment, without an installation. No published weights are needed: every library
answers with a ViT-Ti/16 of random weights at 224 pixels.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
README = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
_TIMM = """
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
PEERS = {  # name: packages, program, backend of Keras
    "timm": (("timm",), _TIMM, None),
    "transformers": (("transformers[torch]", "pillow"), _TRANSFORMERS, None),
    "keras-hub, JAX": (("keras-hub", "jax"), _KERAS_HUB, "jax"),
}


class Environment:
    """A fresh virtual environment in a folder of its own, with the versions of constraints.txt."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder, self.python = folder, folder / "bin" / "python"
        self.before = self._megabytes()

    def install(self, *packages: str) -> float:
        """Installs packages; returns the seconds that it took."""
        begun = time.perf_counter()
        constraints = str(ROOT / "constraints.txt")
        command = ["-m", "pip", "install", "--quiet", "--constraint", constraints, *packages]
        subprocess.run([self.python, *command], check=True, cwd=self.folder)
        return time.perf_counter() - begun

    def run(self, *command: str, backend: str | None = None) -> tuple[str, float]:
        """Runs a program away from the checkout; returns what it prints, and its seconds."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "KERAS_BACKEND")}
        kept |= {"KERAS_BACKEND": backend} if backend else {}
        kept |= {"TF_CPP_MIN_LOG_LEVEL": "3", "HOME": str(self.folder)}
        begun = time.perf_counter()
        found = subprocess.run(
            [self.python, *command], check=True, cwd=self.folder, env=kept, stdout=subprocess.PIPE
        )
        return found.stdout.decode(), time.perf_counter() - begun

    def megabytes(self) -> float:
        """Returns the size of what was installed."""
        return self._megabytes() - self.before

    def _megabytes(self) -> float:
        files = (p for p in self.folder.rglob("*") if p.is_file() and not p.is_symlink())
        return sum(p.stat().st_size for p in files) / 2**20


def try_distribution(dist: Path, backends: Sequence[str]) -> None:
    """Runs the README's first program and command in an environment per backend.

    Raises:
        CalledProcessError: an installation, the program or the command failed.
    """
    (wheel,), (sdist,) = dist.resolve().glob("*.whl"), dist.resolve().glob("*.tar.gz")
    tries = [(wheel, backend) for backend in backends] + [(sdist, backends[0])]
    for package, backend in tries:
        with tempfile.TemporaryDirectory() as folder:
            fresh = Environment(Path(folder))
            fresh.install(f"keras-vit[{backend}] @ {package.as_uri()}")
            answer, _ = fresh.run("-c", README)
            if "('8'," not in answer:
                raise SystemExit(f"{package.name}, {backend}: expected the digit 8, got {answer}")
            image = "import keras_vit.data; print(keras_vit.data.example_image())"
            path = fresh.run("-c", image)[0].strip()
            predict = ("-m", "keras_vit.cli", "predict", path, "--preset", "vit_digits")
            fresh.run(*predict, "--top", "1")
            print(f"{package.suffix.lstrip('.')}, {backend} alone: {answer.strip()}", flush=True)


def measure(dist: Path, backends: Sequence[str], names: Sequence[str]) -> list[dict[str, object]]:
    """Returns a row per library: seconds of the installation, megabytes, seconds of the answer."""
    (wheel,) = dist.resolve().glob("*.whl")
    rows: list[dict[str, object]] = []
    for name, (packages, program, backend) in _jobs(backends, names).items():
        wanted = [f"{p} @ {wheel.as_uri()}" if "keras-vit" in p else p for p in packages]
        with tempfile.TemporaryDirectory() as folder:
            fresh = Environment(Path(folder))
            row: dict[str, object] = {"library": name, "install_s": round(fresh.install(*wanted))}
            row["megabytes"] = round(fresh.megabytes())
            times = [fresh.run("-c", program, backend=backend)[1] for _ in range(3)]
            rows.append(row | {"first_s": round(times[0], 1), "again_s": round(min(times[1:]), 1)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def count_here(backends: Sequence[str], names: Sequence[str]) -> list[dict[str, object]]:
    """Counts the installed packages that a library needs, itself included, and their megabytes."""
    rows: list[dict[str, object]] = []
    for name, (packages, _, _) in _jobs(backends, names).items():
        needed: dict[str, float] = {}
        for package in packages:
            _collect(Requirement(package), needed)
        megabytes = round(sum(needed.values()))
        rows.append({"library": name, "packages": len(needed), "megabytes": megabytes})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _jobs(
    backends: Sequence[str], names: Sequence[str]
) -> dict[str, tuple[tuple[str, ...], str, str | None]]:
    ours = {f"keras_vit, {b}": ((f"keras-vit[{b}]",), _KERAS_VIT, None) for b in backends}
    return {**ours, **{name: PEERS[name] for name in names}}


def _collect(wanted: Requirement, needed: dict[str, float]) -> None:
    """Adds the megabytes of an installed package and of all that it requires."""
    name = canonicalize_name(wanted.name)
    if name in needed and not wanted.extras:
        return
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    files = (Path(str(file.locate())) for file in found.files or ())
    needed[name] = sum(file.stat().st_size for file in files if file.is_file()) / 2**20
    for requirement in map(Requirement, found.requires or ()):
        marker = requirement.marker
        if not marker or any(marker.evaluate({"extra": e}) for e in ("", *wanted.extras)):
            _collect(requirement, needed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("try", "measure", "here"))
    parser.add_argument("dist", type=Path, nargs="?", help="folder with a wheel and an sdist")
    parser.add_argument("--backends", nargs="+", default=["jax", "torch", "tensorflow"])
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--out", type=Path, help="JSON file for the measurements")
    asked = parser.parse_args()
    if asked.what == "try":
        try_distribution(asked.dist, asked.backends)
        sys.exit()
    here = asked.what == "here"
    names = (asked.backends, asked.peers)
    measured = count_here(*names) if here else measure(asked.dist, *names)
    if asked.out:
        asked.out.write_text(json.dumps(measured, indent=1) + "\n")
