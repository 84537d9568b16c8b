"""Batches prepared before they are asked for, so that the model does not wait.

Keras's own workers cannot serve here: before the first epoch `fit` takes one batch and starts
again, and what the workers had ready by then comes out first, out of order.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_BATCHES_AT_ONCE = 2

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Ahead(Generic[Key, Value]):
    """A function of a key, whose next keys are computed in threads as soon as they are known.

    Args:
        make: the function; pure, so that what is ready early is not stale.
        following: key -> the keys that are expected next, the nearest first; none where
            that cannot be told.
    """

    def __init__(
        self, make: Callable[[Key], Value], following: Callable[[Key], Sequence[Key]]
    ) -> None:
        self._make = make
        self._following = following
        self._ready: dict[Key, Future[Value]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_BATCHES_AT_ONCE, "keras_vit-batches")

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
