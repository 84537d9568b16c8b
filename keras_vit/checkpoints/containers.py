"""Files of arrays: npz, safetensors and h5 to `{name: array}` and back, never a pickle.

A reader knows all names, shapes and dtypes from the headers before it reads one
array, and then reads arrays one at a time.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.axes import in_order
from keras_vit.errors import CheckpointError
from keras_vit.files import written_beside

PICKLE_ADVICE = (
    "keras_vit never unpickles. Write a safetensors file where the pickle was made: "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')."
)


class Reader(Protocol):
    """An open file of arrays. Use as a context manager."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]

    def read(self, name: str) -> np.ndarray:
        """Returns one array. Raises `CheckpointError` if its bytes are damaged."""
        ...

    def __enter__(self) -> "Reader": ...

    def __exit__(self, *exc_info: object) -> None: ...


def open_arrays(path: str | os.PathLike[str], file: IO[bytes] | None = None) -> Reader:
    """Opens an npz, safetensors or h5 file, told apart by their first bytes.

    Args:
        path: of the file, for messages if the file is open already.
        file: the open file, which the reader closes.

    Raises:
        CheckpointError: there is no such file, or it is damaged, empty, a pickle,
            or something else.
    """
    path = Path(path)
    if file is None:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise CheckpointError(f"{path}: expected a file of weights, but it {what}.")
        file = path.open("rb")
    try:
        return _reader_for(path, file)
    except BaseException:
        file.close()
        raise


def _reader_for(path: Path, file: IO[bytes]) -> Reader:
    head = file.read(10)
    file.seek(0)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _NpzReader(path, file)
    if head[8:9] == b"{":
        return _SafetensorsReader(path, file)
    if head[:8] == b"\x89HDF\r\n\x1a\n":
        return _H5Reader(path, file)
    if head[:1] == b"\x80":
        raise CheckpointError(f"{path}: this is a Python pickle. {PICKLE_ADVICE}")
    raise CheckpointError(
        f"{path}: neither an npz (zip), a safetensors nor an h5 file; it is "
        f"{os.fstat(file.fileno()).st_size} bytes and begins with {head[:8]!r}. A download may "
        "have been cut, or have saved an error page."
    )


def _path_to(file: IO[bytes]) -> str:
    """A path to an open file, for libraries that open paths; its name may be another's by now."""
    handle = f"/dev/fd/{file.fileno()}"
    return handle if Path(handle).exists() else file.name


class _MappedFile:
    """A file mapped into memory, of which only what was read last is kept there."""

    def __init__(self, file: IO[bytes]) -> None:
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.bytes = memoryview(self._map)
        self._last: tuple[int, int] | None = None

    def read(self, start: int, end: int) -> memoryview:
        """Returns bytes of the file itself, and gives back the memory of those before.

        A view of those that lives on is read from the disk anew.
        """
        if self._last is not None and hasattr(mmap, "MADV_DONTNEED"):
            first, last = self._last
            first -= first % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
        self._last = start, end
        return self.bytes[start:end]


