"""Batches that are prepared ahead of the request, so that the model does not wait.

Keras's own worker threads would mix up the order. Before its first epoch `fit` reads one batch and
starts again; batches that Keras's workers prepared before the restart then come out first.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Prefetch(Generic[Key, Value]):
    """Calls a function of a key, and meanwhile computes the values of the next keys in threads.

    Args:
        make: the function. It must be pure, because a value may be computed long before its
            request.
        following: key -> the keys that are expected after it, the next one first; an empty list
            if they cannot be predicted.
        threads: number of threads; one calls `make` in the order of the requests.
    """

    def __init__(
        self,
        make: Callable[[Key], Value],
        following: Callable[[Key], Sequence[Key]],
        threads: int = 2,
    ) -> None:
        self._make = make
        self._following = following
        self._ready: dict[Key, Future[Value]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, "keras_vit-batches")

    def __call__(self, key: Key) -> Value:
        """Returns `make(key)`."""
        with self._lock:
            wanted = self._ready.pop(key, None) or self._pool.submit(self._make, key)
            expected = self._following(key)
            for stale in self._ready.keys() - set(expected):
                self._ready.pop(stale).cancel()
            for coming in expected:
                if coming not in self._ready:
                    self._ready[coming] = self._pool.submit(self._make, coming)
        return wanted.result()
