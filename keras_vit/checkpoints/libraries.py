"""Runs checkpoints with their own libraries; timm and transformers need PyTorch."""

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints.families.family import Format, Output
from keras_vit.errors import CheckpointError, first_line
from keras_vit.support.extras import is_installed


class LibraryUnavailableError(CheckpointError):
    """A library is not installed, or cannot run a checkpoint."""


def run_library(
    format: Format, path: str | os.PathLike[str], images: np.ndarray
) -> tuple[str, np.ndarray]:
    """Runs a checkpoint folder with its own library.

    Args:
        format: format of the checkpoint.
        path: folder of the checkpoint, with the JSON files that the library needs.
        images: float32 `(images, height, width, channels)`, prepared for the model.

    Returns:
        The library with its version, and the output for each image, `(images, classes)`; for an
        encoder, its pooled output.

    Raises:
        LibraryUnavailableError: the library is not on the package index, is not
            installed, cannot be imported, or needs a folder instead of a file.
    """
    library = format.name.partition("/")[0]
    if library not in _LIBRARIES:
        raise LibraryUnavailableError(f"the family {format.name} has no library to install")
    if not os.path.isdir(path):  # noqa: PTH112  a long name does not raise
        raise LibraryUnavailableError(
            f"{library} needs a folder with the config.json, not a single file"
        )
    package, run = _LIBRARIES[library]
    try:
        logits = run(Path(path).resolve(), images, format)
    except ImportError as error:
        state = "cannot be imported here" if is_installed(library) else "is not installed"
        raise LibraryUnavailableError(f"{library} {state} ({first_line(error)})") from error
    except RuntimeError as error:
        if "torchvision" not in str(error):
            raise
        raise LibraryUnavailableError(f"{library} cannot be imported here ({error})") from error
    return f"{package} {metadata.version(package)}", logits


def _timm(path: Path, images: np.ndarray, format: Format) -> np.ndarray:
    import timm

    return _run_torch(
        timm.create_model(f"local-dir:{path}", pretrained=True), images, format.row.output
    )


def _transformers(path: Path, images: np.ndarray, format: Format) -> np.ndarray:
    import transformers

    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    kind = config.get("model_type")
    if kind is not None and kind != format.words[0].partition("/")[0]:
        raise LibraryUnavailableError(
            f"transformers has no class for the vision tower of {kind!r} alone"
        )
    compared = format.row.output
    named = (config.get("architectures") or ["AutoModel"])[0]
    model, info = getattr(transformers, compared.class_name or named).from_pretrained(
        path, local_files_only=True, output_loading_info=True, **compared.arguments
    )
    # transformers initialises a pooler that the file lacks with random weights.
    lacks_pooler = any("pooler" in name for name in info["missing_keys"])
    compared = compared._replace(
        has_pooler=compared.has_pooler and not lacks_pooler,
        first_patch=compared.first_patch if config.get("use_mean_pooling", True) else None,
    )
    if hasattr(model, "make_preprocessor_external"):  # RADIO normalises with its own mean and std
        model.make_preprocessor_external()
    return _run_torch(model, images, compared)


def _run_torch(model: Any, images: np.ndarray, compared: Output) -> np.ndarray:
    import torch

    channels_first = np.ascontiguousarray(np.moveaxis(images, -1, 1))
    with torch.no_grad():
        output = model.eval().float()(torch.from_numpy(channels_first))
    if torch.is_tensor(output):
        return output.numpy()
    maps = getattr(output, "predicted_depth", None)
    maps = output.get("logits") if maps is None else maps[:, None]
    if maps is not None and maps.ndim == 4:  # resized to the images, as post-processing does
        size = channels_first.shape[2:]
        maps = torch.nn.functional.interpolate(maps, size=size, mode="bilinear")
        return maps.movedim(1, -1).reshape(len(images), -1).numpy()
    pooled = ("image_embeds", "pooler_output", "summary") if compared.has_pooler else ()
    for name in ("logits", *pooled):  # outputs of transformers
        if getattr(output, name, None) is not None:
            return getattr(output, name).numpy()
    tokens = output.last_hidden_state.numpy()
    first = compared.first_patch
    return tokens[:, 0] if first is None else tokens[:, first:].mean(axis=1)


def _keras_hub(path: Path, images: np.ndarray, format: Format) -> np.ndarray:
    import keras
    import keras_hub

    if (path / "task.json").is_file():
        model = keras_hub.models.ImageClassifier.from_preset(str(path), activation=None)
        model.preprocessor = None
    else:
        model = keras_hub.models.Backbone.from_preset(str(path))
    output = keras.ops.convert_to_numpy(model(images))
    return output[:, 0] if output.ndim == 3 else output


_LIBRARIES = {
    "timm": ("timm", _timm),
    "transformers": ("transformers", _transformers),
    "keras_hub": ("keras-hub", _keras_hub),
}
"""Libraries that can run checkpoints, by the first word of their formats: package and function."""
