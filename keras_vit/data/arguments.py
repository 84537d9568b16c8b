"""Checks of the arguments that all data sets share."""

from typing import Any

from keras_vit.distribution.processes import data_shard
from keras_vit.errors import ConfigError
from keras_vit.images.preprocessor import Preprocessor


def checked_preprocessor(
    preprocessor: Any, batch_size: int, steps_per_epoch: int | None, seed: int
) -> tuple[Preprocessor, Any]:
    """Returns the preprocessor, and the model that was given in its place, or None.

    Raises:
        ConfigError: a number is out of range, or `preprocessor` is neither.
    """
    for name, value in (("batch_size", batch_size), ("steps_per_epoch", steps_per_epoch)):
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value}, expected at least 1.")
    if seed < 0:
        raise ConfigError(f"seed={seed}, expected 0 or more.")
    model = preprocessor if hasattr(preprocessor, "preprocessor") else None
    preprocessor = model.preprocessor if model is not None else preprocessor
    if not isinstance(preprocessor, Preprocessor):
        raise ConfigError(
            f"preprocessor={preprocessor!r}, expected a keras_vit.Preprocessor or a "
            "VisionTransformer."
        )
    return preprocessor, model


def checked_shard(shard: tuple[int, int] | None, shuffle: bool, batch_size: int) -> tuple[int, int]:
    """Returns (index, count) of a shard.

    Args:
        shard: the shard that the user asks for; None for that of this process if the data are
            shuffled, and for whole batches otherwise.
        shuffle: whether the data are shuffled.
        batch_size: images in a batch of all processes.

    Raises:
        ConfigError: there is no such shard, or the shards do not divide a batch.
    """
    if shard is None:
        shard = data_shard() if shuffle else (0, 1)
    index, count = shard
    if not 0 <= index < count:
        raise ConfigError(f"shard={shard}, expected (index, count) with 0 <= index < count.")
    if batch_size % count:
        raise ConfigError(
            f"batch_size={batch_size}: {count} processes do not divide a batch. Give a multiple of "
            f"{count}; every process then reads batch_size / {count} images per step."
        )
    return index, count
