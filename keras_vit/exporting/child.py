"""Rebuilds the model of an export in float32, in this process or in one of another backend.

`python -m keras_vit.exporting.child JSON` is the other process.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from keras_vit.errors import ExportError
from keras_vit.exporting.formats import load_format
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan
from keras_vit.models.vision_transformer import VisionTransformer


def rebuild(model: VisionTransformer, plan: ExportPlan, folder: Path) -> VisionTransformer:
    """Returns the model in float32, for the image size of the export.

    Args:
        model: a model of any policy; it is returned as it is if it has this size and is float32.
        plan: the plan of the export.
        folder: folder for a preset, from which the model is built again.

    Raises:
        ExportError: the model has to be built again, and its class is not `VisionTransformer`.
    """
    if model.config == plan.config and model.dtype_policy.name == "float32":
        return model
    return _load(_preset(model, folder), plan, model.data_format)


def write_elsewhere(model: VisionTransformer, plan: ExportPlan, folder: Path, backend: str) -> None:
    """Writes the artefact in a process of another backend, which computes on the CPU.

    Raises:
        ExportError: the model's class is not `VisionTransformer`, or the process failed; the
            message has its last line.
    """
    request = {
        "preset": str(_preset(model, folder.parent)),
        "data_format": model.data_format,
        "plan": dataclasses.asdict(plan),
        "folder": str(folder),
    }
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    run_python(
        ["-m", "keras_vit.exporting.child", json.dumps(request)],
        folder.parent,
        f"The process of the backend {backend} failed",
        KERAS_BACKEND=backend,
        PYTHONPATH=os.pathsep.join(paths),
        CUDA_VISIBLE_DEVICES="",
    )


def run_python(arguments: list[str], folder: Path, failure: str, **variables: str) -> None:
    """Runs Python in a new process.

    Args:
        arguments: its arguments.
        folder: the unfinished folder, whose path is removed from the message.
        failure: the failed step as a clause, the beginning of the message.
        variables: further environment variables.

    Raises:
        ExportError: the process failed; the message has its last line.
    """
    process = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        cause = lines[-1] if lines else f"status {process.returncode}."
        cause = cause.replace(f"{folder}{os.sep}", "")
        raise ExportError(f"{failure}: {cause} Nothing was written.")


def main(request: str) -> None:
    """Writes the artefact of a request of `write_elsewhere`."""
    stored: dict[str, Any] = json.loads(request)
    plan = ExportPlan.from_json(stored["plan"])
    model = _load(Path(stored["preset"]), plan, stored["data_format"])
    load_format(plan.format).write(ExportGraph(model, plan), plan, Path(stored["folder"]))


def _preset(model: VisionTransformer, folder: Path) -> Path:
    """Returns a preset of the model below `folder`."""
    if type(model) is not VisionTransformer:
        raise ExportError(
            f"This export rebuilds the model from a preset, which {type(model).__name__} cannot "
            "do. Export it in float32, at its own size, on the backend that writes the format."
        )
    path = folder / "preset"
    if not path.exists():
        model.save_to_preset(path)
    return path


def _load(preset: Path, plan: ExportPlan, data_format: str) -> VisionTransformer:
    return VisionTransformer.from_preset(
        preset,
        image_size=plan.config.image_size,
        dtype="float32",
        data_format=data_format,
    )


if __name__ == "__main__":
    main(sys.argv[1])
