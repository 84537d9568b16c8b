"""timm and transformers, and helpers of the comparisons with them, which run on torch.

An import of this module skips the tests of a file where one of the libraries is not installed.
"""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")


def random_transformers(class_name: str, **fields: Any) -> Any:
    """A model of transformers with a random number in every array."""
    kind = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**fields)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    return model


def channels_first(image: np.ndarray) -> Any:
    """A batch of images as the torch tensor `(batch, channels, height, width)`."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 3, 1, 2)))


def read_shapes(module: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array that a module holds."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
