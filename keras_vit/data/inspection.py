"""Checks every image before the first step: readability and size."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit.config import Task
from keras_vit.data.records import CLASSIFICATION, Records
from keras_vit.data.targets import FORMS
from keras_vit.errors import ConfigError, expect_model, listed
from keras_vit.images.decoding import size_in_header
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.images.resampling import read_size
from keras_vit.support.arguments import OnError
from keras_vit.support.text import warn

MOST_CACHED_BYTES = 2**29
"""Largest size of a cache by `cache="auto"`: half a gibibyte of decoded pixels."""

_SAMPLE = 32
_NAMED = 5

Images = dict[int, Any]
"""Index of an image -> the decoded image, (height, width), or the error."""


def inspect(
    records: Records,
    preprocessor: Preprocessor,
    threads: int,
    on_error: OnError,
    cache: bool | str,
    least: tuple[int, int],
) -> Records:
    """Returns the usable records, after decoding all images or reading their headers.

    All images are decoded with a cache, and unless `on_error` is `"raise"`. Otherwise 32 images are
    decoded, and the headers of all image files are read.

    Args:
        records: the data set.
        preprocessor: decodes the images.
        threads: number of threads that decode.
        on_error: as for `ImageData`.
        cache: whether decoded images are kept; `"auto"` keeps them if, by a sample of 32, all
            images take at most `MOST_CACHED_BYTES`.
        least: smallest height and width in pixels.

    Raises:
        ConfigError: an image cannot be used, or all images of a class cannot.
    """
    with ThreadPoolExecutor(threads) as pool:
        images, keep = _look(records, preprocessor, pool, on_error != "raise", cache)
    errors = {k: image for k, image in images.items() if isinstance(image, ConfigError)}
    sizes = {
        k: image if isinstance(image, tuple) else read_size(image)
        for k, image in images.items()
        if k not in errors
    }
    errors |= _find_unfit(sizes, preprocessor, least)
    sizes = {k: size for k, size in sizes.items() if k not in errors}
    reasons = {k: records.name_reason(k, errors[k]) for k in sorted(errors)}
    decoded = list(images.values()) if keep else None
    records = dataclasses.replace(records, decoded=decoded, sizes=sizes)
    if not reasons:
        return records
    summary = (
        f"{records.name}: {len(reasons)} of {len(records)} images cannot be used. "
        + " ".join(list(reasons.values())[:_NAMED])
        + (f" And {len(reasons) - _NAMED} more." if len(reasons) > _NAMED else "")
    )
    if on_error == "raise":
        raise ConfigError(f"{summary} To continue without them, give on_error='skip'.")
    readable = records.select(np.array(sorted(sizes), np.intp))
    if records.task in CLASSIFICATION:
        emptied = np.flatnonzero(records.counts.astype(bool) & (readable.counts == 0))
        if len(emptied):
            names = listed(records.class_names[k] for k in emptied)
            raise ConfigError(f"{summary} No usable images remain of the classes {names}.")
    skipped = {records.where(k): reason for k, reason in reasons.items()}
    if callable(on_error):
        for name, reason in skipped.items():
            on_error(name, ConfigError(reason))
    else:
        warn(f"{summary} They are skipped.")
    return dataclasses.replace(readable, unreadable=skipped)


def _look(
    records: Records, preprocessor: Preprocessor, pool: Executor, everything: bool, cache: Any
) -> tuple[Images, bool]:
    """Returns the pixels, the size or the error of each image, and whether pixels are kept."""

    def each(look: Callable[[Any], Any], indices: Sequence[int]) -> Images:
        def inspect_one(index: int) -> Any:
            try:
                return look(records.images[index])
            except ConfigError as error:
                return error

        return dict(zip(indices, pool.map(inspect_one, indices), strict=True))

    decode, whole = preprocessor.decode, range(len(records))
    sample = each(decode, sorted({int(k) for k in np.linspace(0, len(records) - 1, _SAMPLE)}))
    if cache == "auto":
        sizes = [_bytes(seen) for seen in sample.values() if not isinstance(seen, ConfigError)]
        cache = bool(sizes) and np.mean(sizes) * len(records) <= MOST_CACHED_BYTES
    if cache:
        return each(decode, whole), True
    if everything:
        return each(lambda image: read_size(decode(image)), whole), False
    if isinstance(records.images[0], str):
        damaged = {k: seen for k, seen in sample.items() if isinstance(seen, ConfigError)}
        most = preprocessor.max_pixels
        return each(lambda image: size_in_header(image, most), whole) | damaged, False
    return sample, False


def _bytes(image: Any) -> int:
    if isinstance(image, np.ndarray):
        return image.nbytes
    return image.height * image.width * len(image.getbands())


def _find_unfit(
    sizes: Mapping[int, tuple[int, int]], preprocessor: Preprocessor, least: tuple[int, int]
) -> dict[int, ConfigError]:
    """Returns the errors of the images that are too small or too thin, by index."""

    @functools.cache
    def judge(size: tuple[int, int]) -> ConfigError | None:
        try:
            preprocessor.check_size(size)
        except ConfigError as error:
            return error
        if size[0] >= least[0] and size[1] >= least[1]:
            return None
        return ConfigError(
            f"{size[0]}x{size[1]} pixels, expected at least {least[0]}x{least[1]} (a patch, or "
            "local_size of Views); min_size=1 accepts it."
        )

    return {k: error for k, size in sizes.items() if (error := judge(size))}


def list_differences(
    records: Records, preprocessor: Preprocessor, model: Any, min_size: int | None
) -> list[str]:
    """Returns each reason why a model cannot be used on the data, with its fix.

    Args:
        records: the inspected data.
        preprocessor: the preprocessor of the data.
        model: a `VisionTransformer`.
        min_size: smallest height and width in pixels; None for one patch of the model.
    """
    prediction, names = expect_model(model).prediction, records.class_names
    problems = []
    for field in ("image_size", "channels", "scaled", "data_format", "patch_size"):
        expected, actual = getattr(model.preprocessor, field), getattr(preprocessor, field)
        if expected is not None and expected != actual:
            problems.append(
                f"the model takes {field}={expected}, the data are prepared for "
                f"{field}={actual}; give the model itself as preprocessor"
            )
    if prediction.num_classes and not fits_task(model, records):
        problems.append(describe_mismatch(model, records.task))
    elif prediction.num_classes and prediction.num_answers != len(names):
        kind = "regression outputs" if prediction.task == "regression" else "classes"
        lone = len(names) == 1 and records.task == "single_label"
        fix = "give class_names=" if lone else f"load the model with num_classes={len(names)}"
        problems.append(
            f"number of {kind}: the model has {prediction.num_answers}, the data have {len(names)} "
            f"({listed(names)}); {fix}"
        )
    least = model.config.patch_size if min_size is None else (min_size, min_size)
    unfit = _find_unfit(records.sizes, preprocessor, least)
    for k, error in list(unfit.items())[:1]:
        more = f" {len(unfit) - 1} more images are too small." if len(unfit) > 1 else ""
        problems.append(f"{records.name_reason(k, error)}{more}".rstrip("."))
    return problems


def fits_task(model: Any, records: Records) -> bool:
    """Whether a model and the data have classes of whole images, or else the same task."""
    return model.task == records.task or {model.task, records.task} == {*CLASSIFICATION}


def describe_mismatch(model: Any, task: Task) -> str:
    """Returns why a model of one task does not fit the data of another."""
    fix = f"read the data with task={model.task!r}, or load the model with task={task!r}"
    if {model.task, task} & FORMS.keys():
        fix = "segmentation and depth need data with targets= and a model of with_dense_head"
    return f"the model has task={model.task!r}, the data have {task!r}; {fix}"
