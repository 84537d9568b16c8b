"""Reads PyTorch pickles of arrays, `.bin` and `.pth`, if the caller allows them.

`torch.load(weights_only=True)` builds arrays, numbers, strings, lists and dicts, and refuses every
other object of a pickle except command-line options. It is still a parser of a complex format in
C++ and Python: SECURITY.md states what is not guaranteed for pickles.
"""

import argparse
import contextlib
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader
from keras_vit.checkpoints.containers.safetensors import SAFETENSORS_DTYPES
from keras_vit.errors import CheckpointError, shown
from keras_vit.support.limits import ARRAYS

_OLDEST_TORCH = "2.7"


class PickleReader(FileReader):
    """An open PyTorch pickle, mapped into memory if its format allows it.

    An array in nested dicts is named by the keys: `"state_dict.head.weight"`.

    Raises:
        CheckpointError: torch 2.7 or newer is not installed, or the pickle contains other objects
            than arrays.
    """

    format = "torch pickle"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        torch = _import_torch(path)
        with self.damage():
            self._tensors: dict[str, Any] = {}
            for name, tensor in _tensors_in(_load(torch, path, file), torch, set()):
                self.note(name, tuple(tensor.shape), _read_dtype(tensor))
                self._tensors[name] = tensor
        if not self._tensors:
            raise CheckpointError(f"{path}: the pickle contains no named arrays.")

    def read(self, name: str) -> np.ndarray:
        import torch

        with self.damage(name):
            tensor, dtype = self._tensors[name].detach().contiguous(), self.dtypes[name]
            if dtype == ml_dtypes.bfloat16:  # NumPy lacks this type
                tensor = tensor.view(torch.int16)
            return np.asarray(tensor.numpy()).view(dtype)


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


def _read_dtype(tensor: Any) -> np.dtype:
    """Returns the NumPy dtype of a dense array in memory.

    An array that is sparse, on another device, or of a type that is not for weights gets a dtype
    that is not numeric: it is refused if it is a weight of the model.
    """
    dtype, layout, device = map(str, (tensor.dtype, tensor.layout, tensor.device))
    types = {f"torch.{numpy_type}": numpy_type for numpy_type in SAFETENSORS_DTYPES.values()}
    if (layout, device) == ("torch.strided", "cpu") and dtype in types:
        return types[dtype]
    return np.dtype("V1", metadata={"words": f"{layout} of {dtype} on {device}"})


def _load(torch: Any, path: Path, file: IO[bytes]) -> Any:
    """Returns the contents of the pickle: arrays, numbers, strings, lists and dicts.

    Raises:
        CheckpointError: the pickle has an object of a class that torch refuses.
    """
    options = {"weights_only": True, "map_location": "cpu"}
    opened = Path(f"/proc/self/fd/{file.fileno()}")  # the open file, even if its path was replaced
    try:
        with _plain_values(torch):
            try:
                return torch.load(str(opened if opened.exists() else path), mmap=True, **options)
            except RuntimeError as error:
                if "TorchScript" in str(error):
                    raise CheckpointError(
                        f"{path}: this is a TorchScript program. Save only its arrays: "
                        "safetensors.torch.save_file(torch.jit.load(path).state_dict(), "
                        "'model.safetensors')."
                    ) from error
                if "mmap" not in str(error):
                    raise
            file.seek(0)  # written before torch 1.6
            return torch.load(file, **options)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named is None and "Unsupported operand" in str(error):
            raise CheckpointError(
                f"{path}: this is a Python pickle that torch.save did not write. Save its arrays "
                "where it was made: safetensors.numpy.save_file(arrays, 'model.safetensors')."
            ) from error
        if named is None:
            raise
        raise CheckpointError(
            f"{path}: the pickle also contains an object of {shown(named[1])}, which could "
            "run code; torch.load(weights_only=True) refuses it. Save only the arrays "
            "where the file was made: safetensors.torch.save_file(model.state_dict(), "
            "'model.safetensors'). If you trust the file, load it inside "
            "torch.serialization.safe_globals([that class])."
        ) from error


def _plain_values(torch: Any) -> contextlib.AbstractContextManager[Any]:
    """Lets torch read argparse.Namespace, which training checkpoints use for their options."""
    if argparse.Namespace in torch.serialization.get_safe_globals():
        return contextlib.nullcontext()  # the program has already allowed it
    return torch.serialization.safe_globals([argparse.Namespace])


def _tensors_in(content: Any, torch: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields names and arrays of nested dicts, each dict once."""
    if not isinstance(content, Mapping) or id(content) in seen or len(seen) > ARRAYS.value:
        return
    seen.add(id(content))
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            yield str(key), value
        else:
            for name, tensor in _tensors_in(value, torch, seen):
                yield f"{key}.{name}", tensor
