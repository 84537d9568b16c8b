"""timm and transformers, and helpers of the comparisons with them, which run on torch.

An import of this module skips the tests of a file where one of the libraries is not installed.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")


def randomised(model: Any) -> Any:
    """A model for inference with a random number in every array."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    return model.eval()


def random_transformers(class_name: str, **fields: Any) -> Any:
    """A model of transformers with a random number in every array."""
    kind = getattr(transformers, class_name)
    torch.manual_seed(0)
    return randomised(kind(kind.config_class(**fields)))


def load_folder(folder: Path) -> Any:
    """The model that timm or transformers makes of a folder, which has to hold every array."""
    content = json.loads((folder / "config.json").read_text())
    if "architecture" in content:
        return timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    (kind,) = content["architectures"]
    model, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def channels_first(image: np.ndarray) -> Any:
    """A batch of images as the torch tensor `(batch, channels, height, width)`."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 3, 1, 2)))


def read_shapes(module: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array that a module holds."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
