"""The checksum of a file of weights, computed while its arrays are read."""

import hashlib
import os
import threading
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from keras_vit.errors import SourceError

_CHUNK = 2**20


class Checksum:
    """Computes the sha256 of an open file in a thread, while another thread reads the file.

    hashlib and the system's reads release Python's lock, so that a second processor does the work.

    Args:
        file: the file, which must stay open until `close`. It is read by position, which does
            not move its own position.
        expected: the expected sha256 in hexadecimal.
    """

    def __init__(self, file: BufferedReader, expected: str) -> None:
        self._file = file
        self._expected = expected
        self._digest = hashlib.sha256()
        self._failure: OSError | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._compute, name="keras_vit-checksum")
        self._thread.start()

    def verify(self) -> None:
        """Waits for the checksum and compares it.

        Raises:
            SourceError: the checksum differs, or the file cannot be read.
        """
        self._thread.join()
        if self._failure is not None:
            raise SourceError(f"{self._file.name}: cannot be read ({self._failure.strerror}).")
        found = self._digest.hexdigest()
        if found != self._expected:
            raise SourceError(
                f"{self._file.name}: its sha256 is {found}, config.json says {self._expected}. The "
                "file is damaged or belongs to another preset. checksum=False loads it without "
                "this check."
            )

    def close(self) -> None:
        """Stops the thread, also before the end of the file."""
        self._stopped = True
        self._thread.join()

    def _compute(self) -> None:
        try:
            for chunk in self._chunks():
                if self._stopped:
                    break
                self._digest.update(chunk)
        except OSError as error:
            self._failure = error

    def _chunks(self) -> Iterator[bytes]:
        if not hasattr(os, "pread"):  # Windows
            with Path(self._file.name).open("rb") as file:
                yield from iter(lambda: file.read(_CHUNK), b"")
            return
        position = 0
        while chunk := os.pread(self._file.fileno(), _CHUNK, position):
            yield chunk
            position += len(chunk)