class _NpzReader:
    """A zip of .npy members. Their headers are read at once, their data on demand."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._stream = file
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        self._members: dict[str, _Member] = {}
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise CheckpointError(
                f"{path}: not a complete npz file ({error}). Fetch or write it again."
            ) from error
        self._file = _MappedFile(file)
        for member in self._zip.infolist():
            self._add(member)

    def _add(self, member: zipfile.ZipInfo) -> None:
        name = member.filename.removesuffix(".npy")
        if name.endswith("data.pkl"):
            raise CheckpointError(f"{self.path}: this is a torch pickle. {PICKLE_ADVICE}")
        if name in self._members:
            raise CheckpointError(f"{self.path}: array {name!r} stands twice in the file.")
        with self._damage_named(name), self._zip.open(member) as file:
            shape, dtype, column_major, offset = _read_npy_header(file)
        if dtype.hasobject:
            raise CheckpointError(
                f"{self.path}: array {name!r} holds pickled Python objects ({dtype}); expected "
                "numbers. keras_vit never unpickles."
            )
        promised = math.prod(shape) * dtype.itemsize
        if promised != member.file_size - offset:
            raise CheckpointError(
                f"{self.path}: array {name!r} says it is {shape} {dtype}, {promised} bytes, but "
                f"{member.file_size - offset} are stored."
            )
        self._members[name] = _Member(member, shape, dtype, column_major, offset)
        self.shapes[name] = shape
        # NumPy has no bfloat16 and stores it as two bytes of void.
        self.dtypes[name] = np.dtype(ml_dtypes.bfloat16) if dtype.str[1:] == "V2" else dtype

    def read(self, name: str) -> np.ndarray:
        member = self._members[name]
        with self._damage_named(name):
            data = self._data(member)
            if zlib.crc32(data) != member.zip_info.CRC:
                raise ValueError("its checksum is wrong")
            array = np.frombuffer(data, member.dtype, offset=member.offset)
            array = array.reshape(member.shape, order="F" if member.column_major else "C")
        return array.view(self.dtypes[name]) if array.dtype.kind == "V" else array

    def _data(self, member: "_Member") -> memoryview | bytes:
        """The bytes of a .npy member: of the file itself, mapped, where it is not compressed."""
        if member.zip_info.compress_type != zipfile.ZIP_STORED:
            return self._zip.read(member.zip_info)
        # The local header has a name and extra field of its own, so that its length differs.
        start = member.zip_info.header_offset
        name_length, extra_length = struct.unpack("<HH", self._file.bytes[start + 26 : start + 30])
        start += 30 + name_length + extra_length
        return self._file.read(start, start + member.zip_info.file_size)

    @contextlib.contextmanager
    def _damage_named(self, name: str) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # zipfile, zlib and NumPy each have their own
            raise CheckpointError(
                f"{self.path}: array {name!r} is damaged ({error}). Fetch or write the file again."
            ) from error

    def __enter__(self) -> "_NpzReader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._zip.close()
        self._stream.close()


@dataclasses.dataclass(frozen=True)
class _Member:
    """A .npy file inside a zip; `offset` is the length of its header."""

    zip_info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype
    column_major: bool
    offset: int


def _read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, bool, int]:
    """Returns shape, dtype, whether columns come first, and the bytes in front of the data."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"npy format version {version}")
    shape, column_major, dtype = read(file)
    return shape, dtype, column_major, file.tell()


class _SafetensorsReader:
    """A safetensors file, mapped into memory after the library has checked its header."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
        self._stream = file
        try:
            with safe_open(_path_to(file), framework="np"):
                pass
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path}: not a complete safetensors file ({error}). Fetch or write it again."
            ) from error
        self._file = _MappedFile(file)
        (length,) = struct.unpack("<Q", self._file.bytes[:8])
        self._data = 8 + length
        self._header = json.loads(bytes(self._file.bytes[8 : self._data]))
        self._header.pop("__metadata__", None)
        self.shapes = {name: tuple(entry["shape"]) for name, entry in self._header.items()}
        try:
            self.dtypes = {
                name: SAFETENSORS_DTYPES[entry["dtype"]] for name, entry in self._header.items()
            }
        except KeyError as error:
            raise CheckpointError(f"{path}: arrays of type {error} hold no weights.") from error

    def read(self, name: str) -> np.ndarray:
        start, end = (self._data + offset for offset in self._header[name]["data_offsets"])
        return np.ndarray(self.shapes[name], self.dtypes[name], self._file.read(start, end))

    def __enter__(self) -> "_SafetensorsReader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stream.close()  # what was read may still be in use; the last view unmaps the file


class _H5Reader:
    """An HDF5 file, every dataset by its full name."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        import h5py

        self.path = path
        self._stream = file
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}

        def add(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                self.shapes[name] = tuple(item.shape)
                # HDF5 has no bfloat16; Keras stores two bytes of void and says so.
                is_bfloat16 = item.attrs.get("dtype") == "bfloat16"
                self.dtypes[name] = np.dtype(ml_dtypes.bfloat16) if is_bfloat16 else item.dtype

        try:
            self._file = h5py.File(_path_to(file), "r")
            self._file.visititems(add)
        except (OSError, RuntimeError) as error:
            raise CheckpointError(
                f"{path}: not a complete h5 file ({error}). Fetch or write it again."
            ) from error

    def read(self, name: str) -> np.ndarray:
        try:
            array = self._file[name][()]
            return array.view(self.dtypes[name]) if array.dtype.kind == "V" else array
        except (OSError, RuntimeError) as error:
            raise CheckpointError(f"{self.path}: array {name!r} is damaged ({error}).") from error

    def __enter__(self) -> "_H5Reader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()
        self._stream.close()


class _JoinedReader:
    """Several open files as one. They are closed by whoever opened them."""

    def __init__(self, path: Path, parts: list[tuple[str, Reader]]) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        self._part_of: dict[str, tuple[Reader, str]] = {}
        for prefix, part in parts:
            for name, shape in part.shapes.items():
                if prefix + name in self._part_of:
                    raise CheckpointError(f"{path}: array {prefix + name!r} stands in two files.")
                self._part_of[prefix + name] = (part, name)
                self.shapes[prefix + name] = shape
                self.dtypes[prefix + name] = part.dtypes[name]

    def read(self, name: str) -> np.ndarray:
        part, inner = self._part_of[name]
        return part.read(inner)

    def __enter__(self) -> "_JoinedReader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def joined(path: Path, parts: list[tuple[str, Reader]]) -> Reader:
    """Returns open files as one reader; each one's names get a prefix."""
    return _JoinedReader(path, parts)


SAFETENSORS_DTYPES = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype("float16"),
    "F32": np.dtype("float32"),
    "F64": np.dtype("float64"),
    "I64": np.dtype("int64"),
    "I32": np.dtype("int32"),
    "U8": np.dtype("uint8"),
    "BOOL": np.dtype("bool"),
}
_SAFETENSORS_NAMES = {dtype: name for name, dtype in SAFETENSORS_DTYPES.items()}


