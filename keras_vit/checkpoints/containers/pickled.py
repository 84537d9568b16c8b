"""torch's pickles of arrays, `.bin` and `.pth`, for callers who allow them.

`torch.load(weights_only=True)` builds arrays, numbers, strings, lists and dicts, and refuses every
other object of a pickle. It is still a parser of a rich format in C++ and Python: SECURITY.md says
which promises end here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader
from keras_vit.checkpoints.containers.safetensors import SAFETENSORS_DTYPES
from keras_vit.errors import CheckpointError, shown

_OLDEST_TORCH = "2.7"
_INNER = ("state_dict", "model", "teacher")
"""Keys below which training scripts keep the arrays."""


class PickleReader(FileReader):
    """An open pickle of torch, mapped into memory where its format allows it.

    Raises:
        CheckpointError: torch 2.7 or newer is not installed, or the pickle holds other objects
            than arrays.
    """

    format = "torch pickle"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        torch = _import_torch(path)
        with self.damage():
            self._tensors = _tensors_of(_load(torch, path, file), torch)
            for name, tensor in self._tensors.items():
                self.note(name, tuple(tensor.shape), self._dtype_of(name, tensor))
        if not self._tensors:
            raise CheckpointError(f"{path}: the pickle holds no arrays by name.")

    def read(self, name: str) -> np.ndarray:
        import torch

        with self.damage(name):
            tensor, dtype = self._tensors[name].detach().contiguous(), self.dtypes[name]
            if dtype == ml_dtypes.bfloat16:  # NumPy lacks this type
                tensor = tensor.view(torch.int16)
            return np.asarray(tensor.numpy()).view(dtype)

    def _dtype_of(self, name: str, tensor: Any) -> np.dtype:
        """Returns the type in NumPy of a plain array in memory.

        Raises:
            CheckpointError: the array is sparse, on another device, or of a type without weights.
        """
        dtype, layout, device = map(str, (tensor.dtype, tensor.layout, tensor.device))
        types = {f"torch.{numpy_type}": numpy_type for numpy_type in SAFETENSORS_DTYPES.values()}
        if (layout, device) == ("torch.strided", "cpu") and dtype in types:
            return types[dtype]
        raise CheckpointError(
            f"{self.path}: array {shown(name)}: {layout} arrays of {dtype} on {device} hold no "
            "weights."
        )


def _import_torch(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or torch.__version__ < _OLDEST_TORCH:
        version = "not installed" if torch is None else torch.__version__
        raise CheckpointError(
            f"{path}: this is a pickle, which torch {_OLDEST_TORCH} or newer reads; torch is "
            f"{version}. pip install torch."
        )
    return torch


def _load(torch: Any, path: Path, file: IO[bytes]) -> Any:
    """Returns the contents of the pickle: arrays, numbers, strings, lists and dicts."""
    options = {"weights_only": True, "map_location": "cpu"}
    opened = Path(f"/proc/self/fd/{file.fileno()}")  # the open file, whatever is at its path now
    try:
        return torch.load(str(opened if opened.exists() else path), mmap=True, **options)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
    file.seek(0)  # written before torch 1.6
    return torch.load(file, **options)


def _tensors_of(content: Any, torch: Any) -> dict[str, Any]:
    """Returns the arrays by name, from the top of the pickle or below a known key."""
    for key in _INNER:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        return {}
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
