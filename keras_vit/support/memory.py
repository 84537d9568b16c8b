"""Memory for weights that a backend takes over without copying the numbers."""

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
    behind: int = 0,
) -> np.ndarray:
    """Returns an array whose memory begins at a multiple of 64 bytes, or some bytes behind one.

    JAX copies an array that begins elsewhere, and TensorFlow ends the process when it computes with
    a tensor in such memory.

    Args:
        shape, dtype: those of the array.
        allocate: `np.zeros`, whose memory the system gives at the first write to it; or, for an
            array that is about to be filled, `np.empty`, or `room_to_give` for `give`.
        behind: number of bytes from that multiple to the array, at most 64.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = allocate(size + 64 + behind, "uint8")
    start = -room.ctypes.data % 64 + behind
    return room[start : start + size].view(dtype).reshape(shape)


def room_to_give(size: int, dtype: str) -> np.ndarray:
    """Returns memory for an array that `give` gets, in pages of the system's usual size.

    NumPy asks for pages of 2 MB from 4 MB on. A virtual machine may have to ask its host for them:
    the weights of L/16 took 2 seconds longer to arrive, and the model was no faster.
    """
    if size >= 2**22 and hasattr(mmap, "MAP_PRIVATE"):  # absent on Windows
        with contextlib.suppress(OSError):  # where there is no memory, NumPy raises MemoryError
            pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return np.frombuffer(pages, dtype)
    return np.empty(size, dtype)


def adopt(array: np.ndarray) -> Any:
    """Returns a tensor of this backend in the memory of an `aligned` array, which has no other use.

    For types that NumPy lacks, such as bfloat16, and on accelerators, the numbers are copied.
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
    """Whether `give` copies an array, which may then have any order and lie anywhere: on JAX.

    A step of Keras takes over the memory of all weights, and JAX would copy them all at once if
    NumPy had given it.
    """
    import keras

    return keras.backend.backend() == "jax"


def give(variable: Any, array: np.ndarray) -> None:
    """Makes an array the value of a variable of Keras of the same type.

    Where the variable gets no copy, it is an `aligned` array, which has no other use.
    """
    import keras

    if gives_a_copy():
        import jax

        # JAX would share the memory of such an array; one that begins elsewhere is copied.
        # `jax.numpy.array` copies too, but compiles a program for every shape.
        if array.flags.c_contiguous and array.ctypes.data % 64 == 0:
            elsewhere = aligned(array.shape, array.dtype, np.empty, array.itemsize)
            elsewhere[...] = array
            array = elsewhere
        variable.assign(jax.device_put(array).block_until_ready())
        return
    value = adopt(array)
    if keras.backend.backend() == "torch":  # its `assign` copies the numbers
        import torch

        # In an autocast scope `variable.value` is a copy in another type.
        if isinstance(variable.value, torch.nn.Parameter):
            variable.value.data = value.to(variable.value.device)
            return
    variable.assign(value)
