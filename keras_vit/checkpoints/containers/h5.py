"""h5: an HDF5 file, as Keras writes it. Every dataset goes by its full name.

HDF5 can do much that weights do not need and that strangers could use: data that lies in other
files, links to other files, arrays of which not one byte was ever written. All of it is refused.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader
from keras_vit.errors import CheckpointError, shown
from keras_vit.files import written_beside
from keras_vit.limits import ARRAYS

_DEEPEST = 32
"""Groups inside groups; Keras needs about ten."""
_ITEMS_PER_ARRAY = 10
"""Groups and datasets together, for each array that a file may have."""
_SUPERBLOCK = 96
"""Bytes of the shortest superblock that Keras and h5py write."""
_FILTERS = {1, 2, 3, 32000}
"""deflate, shuffle, fletcher32, lzf: what h5py brings along. Others could load a plugin."""


class H5Reader(FileReader):
    """An open HDF5 file."""

    format = "h5"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        import h5py

        super().__init__(path, file)
        self._items = 0
        if self.size < _SUPERBLOCK:  # libhdf5 would go on with bytes that it never read
            raise CheckpointError(
                f"{path}: has {self.size} bytes, fewer than the header of an h5 file. Fetch or "
                "write the file again."
            )
        with self.damage():
            self._h5 = h5py.File(file, "r")
        try:
            self._add_all("", self._h5.id, 0)
        except BaseException:
            self._h5.close()
            raise

    def _add_all(self, prefix: str, group: Any, depth: int) -> None:
        """Notes the datasets of a group and of the groups in it, by h5py's low-level interface.

        Its other one opens every item three times.
        """
        import h5py

        links: list[tuple[bytes, int]] = []
        groups = []
        with self.damage() as reading:
            self._items += group.get_num_objs()
            if depth > _DEEPEST or self._items > _ITEMS_PER_ARRAY * ARRAYS.value:
                raise CheckpointError(
                    f"{self.path}: the groups of this file go on and on: {self._items:,} items "
                    f"were found, {depth} levels deep at {shown(prefix)}."
                )
            group.links.iterate(lambda *link: links.append((link[0], link[1].type)), info=True)
            for encoded, kind in links:
                reading.name = name = prefix + encoded.decode("utf-8")
                if kind != h5py.h5l.TYPE_HARD:
                    raise CheckpointError(
                        f"{self.path}: {shown(name)} is a link, expected an array in this file."
                    )
                item = h5py.h5o.open(group, encoded)
                if isinstance(item, h5py.h5d.DatasetID):
                    self._add(name, item)
                elif isinstance(item, h5py.h5g.GroupID):
                    groups.append((name, item))
        for name, item in groups:
            self._add_all(f"{name}/", item, depth + 1)

    def _add(self, name: str, dataset: Any) -> None:
        """Notes a dataset, given by its low-level identifier."""
        import h5py

        shape, dtype = dataset.shape, dataset.dtype
        if shape is None:
            raise CheckpointError(f"{self.path}: array {shown(name)} has no shape and no numbers.")
        # HDF5 has no bfloat16; Keras stores two bytes of void and says so.
        stated = h5py.Dataset(dataset).attrs.get("dtype") if dtype.str[1:] == "V2" else None
        is_bfloat16 = isinstance(stated, str) and stated == "bfloat16"
        if fault := self._fault_of_storage(dataset, shape, dtype):
            raise CheckpointError(f"{self.path}: array {shown(name)} {fault}")
        self.note(name, shape, np.dtype(ml_dtypes.bfloat16) if is_bfloat16 else dtype)

    def _fault_of_storage(self, dataset: Any, shape: Any, dtype: np.dtype) -> str | None:
        """What is wrong with where the numbers are, if not all of them are in this file."""
        import h5py

        plist = dataset.get_create_plist()
        layout = plist.get_layout()
        if layout == h5py.h5d.VIRTUAL or plist.get_external_count():
            return "lies in another file, expected its numbers in this one."
        nbytes = math.prod(shape) * dtype.itemsize
        if layout == h5py.h5d.CHUNKED:
            filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
            if others := filters - _FILTERS:
                return f"is encoded by HDF5 filters {sorted(others)}, expected {sorted(_FILTERS)}."
            chunk = plist.get_chunk()
            wanted = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
            if math.prod(chunk) * dtype.itemsize > self.most or (
                nbytes and dataset.get_num_chunks() != wanted
            ):
                return "has chunks that were never written. Fetch or write the file again."
            return None
        there = dataset.get_storage_size()
        if layout == h5py.h5d.CONTIGUOUS and nbytes:
            there = min(there, self.size - (dataset.get_offset() or self.size))
        if there < nbytes:
            return (
                f"promises {nbytes:,} bytes, {max(0, there):,} are stored. Fetch or write the file "
                "again."
            )
        return None

    def read(self, name: str) -> np.ndarray:
        with self.damage(name):
            array = self._h5[name][()]
            return array.view(self.dtypes[name]) if array.dtype.kind == "V" else array

    def close(self) -> None:
        self._h5.close()
        super().close()


@contextlib.contextmanager
def h5_written_beside(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yields a new `h5py.File`; on success it becomes `path`, else it goes."""
    import h5py

    with written_beside(path) as temporary, temporary.open("x+b", buffering=0) as stream:
        disk = _Disk(stream)
        try:
            with h5py.File(disk, "w") as file:
                yield file
        finally:
            if disk.error is not None:
                raise disk.error


class _Disk:
    """A file for libhdf5 that never fails; what fails is remembered.

    libhdf5 1.14 cannot close a file that it cannot write: it says "Disable slist on flush dest
    failure failed", keeps the file, and tries again when the process ends. So it is told that
    the bytes are written, and whoever opened the file raises the error when it is closed.
    """

    def __init__(self, stream: FileIO) -> None:
        self.error: OSError | None = None
        self._stream = stream
        self.read, self.readinto = stream.read, stream.readinto
        self.seek, self.tell, self.flush = stream.seek, stream.tell, stream.flush

    def write(self, data: memoryview) -> int:
        rest = data
        while rest and self.error is None:  # the system may take a part of what it is given
            try:
                rest = rest[self._stream.write(rest) :]
            except OSError as error:
                self.error = error
        return len(data)

    def truncate(self, size: int) -> int:
        try:
            return self._stream.truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size
