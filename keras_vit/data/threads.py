"""Threads that prepare images, in every process that a data set is sent to."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threads(ThreadPoolExecutor):
    """A pool of threads; a pickled pool becomes as many new threads in the other process.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count, "keras_vit-images")
        self.count = count

    def __reduce__(self) -> tuple[Any, ...]:
        return Threads, (self.count,)
