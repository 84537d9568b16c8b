"""The checksum of a file of weights, computed while its arrays are read."""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path

from keras_vit.errors import SourceError

_CHUNK = 2**20


class Checksum:
    """Computes the sha256 of an open file in a thread, while another thread reads the file.

    hashlib and the system's reads release Python's lock, so that a second processor does the work.

    Args:
        file: the file, which may be closed meanwhile. It is read by position, which does not move
            its own position.
        expected: the expected sha256 in hexadecimal.
    """

    def __init__(self, file: BufferedReader, expected: str) -> None:
        self._name = file.name
        self._expected = expected
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "keras_vit-checksum")
        self._digest = self._thread.submit(self._compute, os.dup(file.fileno()))

    def verify(self) -> None:
        """Waits for the checksum and compares it.

        Raises:
            SourceError: the checksum differs, or the file cannot be read.
        """
        try:
            digest = self._digest.result()
        except OSError as error:
            raise SourceError(f"{self._name}: cannot be read ({error.strerror}).") from error
        if digest != self._expected:
            raise SourceError(
                f"{self._name}: its sha256 is {digest}, config.json says {self._expected}. The "
                "file is damaged or belongs to another preset. checksum=False loads it without "
                "this check."
            )

    def close(self) -> None:
        """Stops the thread, also before the end of the file."""
        self._closed = True
        self._thread.shutdown()

    def _compute(self, handle: int) -> str:
        digest = hashlib.sha256()
        try:
            for chunk in _chunks(handle, self._name):
                if self._closed:
                    break
                digest.update(chunk)
        finally:
            os.close(handle)
        return digest.hexdigest()


def _chunks(handle: int, path: str) -> Iterator[bytes]:
    if not hasattr(os, "pread"):  # Windows
        with Path(path).open("rb") as file:
            yield from iter(lambda: file.read(_CHUNK), b"")
        return
    position = 0
    while chunk := os.pread(handle, _CHUNK, position):
        yield chunk
        position += len(chunk)
