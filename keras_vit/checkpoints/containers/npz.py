"""Reads and writes npz: a zip of .npy members, whose data are read on demand."""

import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Literal

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader, MappedFile
from keras_vit.checkpoints.containers.writing import open_new, view_bytes
from keras_vit.errors import CheckpointError, listed, shown
from keras_vit.presets.local_folder import PICKLE_ADVICE
from keras_vit.support.limits import ARRAYS, HEADER_BYTES, JSON_BYTES

_NPY_HEADER = 4096
"""Most bytes of the header of a .npy member; NumPy writes 128."""


_END_OF_ZIP = 22 + 2**16
"""Most bytes of the record at the end of a zip: 22, and a comment."""


class NpzReader(FileReader):
    """An open npz file."""

    format = "npz"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        # A member, whether its values are in column-major order, the length of its .npy header.
        self._members: dict[str, tuple[zipfile.ZipInfo, Literal["C", "F"], int]] = {}
        with self.damage():
            directory = _Directory(path, file)
            self._zip = zipfile.ZipFile(directory)
            directory.is_read = True
            ARRAYS.check(len(self._zip.infolist()), path, CheckpointError)
            self._refuse_lost_members(file)
            self._refuse_a_model()
            self._mapped = MappedFile(file)
            for member in self._zip.infolist():
                self.at = member.filename.removesuffix(".npy")
                self._add(self.at, member)

    def _refuse_lost_members(self, file: IO[bytes]) -> None:
        """Compares the directory with the number of members that the end of the zip states.

        `zipfile` does not do this: one wrong length in the directory turns the following entries
        into a comment, and their arrays would be missing.
        """
        file.seek(max(0, self.size - _END_OF_ZIP))
        end = file.read(_END_OF_ZIP)
        (number,) = struct.unpack_from("<H", end, end.rfind(b"PK\x05\x06") + 10)
        listed = len(self._zip.infolist())
        if number not in (listed, 0xFFFF):  # 0xFFFF: a 64-bit zip, with the number elsewhere
            raise CheckpointError(
                f"{self.path}: its directory lists {listed} arrays, and the end of the file states "
                f"{number}; the file is damaged. Fetch or write it again."
            )

    def _refuse_a_model(self) -> None:
        """Refuses a zip of other files; for a `.keras` file, the message names its class."""
        names = self._zip.namelist()
        if names and not any(name.endswith((".npy", ".pkl", ".h5")) for name in names):
            with self._zip.open(names[0]) as stream:
                if stream.read(6) == b"\x93NUMPY":  # from a writer that omits .npy
                    return
            raise CheckpointError(
                f"{self.path}: this is a zip without NumPy arrays; it has {listed(names, 3)}. "
                "Unpack it and give the path of the weights, or save the arrays as a safetensors "
                "file."
            )
        if not {"config.json", "model.weights.h5"} <= set(names):
            return
        with self._zip.open("config.json") as stream:
            config = json.loads(stream.read(JSON_BYTES.value))
        kind = shown(config.get("registered_name") or config.get("class_name"), quoted=False)
        raise CheckpointError(
            f"{self.path}: this is a .keras file with a model of the class {kind}; expected a "
            "file of weights. Open it with keras.saving.load_model; a model of keras_vit can then "
            "be saved with keras_vit.checkpoints.save or save_to_preset."
        )

    def _add(self, name: str, zip_info: zipfile.ZipInfo) -> None:
        if name.endswith("data.pkl"):
            raise CheckpointError(f"{self.path}: this is a PyTorch pickle. {PICKLE_ADVICE}")
        self._check_sizes(name, zip_info)
        with self._zip.open(zip_info) as stream:
            shape, dtype, column_major, offset = _read_npy_header(stream.read(_NPY_HEADER))
        if dtype.hasobject:
            raise CheckpointError(
                f"{self.path}: array {shown(name)} contains pickled Python objects ({dtype}); "
                "expected numbers. Such objects are never unpickled."
            )
        promised = math.prod(shape) * dtype.itemsize
        if promised != zip_info.file_size - offset:
            raise CheckpointError(
                f"{self.path}: array {shown(name)}, {shown(str(shape), quoted=False)} {dtype}, "
                f"needs {promised} bytes, but {zip_info.file_size - offset} are stored."
            )
        # NumPy has no bfloat16 and stores it as two bytes of void.
        is_bfloat16 = dtype.str[1:] == "V2"
        self.note(name, shape, np.dtype(ml_dtypes.bfloat16) if is_bfloat16 else dtype)
        self._members[name] = zip_info, "F" if column_major else "C", offset

    def _check_sizes(self, name: str, zip_info: zipfile.ZipInfo) -> None:
        """Refuses a member whose sizes in the zip directory are impossible for this file."""
        if zip_info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(
                f"{self.path}: array {shown(name)} is compressed by method "
                f"{zip_info.compress_type}; NumPy writes 0 (stored) or 8 (deflated)."
            )
        stored = zip_info.compress_type == zipfile.ZIP_STORED
        if (
            zip_info.header_offset + zip_info.compress_size > self.size
            or (stored and zip_info.file_size != zip_info.compress_size)
            or zip_info.file_size > self.most
        ):
            raise CheckpointError(
                f"{self.path}: array {shown(name)} claims {zip_info.file_size:,} bytes, stored "
                f"as {zip_info.compress_size:,}, in a file of {self.size:,}. Fetch or write it "
                "again."
            )

    def read(self, name: str) -> np.ndarray:
        zip_info, order, offset = self._members[name]
        with self.damage(name):
            data = self._data(zip_info)
            if zlib.crc32(data) != zip_info.CRC:
                raise ValueError("its checksum is wrong")
            array = np.frombuffer(data, self.dtypes[name], offset=offset)
            return array.reshape(self.shapes[name], order=order)

    def _data(self, zip_info: zipfile.ZipInfo) -> memoryview | bytes:
        """Returns the bytes of a .npy member; an uncompressed member is mapped, not copied."""
        if zip_info.compress_type != zipfile.ZIP_STORED:
            return self._zip.read(zip_info)
        # The member's local header has the lengths of its name and extra field.
        start = zip_info.header_offset
        lengths = self._mapped.bytes[start + 26 : start + 30]
        name_length, extra_length = struct.unpack("<HH", lengths)
        start += 30 + name_length + extra_length
        return self._mapped.read(start, start + zip_info.file_size)

    def close(self) -> None:
        self._zip.close()
        super().close()


