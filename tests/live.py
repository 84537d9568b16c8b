"""Helpers of the comparisons with transformers and timm, which run on torch."""

import dataclasses
import filecmp
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keras_vit.checkpoints.containers import open_arrays
from keras_vit.model import VisionTransformer
from tests.golden import outputs, relative_error

Stages = dict[str, np.ndarray]


@dataclasses.dataclass
class Live:
    """A model of another library, its outputs, the folder it wrote, and keras_vit's model of it.

    Args:
        library_model: the model of the library, in evaluation mode.
        image: `(batch, height, width, channels)`.
        stages: the outputs of the library's model, by the names of `tests.golden`.
        folder: with `model.safetensors` and `config.json`, as the library wrote them.
        keras_vit_model: loaded from the folder.
    """

    library_model: Any
    image: np.ndarray
    stages: Stages
    folder: Path
    keras_vit_model: VisionTransformer

    def errors(self) -> dict[str, float]:
        """The relative error of each stage of keras_vit's model."""
        got = outputs(self.keras_vit_model, self.image, self.stages)
        assert got.keys() == self.stages.keys()
        return {name: relative_error(got[name], want) for name, want in self.stages.items()}


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


def assert_same_stages(left: Stages, right: Stages) -> None:
    """Fails if stages differ by more than 1e-6, the rounding of different kernels of one GELU."""
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert relative_error(array, right[name]) <= 1e-6, name


def shapes_of(module: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array that a module holds."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@dataclasses.dataclass
class Headers:
    """A reader of a file that has the names and shapes of arrays, and no values."""

    path: Path
    shapes: dict[str, tuple[int, ...]]

    @property
    def dtypes(self) -> dict[str, np.dtype]:
        return dict.fromkeys(self.shapes, np.dtype("float32"))
