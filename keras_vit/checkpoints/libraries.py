"""Forward passes of the other libraries themselves; timm and transformers need torch."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.fixes.nested_layers import all_layers

Outputs = dict[str, np.ndarray]
_Results = tuple[np.ndarray, list[np.ndarray]]

_VISION_CLASSES = {
    "clip": "CLIPVisionModelWithProjection",
    "siglip": "SiglipVisionModel",
    "vit_mae": "ViTMAEModel",
}
"""transformers' class for the encoder inside a larger model, by `model_type`."""


class LibraryUnavailableError(CheckpointError):
    """A library cannot run a checkpoint: it is not installed, or cannot read the checkpoint."""


def run_library(
    dialect: str,
    path: str | os.PathLike[str],
    images: np.ndarray,
    num_layers: int,
    blocks: Sequence[int],
) -> tuple[str, Outputs]:
    """Runs a checkpoint folder by its dialect's own library.

    Args:
        dialect: name of the dialect.
        path: folder of the checkpoint; the libraries need the JSON beside the weights.
        images: float32 `(images, height, width, channels)`, prepared for the model.
        num_layers: number of blocks of the model.
        blocks: numbers of the blocks whose outputs are returned.

    Returns:
        The library with its version, and the outputs: under `"logits"` the output for each image,
        `(images, classes)`, of an encoder its pooled output; under `"block_0"` and so on the output
        of each chosen block, `(images, tokens, hidden_size)`.

    Raises:
        LibraryUnavailableError: the dialect's library is not on the package index, is not
            installed, fails to import, or needs a folder and got a file.
    """
    library = dialect.partition("/")[0]
    if library not in _LIBRARIES:
        raise LibraryUnavailableError(f"the {dialect} dialect has no library to install")
    if not Path(path).is_dir():
        raise LibraryUnavailableError(
            f"{library} reads a folder with its config.json, not a file alone"
        )
    package, run = _LIBRARIES[library]
    try:
        logits, tokens = run(Path(path).resolve(), images, num_layers, blocks)
    except ImportError as error:
        raise LibraryUnavailableError(f"{library} is not installed ({error})") from error
    except RuntimeError as error:
        if "torchvision" not in str(error):
            raise
        raise LibraryUnavailableError(f"{library} does not import here ({error})") from error
    names = [f"block_{k}" for k in blocks]
    outputs = {"logits": logits, **dict(zip(names, tokens, strict=True))}
    return f"{package} {metadata.version(package)}", outputs


def _timm(path: Path, images: np.ndarray, num_layers: int, blocks: Sequence[int]) -> _Results:
    import timm

    model = timm.create_model(f"local-dir:{path}", pretrained=True)
    return _run_torch(model, images, num_layers, blocks, lambda output: output)


def _transformers(
    path: Path, images: np.ndarray, num_layers: int, blocks: Sequence[int]
) -> _Results:
    import transformers

    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    kind = config.get("model_type", "vit")
    named = (config.get("architectures") or ["AutoModel"])[0]
    changes = {"mask_ratio": 0.0} if kind == "vit_mae" else {}
    cls = getattr(transformers, _VISION_CLASSES.get(kind, named))
    model = cls.from_pretrained(path, local_files_only=True, **changes)
    return _run_torch(model, images, num_layers, blocks, _output_of_transformers)


def _output_of_transformers(output: Any) -> Any:
    for name in ("logits", "image_embeds", "pooler_output"):
        if getattr(output, name, None) is not None:
            return getattr(output, name)
    return output.last_hidden_state[:, 0]


def _run_torch(
    model: Any,
    images: np.ndarray,
    num_layers: int,
    blocks: Sequence[int],
    logits_of: Callable[[Any], Any],
) -> _Results:
    import torch

    stack = next(
        list(module)
        for module in model.modules()
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))
        and len(module) == num_layers
        and len({type(block) for block in module}) == 1
        and any(True for _ in module[0].children())
    )
    tokens: list[np.ndarray] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        tokens.append((output[0] if isinstance(output, tuple) else output).float().numpy())

    handles = [stack[k].register_forward_hook(keep) for k in blocks]
    try:
        with torch.no_grad():
            channels_first = np.ascontiguousarray(np.moveaxis(images, -1, 1))
            logits = logits_of(model.eval().float()(torch.from_numpy(channels_first)))
    finally:
        for handle in handles:
            handle.remove()
    return logits.numpy(), tokens


def _keras_hub(path: Path, images: np.ndarray, num_layers: int, blocks: Sequence[int]) -> _Results:
    import keras
    import keras_hub

    if (path / "task.json").is_file():
        model = keras_hub.models.ImageClassifier.from_preset(str(path), activation=None)
        model.preprocessor = None
    else:
        model = keras_hub.models.Backbone.from_preset(str(path))
    tokens: list[np.ndarray] = []
    with _record_outputs([_keras_blocks(model, num_layers)[k] for k in blocks], tokens):
        output = model(images)
    output = keras.ops.convert_to_numpy(output)
    return output[:, 0] if output.ndim == 3 else output, tokens


def _keras_blocks(model: Any, num_layers: int) -> list[Any]:
    """Returns the blocks: the class of layers that hold an attention and stand once per block."""
    layers_of: dict[type, list[Any]] = {}
    for layer in all_layers(model):
        parts = [part for part in all_layers(layer) if part is not layer]
        if layer is not model and any("attention" in type(p).__name__.lower() for p in parts):
            layers_of.setdefault(type(layer), []).append(layer)
    stacks = [layers for layers in layers_of.values() if len(layers) == num_layers]
    return min(stacks, key=lambda layers: len(list(all_layers(layers[0]))))  # not what holds them


@contextlib.contextmanager
def _record_outputs(layers: Sequence[Any], outputs: list[np.ndarray]) -> Iterator[None]:
    """Appends the output of each layer to a list while a model runs."""
    import keras

    def recording(call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*arguments: Any, **options: Any) -> Any:
            output = call(*arguments, **options)
            first = output[0] if isinstance(output, tuple) else output
            outputs.append(keras.ops.convert_to_numpy(first))
            return output

        return record

    for layer in layers:
        object.__setattr__(layer, "call", recording(layer.call))
    try:
        yield
    finally:
        for layer in layers:
            object.__delattr__(layer, "call")


_LIBRARIES = {
    "timm": ("timm", _timm),
    "transformers": ("transformers", _transformers),
    "keras_hub": ("keras-hub", _keras_hub),
}
"""Libraries that can run, by the first word of their dialects; their names on the index."""