class _Directory:
    """A file for `zipfile` that refuses a directory above the limit `HEADER_BYTES`.

    `zipfile` reads the whole directory at once and turns each entry into a Python object, which is
    many times larger than the entry.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.is_read = False
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._path = path
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not self.is_read:
            HEADER_BYTES.check(size, self._path, CheckpointError)
        return self._file.read(size)


def _read_npy_header(head: bytes) -> tuple[tuple[int, ...], np.dtype, bool, int]:
    """Returns shape, dtype, whether the order is column-major, and the length of the header."""
    file = io.BytesIO(head)
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"npy format version {version}")
    shape, column_major, dtype = read(file)
    if any(isinstance(axis, bool) or axis < 0 for axis in shape):
        raise ValueError(f"shape {shape}")
    if dtype.names is not None or dtype.subdtype is not None:
        raise ValueError(f"its elements have the type {dtype}, expected numbers")
    return shape, dtype, column_major, file.tell()


def write_npz(path: str | os.PathLike[str], arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes arrays by name as an uncompressed npz, one at a time; a failure leaves no file.

    bfloat16 is stored as two bytes of void, as NumPy does.
    """
    with open_new(path) as stream, zipfile.ZipFile(stream, "w") as file:
        for name, array in arrays:
            stored = np.dtype("V2") if array.dtype == ml_dtypes.bfloat16 else array.dtype
            descr = np.lib.format.dtype_to_descr(stored)
            header = {"descr": descr, "fortran_order": False, "shape": array.shape}
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                member.write(view_bytes(array))
