"""The model for an export: as it is, rebuilt in float32, or loaded by a process of another backend.

Run as a program (`python -m keras_vit.exporting.child REQUEST`), it is that process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_vit.errors import ConfigError, ExportError
from keras_vit.exporting.plan import ExportPlan
from keras_vit.files import write_json

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer


class ModelForExport:
    """A model and its weights, for this process and for others.

    Args:
        model: of any policy.
        image_size: another one than the model's, or None.
    """

    def __init__(
        self, model: "VisionTransformer", image_size: int | tuple[int, int] | None
    ) -> None:
        self._model = model
        resized = (
            model.config if image_size is None else model.config.replace(image_size=image_size)
        )
        self.image_size = resized.image_size
        self.was_of_another_policy = model.dtype_policy.name != "float32"
        self.data_format = model.data_format

    def model(self, folder: Path) -> "VisionTransformer":
        """Returns the model in float32 at the size of the export.

        Args:
            folder: for a preset of the weights, where the model has to be built again.
        """
        same_size = self.image_size == self._model.config.image_size
        if same_size and not self.was_of_another_policy:
            return self._model
        return _loaded(self.preset(folder), self.image_size, self.data_format)

    def preset(self, folder: Path) -> Path:
        """Returns a preset of the model below `folder`.

        Raises:
            ExportError: the model is of a class that another process does not know.
        """
        from keras_vit.model import VisionTransformer

        if type(self._model) is not VisionTransformer:
            raise ExportError(
                f"A {type(self._model).__name__} is not built again from its weights, by this "
                "backend or another. Export it in float32, at its own size, under the backend "
                "that writes the format."
            )
        path = folder / "preset"
        if not path.exists():
            self._model.save_to_preset(path)
        return path


def write(
    source: ModelForExport, plan: ExportPlan, folder: Path, facts: dict[str, Any], backend: str
) -> None:
    """Writes the artefact in a process of another backend.

    Raises:
        ExportError: the process failed; the message has its last line.
    """
    request = folder.parent / "request.json"
    described = {
        "preset": str(source.preset(folder.parent)),
        "image_size": source.image_size,
        "data_format": source.data_format,
        "plan": plan.to_dict(),
        "folder": str(folder),
        "facts": facts,
    }
    write_json(request, described)
    run(request, backend)


def run(request: Path, backend: str) -> None:
    """Does a request in a process of another backend.

    Raises:
        ExportError: the process failed; the message has its last line.
    """
    command = [sys.executable, "-m", "keras_vit.exporting.child", str(request)]
    process = subprocess.run(
        command, env=environment(backend), capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise ExportError(failure(backend, process.stderr))


def environment(backend: str) -> dict[str, str]:
    """Returns the variables of a process of another backend, which uses the processor alone."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "KERAS_BACKEND": backend,
        "PYTHONPATH": os.pathsep.join(paths),
        "CUDA_VISIBLE_DEVICES": "",
    }


def failure(backend: str, output: str) -> str:
    """Returns the sentence about a process that failed with an output on standard error."""
    lines = [line for line in output.splitlines() if line.strip()] or ["no message"]
    return f"The process of the backend {backend} failed: {lines[-1]}"


def _loaded(
    preset: Path, image_size: tuple[int, int] | None, data_format: str
) -> "VisionTransformer":
    from keras_vit.model import VisionTransformer

    return VisionTransformer.from_preset(
        preset, image_size=image_size, dtype="float32", data_format=data_format
    )


def main(request: str) -> None:
    """Writes the artefact of a request of `write`."""
    from keras_vit.exporting.formats import format_named
    from keras_vit.exporting.pipeline import ExportGraph

    stored = json.loads(Path(request).read_text(encoding="utf-8"))
    plan = ExportPlan.from_dict(stored["plan"])
    size = stored["image_size"] and tuple(stored["image_size"])
    model = _loaded(Path(stored["preset"]), size, stored["data_format"])
    form = format_named(plan.format)
    form.write(ExportGraph(model, plan), plan, Path(stored["folder"]), stored["facts"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise ConfigError("Expected the file of a request.")
    main(sys.argv[1])
