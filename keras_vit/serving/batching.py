"""Dynamic batching: images of several requests go through the model together, in one thread."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

Function = Callable[[np.ndarray], Any]
"""A function of a batch of prepared images, which returns a row for each."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Image:
    function: str
    pixels: np.ndarray
    answer: asyncio.Future[Any]
    since: float

    def goes_with(self, other: "_Image") -> bool:
        return self.pixels.shape == other.pixels.shape and self.function == other.function


class Batcher:
    """Computes images in the order of their arrival, several in one batch.

    A batch has images of one function and one size. It starts when it is full, or when its first
    image has waited `wait` seconds; the time of the previous batch counts as waiting.

    Args:
        functions: functions that compute a batch, by name.
        largest: most images of a batch.
        wait: seconds that the first image of a batch waits for others.
    """

    def __init__(self, functions: Mapping[str, Function], largest: int, wait: float) -> None:
        self._functions = functions
        self._largest = largest
        self._wait = wait
        self._waiting: list[_Image] = []
        self._arrival = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "keras_vit-serving")
        self._task = asyncio.create_task(self._work())

    @property
    def is_alive(self) -> bool:
        """Whether the batcher still computes images."""
        return not self._task.done()

    async def compute(self, function: str, pixels: np.ndarray) -> Any:
        """Returns the row of one prepared image; a cancelled call leaves its image out."""
        loop = asyncio.get_running_loop()
        image = _Image(function, pixels, loop.create_future(), loop.time())
        self._waiting.append(image)
        self._arrival.set()
        return await image.answer

    def close(self) -> None:
        """Stops; images that still wait are not computed."""
        self._task.cancel()
        self._thread.shutdown()

    async def _work(self) -> None:
        while True:
            await self._until(lambda: bool(self._waiting))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._waiting[0].since + self._wait):
                    await self._until(lambda: len(self._next()) == self._largest)
            batch = self._next()
            self._waiting = [image for image in self._waiting if image not in batch]
            if batch := [image for image in batch if not image.answer.done()]:
                await self._compute(batch)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._arrival.clear()
            await self._arrival.wait()

    def _next(self) -> list[_Image]:
        """Returns the images of the next batch, which fit the first image that waits."""
        alike = [image for image in self._waiting if image.goes_with(self._waiting[0])]
        return alike[: self._largest]

    async def _compute(self, batch: list[_Image]) -> None:
        function = self._functions[batch[0].function]
        pixels = np.stack([image.pixels for image in batch])
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.run_in_executor(self._thread, function, pixels)
        except Exception as error:  # one bad batch must not end the work
            for image in batch:
                if not image.answer.done():  # else its request has given up
                    image.answer.set_exception(error)
            return
        for image, row in zip(batch, rows, strict=True):
            if not image.answer.done():
                image.answer.set_result(row)
