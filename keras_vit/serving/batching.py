"""Dynamic batching: images of several requests go through the model together, in one thread."""

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

Function = Callable[[np.ndarray], Any]
"""A batch of prepared images -> a sequence with a row for each."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Image:
    function: str
    pixels: np.ndarray
    answer: Future[Any]
    since: float

    def goes_with(self, other: "_Image") -> bool:
        same_size = self.pixels.shape == other.pixels.shape
        return same_size and self.function == other.function


class Batcher:
    """Computes images in the order in which they came, as many at once as wait.

    A batch holds images of one function and one size. It starts when it is full, or when its first
    image has waited `wait` seconds; images that came during the previous batch have waited already.

    Args:
        functions: by name.
        largest: most images of a batch.
        wait: seconds that the first image of a batch waits for others.
    """

    def __init__(self, functions: Mapping[str, Function], largest: int, wait: float) -> None:
        self._functions = functions
        self._largest = largest
        self._wait = wait
        self._images: deque[_Image] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="keras_vit-serving", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread that computes is running."""
        return self._thread.is_alive()

    def submit(self, function: str, pixels: np.ndarray) -> Future[Any]:
        """Returns the future row of one prepared image; a cancelled one is not computed."""
        answer: Future[Any] = Future()
        with self._changed:
            self._images.append(_Image(function, pixels, answer, time.monotonic()))
            self._changed.notify()
        return answer

    def close(self) -> None:
        """Computes what was submitted, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            try:
                rows = self._functions[batch[0].function](np.stack([i.pixels for i in batch]))
            except BaseException as error:  # one bad batch must not end the thread
                for image in batch:
                    image.answer.set_exception(error)
            else:
                for image, row in zip(batch, rows, strict=True):
                    image.answer.set_result(row)

    def _next(self) -> list[_Image]:
        """Returns the images of the next batch; none when the batcher is closed and empty."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._images or self._closing)
                if not self._images:
                    return []
                rest = self._images[0].since + self._wait - time.monotonic()
                self._changed.wait_for(self._is_full, timeout=max(rest, 0))
                # An image whose request has given up is dropped here.
                if batch := [i for i in self._taken() if i.answer.set_running_or_notify_cancel()]:
                    return batch

    def _is_full(self) -> bool:
        first = self._images[0]
        return self._closing or sum(map(first.goes_with, self._images)) >= self._largest

    def _taken(self) -> list[_Image]:
        first = self._images[0]
        taken: list[_Image] = []
        left: deque[_Image] = deque()
        for image in self._images:
            fits = len(taken) < self._largest and first.goes_with(image)
            (taken if fits else left).append(image)
        self._images = left
        return taken
