"""Allocates memory for weights that a backend takes over without a copy."""

import contextlib
import math
import mmap
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np


def aligned(
    shape: tuple[int, ...],
    dtype: Any,
    allocate: Callable[..., np.ndarray] = np.zeros,
    offset: int = 0,
) -> np.ndarray:
    """Returns an array whose memory begins at a multiple of 64 bytes, or some bytes after one.

    JAX copies an array that begins elsewhere, and TensorFlow crashes when it computes with a tensor
    in such memory.

    Args:
        shape, dtype: those of the array.
        allocate: `np.zeros`, whose memory the system allocates at the first write; or, for an array
            that is about to be filled, `np.empty`, or `allocate_pages` for `give`.
        offset: number of bytes from that multiple to the array, at most 64.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = allocate(size + 64 + offset, "uint8")
    start = -room.ctypes.data % 64 + offset
    return room[start : start + size].view(dtype).reshape(shape)


def allocate_pages(size: int, dtype: str) -> np.ndarray:
    """Returns memory for an array that `give` takes over, in pages of the system's usual size.

    From 4 MB on, NumPy asks for pages of 2 MB, which a virtual machine may have to request from its
    host: the weights of L/16 took 2 seconds longer to load, and the model was not faster.
    """
    if size >= 2**22 and hasattr(mmap, "MAP_PRIVATE"):  # absent on Windows
        with contextlib.suppress(OSError):  # out of memory: NumPy raises MemoryError
            pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return np.frombuffer(pages, dtype)
    return np.empty(size, dtype)


def adopt(array: np.ndarray) -> Any:
    """Turns an `aligned` array into a tensor of this backend, which takes over its memory.

    For types that NumPy lacks, such as bfloat16, and on accelerators, the values are copied.
    """
    import keras

    match keras.backend.backend() if array.dtype.kind != "V" else "":
        case "torch":  # Keras copies an array
            import torch

            return torch.from_numpy(array)
        case "tensorflow":  # Keras copies an array, and TensorFlow may copy the copy
            import tensorflow as tf

            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return keras.ops.convert_to_tensor(array, dtype=array.dtype.name)  # else JAX copies


def gives_a_copy() -> bool:
    """Whether `give` copies an array, which may then have any layout and alignment: on JAX.

    A training step of Keras takes over the memory of all weights. If that memory came from NumPy,
    JAX would copy all weights at once.
    """
    import keras

    return keras.backend.backend() == "jax"


def give(variable: Any, array: np.ndarray) -> None:
    """Sets a Keras variable to an array of the same type, without a copy if possible.

    Unless `gives_a_copy`, the array must be `aligned`, and the caller must not use it afterwards.
    """
    import keras

    if gives_a_copy():
        import jax

        # JAX would share the memory of an aligned array; it copies one that begins elsewhere.
        # `jax.numpy.array` copies too, but compiles a program for every shape.
        if array.flags.c_contiguous and array.ctypes.data % 64 == 0:
            elsewhere = aligned(array.shape, array.dtype, np.empty, array.itemsize)
            elsewhere[...] = array
            array = elsewhere
        variable.assign(jax.device_put(array).block_until_ready())
        return
    value = adopt(array)
    if keras.backend.backend() == "torch":  # its `assign` copies the values
        import torch

        # In an autocast scope `variable.value` is a copy in another type.
        if isinstance(variable.value, torch.nn.Parameter):
            variable.value.data = value.to(variable.value.device)
            return
    variable.assign(value)
