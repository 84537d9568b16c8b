"""Helpers of the comparisons with transformers and timm, which run on torch."""

import filecmp
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keras_vit.checkpoints.containers import open_arrays


def randomise(module: Any) -> Any:
    """Gives every parameter of a module on torch's "meta" device a random value.

    Matrices are scaled by their fan-in, so that activations of wide and deep models stay bounded.
    Returns the module in evaluation mode.
    """
    assert not list(module.buffers())
    module = module.to_empty(device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_matrix = name.endswith("weight") and parameter.ndim > 1
            is_scale = name.endswith("weight") and parameter.ndim == 1
            fan_in = math.prod(parameter.shape[1:])
            parameter.copy_(torch.randn_like(parameter) * (fan_in**-0.5 if is_matrix else 0.3))
            parameter.add_(1.0 if is_scale else 0.0)
    return module.eval()


def channels_first(image: np.ndarray) -> Any:
    """A batch of images as the torch tensor `(batch, channels, height, width)`."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 3, 1, 2)))


def stored(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file."""
    with open_arrays(path) as reader:
        return {name: reader.read(name) for name in reader.shapes}


def assert_same_weights(left: Path, right: Path) -> None:
    """Fails unless two folders hold the same weights, array by array and byte by byte."""
    arrays, others = stored(left / "model.safetensors"), stored(right / "model.safetensors")
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert (array.shape, array.dtype) == (others[name].shape, others[name].dtype), name
        assert array.tobytes() == others[name].tobytes(), name
    assert filecmp.cmp(left / "model.safetensors", right / "model.safetensors", shallow=False)


def shapes_of(module: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array that a module holds."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
