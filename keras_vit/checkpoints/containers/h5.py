"""Reads h5: an HDF5 file, as Keras writes it. The name of an array is the path of its dataset.

HDF5 features that weights do not need are refused, because an untrusted file could
misuse them: data in other files, links to other files, and arrays that were never written.
"""

import math
import zlib
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader
from keras_vit.errors import CheckpointError, shown
from keras_vit.support.limits import ARRAYS

_DEEPEST = 32
"""Most levels of nested groups; Keras needs about ten."""
_ITEMS_PER_ARRAY = 10
"""Most groups and datasets, as a multiple of the largest number of arrays."""
_SUPERBLOCK = 96
"""Bytes of the shortest superblock that Keras and h5py write."""
_DEFLATE, _FLETCHER32 = 1, 3
_FILTERS = {_DEFLATE, 2, _FLETCHER32}
"""deflate, shuffle and fletcher32, whose chunks `_count_chunks` can expand. Most others are
plugins.
"""


class H5Reader(FileReader):
    """An open HDF5 file."""

    format = "h5"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        import h5py

        super().__init__(path, file)
        self._items = 0
        if self.size < _SUPERBLOCK:  # libhdf5 would continue with uninitialised bytes
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
        """Notes the datasets of a group, recursively.

        It uses h5py's low-level interface, because the high-level interface opens every item three
        times.
        """
        import h5py

        links: list[tuple[bytes, int]] = []
        groups = []
        with self.damage():
            self._items += group.get_num_objs()
            if depth > _DEEPEST or self._items > _ITEMS_PER_ARRAY * ARRAYS.value:
                raise CheckpointError(
                    f"{self.path}: this file has too many or too deeply nested groups: "
                    f"{self._items:,} items were found, {depth} levels deep at {shown(prefix)}."
                )
            group.links.iterate(lambda *link: links.append((link[0], link[1].type)), info=True)
            for encoded, kind in links:
                self.at = name = prefix + encoded.decode("utf-8")
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
        import h5py

        shape, dtype = dataset.shape, dataset.dtype
        if shape is None:
            raise CheckpointError(f"{self.path}: array {shown(name)} is empty, expected values.")
        # HDF5 has no bfloat16; Keras stores two bytes of void with the attribute "dtype".
        mark = h5py.Dataset(dataset).attrs.get("dtype") if dtype.str[1:] == "V2" else None
        is_bfloat16 = isinstance(mark, str) and mark == "bfloat16"
        if fault := self._find_storage_fault(dataset, shape, dtype):
            raise CheckpointError(f"{self.path}: array {shown(name)} {fault}")
        self.note(name, shape, np.dtype(ml_dtypes.bfloat16) if is_bfloat16 else dtype)

    def _find_storage_fault(self, dataset: Any, shape: Any, dtype: np.dtype) -> str | None:
        """Returns the reason if the file does not contain all values of a dataset, else None."""
        import h5py

        plist = dataset.get_create_plist()
        layout = plist.get_layout()
        if layout == h5py.h5d.VIRTUAL or plist.get_external_count():
            return "is stored in another file, expected its values in this one."
        nbytes = math.prod(shape) * dtype.itemsize
        if layout == h5py.h5d.CHUNKED:
            filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
            if others := filters - _FILTERS:
                return f"is encoded by HDF5 filters {sorted(others)}, expected {sorted(_FILTERS)}."
            chunk = plist.get_chunk()
            expected = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
            if math.prod(chunk) * dtype.itemsize > self.most or (
                nbytes and dataset.get_num_chunks() != expected
            ):
                return "has chunks that were never written. Fetch or write the file again."
            return None
        stored = dataset.get_storage_size()
        if layout == h5py.h5d.CONTIGUOUS and nbytes:
            stored = min(stored, self.size - (dataset.get_offset() or self.size))
        if stored < nbytes:
            return (
                f"needs {nbytes:,} bytes, {max(0, stored):,} are stored. Fetch or write the "
                "file again."
            )
        return None

    def _count_chunks(self, dataset: Any) -> None:
        """Refuses an array with a chunk that has too few bytes for its part of the array.

        libhdf5 would leave the rest of the array uninitialised.
        """
        import h5py

        plist = dataset.get_create_plist()
        if plist.get_layout() != h5py.h5d.CHUNKED:
            return
        filters = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
        expected = math.prod(plist.get_chunk()) * dataset.dtype.itemsize
        for at in range(dataset.get_num_chunks()):
            chunk = dataset.get_chunk_info(at)
            skipped, data = dataset.read_direct_chunk(chunk.chunk_offset)
            data = data[: chunk.size]
            for k, code in reversed([*enumerate(filters)]):
                if code == _FLETCHER32 and not skipped >> k & 1:
                    data = data[:-4]
                elif code == _DEFLATE and not skipped >> k & 1:
                    data = zlib.decompressobj().decompress(data, expected + 1)
            if len(data) != expected:
                raise ValueError(f"a chunk has {len(data):,} bytes, expected {expected:,}")

    def read(self, name: str) -> np.ndarray:
        with self.damage(name):
            self._count_chunks(self._h5[name].id)
            array = self._h5[name][()]
            return array.view(self.dtypes[name]) if array.dtype.kind == "V" else array

    def close(self) -> None:
        self._h5.close()
        super().close()
