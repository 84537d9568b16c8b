"""A disk that is full: no file grows beyond a limit."""

import contextlib
import resource
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def full_disk() -> Iterator[Callable[[int], None]]:
    """Yields a function that limits every file to a number of bytes until the block ends.

    No module is compiled meanwhile: Python 3.11 would cut its file short without an error, in the
    environment that all tests share.
    """
    limits, writes = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode

    def fill(size: int) -> None:
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))

    try:
        yield fill
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes
