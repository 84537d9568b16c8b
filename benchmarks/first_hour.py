"""From `pip install` to the first answer, beside timm, transformers and keras-hub.

    python -m benchmarks.first_hour dist --json benchmarks/results/first_hour.json

The wheel of `dist` and each library are installed in a fresh environment. Seconds are of processor
time on one thread, which another program on the machine hardly changes. No published weights are
needed: every library answers with a ViT-Ti/16 of random weights at 224 pixels.
"""

import argparse
import json
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weights.first_hour import Environment

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
PEERS: dict[str, tuple[Sequence[str], str]] = {
    "timm": (("timm",), _TIMM),
    "transformers": (("transformers[torch]", "pillow"), _TRANSFORMERS),
    "keras-hub, JAX": (("keras-hub", "jax"), _KERAS_HUB),
}
"""By the name of the library: packages, and a program that answers."""
_VARIABLES = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}


def measure(name: str, packages: Sequence[str], program: str) -> dict[str, object]:
    """Returns packages, megabytes, seconds to install, to the first answer, and to a later one."""
    variables = _VARIABLES | ({"KERAS_BACKEND": "jax"} if name.endswith("JAX") else {})
    with tempfile.TemporaryDirectory() as folder:
        fresh = Environment(Path(folder))
        before, begun = (fresh.packages(), fresh.megabytes()), _processor_seconds()
        fresh.install(*packages)
        installed = round(_processor_seconds() - begun)
        count, megabytes = fresh.packages() - before[0], round(fresh.megabytes() - before[1])
        times = []
        for _ in range(3):
            begun = _processor_seconds()
            fresh.run("python", "-c", program, **variables)
            times.append(round(_processor_seconds() - begun, 1))
    row = {"library": name, "packages": count, "megabytes": megabytes, "install_s": installed}
    return {**row, "first_s": times[0], "again_s": min(times[1:])}


def _processor_seconds() -> float:
    """Returns the processor time of all programs that have been run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with a wheel")
    parser.add_argument("--backends", nargs="*", default=["jax", "torch", "tensorflow"])
    parser.add_argument("--json", type=Path, help="file for the measurements")
    asked = parser.parse_args()
    (wheel,) = asked.dist.resolve().glob("*.whl")
    here = {b: f"keras-vit-zoo[{b}] @ {wheel.as_uri()}" for b in asked.backends}
    jobs = {f"keras_vit, {b}": ([package], _KERAS_VIT) for b, package in here.items()}
    measured = []
    for name, job in (jobs | PEERS).items():
        measured.append(measure(name, *job))
        print(json.dumps(measured[-1]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(measured, indent=1) + "\n")
