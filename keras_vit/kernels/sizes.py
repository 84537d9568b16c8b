"""Computes with dynamic sizes: tensors in TensorFlow, symbols in PyTorch and JAX.

A model for images of any size is compiled and exported with such sizes. Keras's `arange` refuses a
symbol of torch, and its `cast` turns a symbol into a constant: an exported file would then resize
the positions of every image to the grid of the traced image.
"""

from typing import Any

import keras
from keras import ops

if keras.backend.backend() == "torch":
    import torch


def is_known(*sizes: Any) -> bool:
    """Whether all sizes are static ints, which can be compared while a graph is built."""
    return all(isinstance(size, int) for size in sizes)


def number(size: Any) -> Any:
    """Returns a size as a float32 scalar."""
    if is_known(size):
        return ops.convert_to_tensor(float(size), "float32")
    if keras.backend.backend() == "torch":
        return steps(size).new_ones(()) * size
    return ops.cast(size, "float32")


def steps(size: Any) -> Any:
    """Returns the values 0 to `size - 1`, float32 `(size,)`."""
    if keras.backend.backend() == "torch":
        return torch.arange(size, dtype=torch.float32, device=ops.zeros(()).device)
    return ops.cast(ops.arange(size), "float32")
