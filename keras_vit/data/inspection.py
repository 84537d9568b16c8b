"""Inspection of every image before the first step: readability and size."""

import dataclasses
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from keras_vit.data.records import Records
from keras_vit.errors import ConfigError
from keras_vit.images.decoding import size_in_header
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.images.resampling import size_of
from keras_vit.text import warn

MOST_CACHED_BYTES = 2**29
"""Largest size of a cache by `cache="auto"`: half a gibibyte of decoded pixels."""

_SAMPLE = 32
_NAMED = 5

Found = dict[int, Any]
"""Index of an image -> the decoded image, (height, width), or the error."""


@dataclasses.dataclass(frozen=True)
class Inspected:
    """The readable records of a data set, with sizes and cached pixels.

    Args:
        records: the readable records.
        decoded: by index, the output of `Preprocessor.decode`; None without a cache.
        sizes: index -> (height, width), of the images that were inspected.
        unreadable: name of each image that was left out -> reason.
    """

    records: Records
    decoded: list[Any] | None
    sizes: dict[int, tuple[int, int]]
    unreadable: dict[str, str]

    def of(self, indices: np.ndarray) -> "Inspected":
        """Returns the inspection of the images at these indices, in this order."""
        numbers = indices.tolist()
        return Inspected(
            self.records.of(indices),
            self.decoded and [self.decoded[k] for k in numbers],
            {place: self.sizes[k] for place, k in enumerate(numbers) if k in self.sizes},
            self.unreadable,
        )

    def without_cache(self) -> "Inspected":
        """Returns the same images; each is decoded whenever it is asked for."""
        return dataclasses.replace(self, decoded=None)


def inspect(
    records: Records,
    preprocessor: Preprocessor,
    pool: Executor,
    *,
    unreadable: str = "raise",
    verify: bool = False,
    cache: bool | str = "auto",
) -> Inspected:
    """Returns the readable records, after decoding all images or reading their headers.

    All images are decoded with a cache, with `verify` and with `unreadable="skip"`. Otherwise
    32 images are decoded; of the others, headers are read if they are files of their own.

    Args:
        records: the data set.
        preprocessor: decodes the images.
        pool: threads for the images.
        unreadable: `"raise"`, or `"skip"` to leave out unreadable images, with a warning.
        verify: whether all images are decoded even without a cache.
        cache: whether decoded images are kept; `"auto"` keeps them if a sample of 32 says
            that all images take at most `MOST_CACHED_BYTES`.

    Raises:
        ConfigError: an image cannot be read, or all images of a class cannot.
    """
    found, keep = _look(records, preprocessor, pool, verify or unreadable == "skip", cache)
    reasons = {k: _reason(records, k, e) for k, e in found.items() if isinstance(e, ConfigError)}
    readable = {k: seen for k, seen in found.items() if k not in reasons}
    sizes = {k: seen if isinstance(seen, tuple) else size_of(seen) for k, seen in readable.items()}
    if not reasons:
        return Inspected(records, list(found.values()) if keep else None, sizes, {})
    summary = (
        f"{records.name}: {len(reasons)} of {len(records)} images cannot be read. "
        + " ".join(list(reasons.values())[:_NAMED])
        + (f" And {len(reasons) - _NAMED} more." if len(reasons) > _NAMED else "")
    )
    if unreadable == "raise":
        raise ConfigError(f"{summary} unreadable='skip' leaves them out.")
    kept = np.array(sorted(readable), np.intp)
    emptied = set(records.labels.tolist()) - set(records.labels[kept].tolist())
    if emptied:
        names = ", ".join(records.class_names[k] for k in sorted(emptied)[:_NAMED])
        raise ConfigError(f"{summary} No image is left of {names}.")
    warn(f"{summary} Left out.")
    pixels = [found[k] for k in range(len(records))] if keep else None
    left_out = {records.where(k): reason for k, reason in reasons.items()}
    return Inspected(records, pixels, sizes, left_out).of(kept)


def _look(
    records: Records, preprocessor: Preprocessor, pool: Executor, everything: bool, cache: Any
) -> tuple[Found, bool]:
    """Returns the inspection of each image, and whether it holds all pixels for the cache."""

    def decode(index: int) -> Any:
        try:
            return preprocessor.decode(records.images[index])
        except ConfigError as error:
            return error

    def measure(index: int) -> Any:
        seen = decode(index)
        return seen if isinstance(seen, ConfigError) else size_of(seen)

    def header(index: int) -> Any:
        try:
            return size_in_header(records.images[index], preprocessor.max_pixels)
        except ConfigError as error:
            return error

    def each(function: Any, indices: Iterable[int]) -> Found:
        return dict(zip(indices, pool.map(function, indices), strict=True))

    sample = each(decode, sorted({int(k) for k in np.linspace(0, len(records) - 1, _SAMPLE)}))
    if cache == "auto":
        sizes = [_bytes(seen) for seen in sample.values() if not isinstance(seen, ConfigError)]
        cache = bool(sizes) and np.mean(sizes) * len(records) <= MOST_CACHED_BYTES
    if cache:
        return each(decode, range(len(records))), True
    if everything:
        return each(measure, range(len(records))), False
    if isinstance(records.images[0], str):
        damaged = {k: seen for k, seen in sample.items() if isinstance(seen, ConfigError)}
        return each(header, range(len(records))) | damaged, False
    return sample, False


def _reason(records: Records, index: int, error: ConfigError) -> str:
    where = records.where(index)
    return str(error) if where in str(error) else f"{where}: {error}"


def _bytes(image: Any) -> int:
    if isinstance(image, np.ndarray):
        return image.nbytes
    return image.height * image.width * len(image.getbands())
