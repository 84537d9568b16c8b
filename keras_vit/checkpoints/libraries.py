"""Forward passes of the other libraries themselves; timm and transformers need torch."""

import os
from pathlib import Path
from typing import Any

import numpy as np


class LibraryUnavailableError(Exception):
    """A library cannot run a checkpoint: it is not installed, or cannot read the checkpoint."""


def library_logits(dialect: str, path: str | os.PathLike[str], images: np.ndarray) -> np.ndarray:
    """Returns the logits that a dialect's own library computes from a checkpoint folder.

    Args:
        dialect: name of the dialect.
        path: folder of the checkpoint; the libraries need the JSON beside the weights.
        images: float32 `(batch, height, width, channels)` in [-1, 1].

    Returns:
        The logits, `(batch, num_classes)`.

    Raises:
        LibraryUnavailableError: the dialect's library is not on the package index, is not
            installed, fails to import, or needs a folder and got a file.
    """
    run = {"timm": _timm, "transformers": _transformers, "keras_hub": _keras_hub}.get(dialect)
    if run is None:
        raise LibraryUnavailableError(f"the {dialect} dialect has no library to install")
    if not Path(path).is_dir():
        raise LibraryUnavailableError(
            f"{dialect} reads a folder with its config.json, not a file alone"
        )
    try:
        return run(Path(path).resolve(), images)
    except ImportError as error:
        raise LibraryUnavailableError(f"{dialect} is not installed ({error})") from error
    except RuntimeError as error:
        if "torchvision" not in str(error):
            raise
        raise LibraryUnavailableError(f"{dialect} does not import here ({error})") from error


def _timm(path: Path, images: np.ndarray) -> np.ndarray:
    import timm
    import torch

    model = timm.create_model(f"local-dir:{path}", pretrained=True).eval()
    with torch.no_grad():
        return model(_channels_first(torch, images)).numpy()


def _transformers(path: Path, images: np.ndarray) -> np.ndarray:
    import torch
    import transformers

    if "ViTModel" in (path / "config.json").read_text(encoding="utf-8"):
        raise LibraryUnavailableError("a ViTModel of transformers has no logits")
    model = transformers.ViTForImageClassification.from_pretrained(path, local_files_only=True)
    with torch.no_grad():
        return model.eval()(_channels_first(torch, images)).logits.numpy()


def _keras_hub(path: Path, images: np.ndarray) -> np.ndarray:
    import keras
    import keras_hub

    if not (path / "task.json").is_file():
        raise LibraryUnavailableError("a ViTBackbone of keras-hub has no logits")
    model = keras_hub.models.ImageClassifier.from_preset(str(path), activation=None)
    model.preprocessor = None
    return keras.ops.convert_to_numpy(model(images))


def _channels_first(torch: Any, images: np.ndarray) -> Any:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, -1, 1)))
