"""A look at every image before the first step: what cannot be read, how small, how large."""

import dataclasses
from concurrent.futures import Executor
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.data.records import Records
from keras_vit.errors import ConfigError
from keras_vit.preprocessing import DAMAGED, Preprocessor

MOST_CACHED_BYTES = 2**29
"""What `cache="auto"` keeps at most: half a gibibyte of decoded pixels."""

_SAMPLE = 32


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What was found.

    Args:
        decoded: by index, what `Preprocessor.decode` gave; None where nothing is kept.
        unreadable: index -> reason.
        sizes: index -> (height, width), of the images that were looked at.
    """

    decoded: list[Any] | None
    unreadable: dict[int, str]
    sizes: dict[int, tuple[int, int]]


def inspect(
    records: Records,
    preprocessor: Preprocessor,
    pool: Executor,
    cache: bool | str = "auto",
    verify: bool = False,
) -> Inspection:
    """Decodes all images of a data set that is kept in memory or verified; else reads headers.

    Where images are not files of their own, and none of both is asked for, 32 are decoded.

    Args:
        records: the data set.
        preprocessor: decodes.
        pool: works in parallel.
        cache: keep the decoded images; `"auto"` where a sample says that all together
            take at most `MOST_CACHED_BYTES`.
        verify: decode all, whether they are kept or not.
    """

    def decoded(index: int) -> Any:
        try:
            return preprocessor.decode(records.images[index])
        except ConfigError as error:
            return error

    def measured(index: int) -> Any:
        seen = decoded(index)
        return seen if isinstance(seen, ConfigError) else _size(seen)

    def header(index: int) -> Any:
        path = records.images[index]
        try:
            with Image.open(path) as file:
                return file.height, file.width
        except DAMAGED as error:
            return ConfigError(f"{path}: not a readable image ({error}).")

    sample = sorted({int(k) for k in np.linspace(0, len(records) - 1, _SAMPLE)})
    seen = list(pool.map(decoded, sample))
    if cache == "auto":
        each = [_bytes(image) for image in seen if not isinstance(image, ConfigError)]
        cache = bool(each) and np.mean(each) * len(records) <= MOST_CACHED_BYTES
    everything = range(len(records))
    if cache:
        pixels = list(pool.map(decoded, everything))
        return Inspection(pixels, *_sorted_out(records, everything, pixels))
    if verify:
        return Inspection(None, *_sorted_out(records, everything, pool.map(measured, everything)))
    if isinstance(records.images[0], str):
        return Inspection(None, *_sorted_out(records, everything, pool.map(header, everything)))
    return Inspection(None, *_sorted_out(records, sample, seen))


def _sorted_out(records: Records, indices: Any, found: Any) -> tuple[dict[int, str], Any]:
    """Reasons and sizes by index."""
    unreadable, sizes = {}, {}
    for index, result in zip(indices, found, strict=True):
        if isinstance(result, ConfigError):
            reason, where = str(result), records.where(index)
            unreadable[index] = reason if where in reason else f"{where}: {reason}"
        else:
            sizes[index] = result if isinstance(result, tuple) else _size(result)
    return unreadable, sizes


def _size(image: Any) -> tuple[int, int]:
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    return image.height, image.width


def _bytes(image: Any) -> int:
    if isinstance(image, np.ndarray):
        return image.nbytes
    return image.height * image.width * len(image.getbands())