@contextlib.contextmanager
def _opened_beside(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yields a new file that becomes `path` on success."""
    with written_beside(path) as temporary, temporary.open("xb") as file:
        yield file


class Part(NamedTuple):
    """A piece of an array on its way into a file; the pieces of one array follow each other.

    Args:
        name, shape: of the whole array.
        array: the next of its numbers in C order; its own shape does not matter.
    """

    name: str
    shape: tuple[int, ...]
    array: np.ndarray

    @property
    def bytes(self) -> memoryview:
        """The numbers as they stand in a file."""
        return in_order(self.array).reshape(-1).view(np.uint8).data


def parts_of(arrays: Iterable[tuple[str, np.ndarray]]) -> Iterator[Part]:
    """Yields whole arrays as parts."""
    return (Part(name, array.shape, array) for name, array in arrays)


def whole(parts: Iterable[Part]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and arrays, each put together from its parts."""
    for (name, shape), pieces in itertools.groupby(parts, lambda part: (part.name, part.shape)):
        array = next(pieces).array
        if (filled := array.size) < math.prod(shape):
            joined = np.empty(math.prod(shape), array.dtype)
            joined[:filled] = array.reshape(-1)
            for _, _, piece in pieces:
                joined[filled : filled + piece.size] = piece.reshape(-1)
                filled += piece.size
            array = joined
        yield name, array.reshape(shape)


def write_npz(path: str | os.PathLike[str], parts: Iterable[Part]) -> None:
    """Writes arrays as an uncompressed npz, one part at a time, whole or not at all.

    bfloat16 is stored as two bytes of void, as NumPy does.
    """
    with _opened_beside(path) as stream, zipfile.ZipFile(stream, "w") as file:
        for name, pieces in itertools.groupby(parts, lambda part: part.name):
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                for number, piece in enumerate(pieces):
                    if number == 0:
                        _write_npy_header(member, piece.shape, piece.array.dtype)
                    member.write(piece.bytes)


def _write_npy_header(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> None:
    stored = np.dtype("V2") if dtype == ml_dtypes.bfloat16 else dtype
    descr = np.lib.format.dtype_to_descr(stored)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)


def write_safetensors(
    path: str | os.PathLike[str],
    specs: Iterable[tuple[str, tuple[int, ...], np.dtype]],
    read: Callable[[list[str]], Iterable[Part]],
    metadata: Mapping[str, str],
) -> None:
    """Writes arrays as safetensors, one part at a time, whole or not at all.

    The library's own writer wants all arrays in memory. The bytes are the same as
    its: arrays sorted by size of their type and by name, the header padded to 8.

    Args:
        path: of the file.
        specs: name, shape and type of every array.
        read: yields the parts of the arrays in the order of the names that it is given.
        metadata: strings for the header.
    """
    ordered = sorted(specs, key=lambda spec: (-spec[2].itemsize, spec[0]))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, shape, dtype in ordered:
        end = offset + math.prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[dtype],
            "shape": shape,
            "data_offsets": (offset, end),
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with _opened_beside(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for part in read([name for name, _, _ in ordered]):
            file.write(part.bytes)


@contextlib.contextmanager
def h5_written_beside(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yields a new `h5py.File`; on success it becomes `path`, else it goes."""
    import h5py

    with written_beside(path) as temporary, h5py.File(temporary, "w") as file:
        yield file
