"""Files of arrays: npz, safetensors and h5 to `{name: array}` and back, never a pickle.

A reader knows all names, shapes and dtypes from the headers before it reads one array, and then
reads arrays one at a time. What the headers promise is compared with the bytes that are there,
and with the limits of `keras_vit.limits`, before memory or time is spent on it.
"""

import os
from pathlib import Path
from typing import IO

from keras_vit.checkpoints.containers.h5 import H5Reader, h5_written_beside
from keras_vit.checkpoints.containers.npz import NpzReader, write_npz
from keras_vit.checkpoints.containers.reading import PICKLE_ADVICE, Reader, joined
from keras_vit.checkpoints.containers.safetensors import (
    SAFETENSORS_DTYPES,
    SafetensorsReader,
    write_safetensors,
)
from keras_vit.checkpoints.containers.writing import Part, parts_of, whole
from keras_vit.errors import CheckpointError
from keras_vit.files import open_plain

__all__ = [
    "PICKLE_ADVICE",
    "SAFETENSORS_DTYPES",
    "Part",
    "Reader",
    "h5_written_beside",
    "joined",
    "open_arrays",
    "parts_of",
    "whole",
    "write_npz",
    "write_safetensors",
]


def open_arrays(path: str | os.PathLike[str], file: IO[bytes] | None = None) -> Reader:
    """Opens an npz, safetensors or h5 file, told apart by their first bytes.

    The file is opened once: what replaces it at its path meanwhile has no effect.

    Args:
        path: of the file, for messages if the file is open already.
        file: the open file, which the reader closes.

    Raises:
        CheckpointError: there is no such file, or it is damaged, empty, a pickle, or something
            else; or it promises more than it holds, or more than the limits allow.
    """
    path = Path(path)
    if file is None:
        try:
            file = open_plain(path)
        except OSError as error:
            what = "is a folder" if path.is_dir() else f"cannot be opened ({error.strerror})"
            what = what if os.path.lexists(path) else "does not exist"
            raise CheckpointError(f"{path}: expected a file of weights, but it {what}.") from error
    try:
        return _reader_of(path, file)
    except BaseException:
        file.close()
        raise


def _reader_of(path: Path, file: IO[bytes]) -> Reader:
    head = file.read(10)
    file.seek(0)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return NpzReader(path, file)
    if head[8:9] == b"{":
        return SafetensorsReader(path, file)
    if head[:8] == b"\x89HDF\r\n\x1a\n":
        return H5Reader(path, file)
    if head[:1] == b"\x80":
        raise CheckpointError(f"{path}: this is a Python pickle. {PICKLE_ADVICE}")
    raise CheckpointError(
        f"{path}: neither an npz (zip), a safetensors nor an h5 file; it is "
        f"{os.fstat(file.fileno()).st_size} bytes and begins with {head[:8]!r}. A download may "
        "have been cut, or have saved an error page."
    )
