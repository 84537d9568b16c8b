"""Reads and writes files of arrays: npz and safetensors; reads h5, and pickles if allowed.

A reader reads all names, shapes and dtypes from the headers first, and then arrays one at a time.
The sizes in the headers are compared with the size of the file and with the limits of
`keras_vit.support.limits` before memory or time is spent on the arrays.
"""

import os
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from keras_vit.checkpoints.containers.h5 import H5Reader
from keras_vit.checkpoints.containers.npz import NpzReader, write_npz
from keras_vit.checkpoints.containers.pickled import PickleReader
from keras_vit.checkpoints.containers.reading import (
    ComputedArray,
    Reader,
    computed,
    joined,
    renamed,
    siblings,
)
from keras_vit.checkpoints.containers.safetensors import (
    SAFETENSORS_DTYPES,
    SafetensorsReader,
    write_safetensors,
)
from keras_vit.checkpoints.containers.torch_names import in_torch_names
from keras_vit.errors import CheckpointError
from keras_vit.presets.local_folder import PICKLE_ADVICE
from keras_vit.presets.place import refuse_pointer
from keras_vit.support.files import open_plain

__all__ = [
    "SAFETENSORS_DTYPES",
    "ComputedArray",
    "Reader",
    "computed",
    "joined",
    "open_arrays",
    "read_arrays",
    "renamed",
    "siblings",
    "write_npz",
    "write_safetensors",
]


def open_arrays(
    path: str | os.PathLike[str],
    file: IO[bytes] | None = None,
    *,
    allow_pickle_weights: bool = False,
) -> Reader:
    """Opens an npz, safetensors or h5 file; its first bytes decide the format.

    The file is opened once: a later replacement of the file at its path has no effect.

    Args:
        path: path of the file; only for messages if `file` is given.
        file: the open file; the reader closes it.
        allow_pickle_weights: whether to read arrays from a PyTorch pickle.

    Raises:
        CheckpointError: the file does not exist, is damaged, empty, a pickle, or of another
            format; or its header lists more than the file contains or the limits allow.
    """
    path = Path(path)
    if file is None:
        try:
            file = open_plain(path)
        except OSError as error:
            fault = "is a folder" if path.is_dir() else f"cannot be opened ({error.strerror})"
            fault = fault if os.path.lexists(path) else "does not exist"
            raise CheckpointError(f"{path}: expected a file of weights, but it {fault}.") from error
    try:
        return _choose_reader(path, file, allow_pickle_weights)
    except OSError as error:
        file.close()
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from error
    except BaseException:
        file.close()
        raise


def read_arrays(
    path: str | os.PathLike[str], *, allow_pickle_weights: bool = False
) -> dict[str, np.ndarray]:
    """Returns the arrays of a file by name, such as those of a linear head.

    If a name ends in `.weight`, arrays outside of its prefix are skipped.

    Raises:
        CheckpointError: as `open_arrays`.
    """
    with open_arrays(path, allow_pickle_weights=allow_pickle_weights) as file:
        reader = siblings(file, "weight")
        return {name: reader.read(name) for name in reader.shapes}


def _choose_reader(path: Path, file: IO[bytes], allow_pickle_weights: bool) -> Reader:
    head = file.read(10)
    file.seek(0)
    if allow_pickle_weights and _is_pickle(file, head):
        return PickleReader(path, file)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return NpzReader(path, file)
    if head[8:9] == b"{":
        return SafetensorsReader(path, file)
    if head[:8] == b"\x89HDF\r\n\x1a\n":
        return in_torch_names(H5Reader(path, file))
    if head[:1] == b"\x80":
        raise CheckpointError(f"{path}: this is a Python pickle. {PICKLE_ADVICE}")
    refuse_pointer(path, head, CheckpointError)
    raise CheckpointError(
        f"{path}: not an npz (zip), safetensors or h5 file; it is "
        f"{os.fstat(file.fileno()).st_size} bytes and begins with {head[:8]!r}. A download may "
        "have been cut, or have saved an error page."
    )


def _is_pickle(file: IO[bytes], head: bytes) -> bool:
    """Whether the file is a pickle, or a zip of torch with one inside."""
    if head[:1] == b"\x80":
        return head[5:9] != b"\0\0\0{"  # safetensors, whose header may have 128 bytes and more
    if head[:4] != b"PK\x03\x04":
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False
    finally:
        file.seek(0)
