"""The three targets of masked patch prediction (appendix B.1.2), as functions of pixels."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError

CELLS = 4
"""Number of rows and of columns of a downsized patch."""


@dataclasses.dataclass(frozen=True)
class Target:
    """One target of a patch.

    Attributes:
        of: (pixels, patch_size, bits) -> targets `(batch, patches, ...)`; pixels are float32
            `(batch, height, width, channels)` in [0, 255].
        shape: (config, bits) -> shape of the predictions for one patch.
        loss: (targets, predictions) -> loss of each patch, `(batch, patches)`.
        has_classes: whether the target is a class, so that an accuracy exists.
    """

    of: Callable[[Any, tuple[int, int], int], Any]
    shape: Callable[[ViTConfig, int], tuple[int, ...]]
    loss: Callable[[Any, Any], Any]
    has_classes: bool


def mean_colours(pixels: Any, patch_size: tuple[int, int], bits: int = 3) -> Any:
    """Returns each patch's mean colour in `bits` bits per channel (appendix B.1.2).

    A channel's mean, in [0, 255], is rounded down to steps of `256 / 2**bits`, numbered from 0 to
    `2**bits - 1`; the first channel is in the highest bits. For RGB and 3 bits: `64 r + 8 g + b`.

    Args:
        pixels: float32 `(batch, height, width, channels)` in [0, 255].
        patch_size: (rows, columns) of a patch. Pixels that fill no patch are left out.
        bits: bits per channel.

    Returns:
        int32 `(batch, patches)` in [0, 2 ** (bits * channels)), by rows of patches.
    """
    colours = _colour_grid(pixels, patch_size, bits)
    return ops.reshape(colours, (ops.shape(colours)[0], -1))


def downsized_colours(pixels: Any, patch_size: tuple[int, int], bits: int = 3) -> Any:
    """Returns the colours of each patch downsized to 4 by 4 cells, by their means.

    Args:
        pixels, patch_size, bits: as in `mean_colours`; both sides of a patch are multiples of 4.

    Returns:
        int32 `(batch, patches, 16)`, by rows of cells.
    """
    rows, columns = (ops.shape(pixels)[1 + k] // patch_size[k] for k in range(2))
    whole = pixels[:, : rows * patch_size[0], : columns * patch_size[1]]
    cells = _colour_grid(whole, (patch_size[0] // CELLS, patch_size[1] // CELLS), bits)
    cells = ops.reshape(cells, (-1, rows, CELLS, columns, CELLS))
    return ops.reshape(ops.transpose(cells, (0, 1, 3, 2, 4)), (-1, rows * columns, CELLS**2))


def patch_pixels(pixels: Any, patch_size: tuple[int, int], bits: int = 3) -> Any:
    """Returns all values of each patch, scaled from [0, 255] to [-1, 1].

    Returns:
        float32 `(batch, patches, rows * columns * channels)`, by rows of pixels.
    """
    height, width = patch_size
    rows, columns, channels = (
        ops.shape(pixels)[1] // height,
        ops.shape(pixels)[2] // width,
        pixels.shape[-1],
    )
    whole = pixels[:, : rows * height, : columns * width] / 127.5 - 1
    parts = ops.reshape(whole, (-1, rows, height, columns, width, channels))
    parts = ops.transpose(parts, (0, 1, 3, 2, 4, 5))
    return ops.reshape(parts, (-1, rows * columns, height * width * channels))


def _colour_grid(pixels: Any, cell: tuple[int, int], bits: int) -> Any:
    means = ops.average_pool(pixels, cell, strides=cell, data_format="channels_last")
    # Rounding may have put a mean slightly below its exact whole number.
    levels = ops.floor((means + 1e-3) * (2**bits / 256))
    levels = ops.cast(ops.clip(levels, 0, 2**bits - 1), "int32")
    channels = levels.shape[-1]
    places = [2 ** (bits * (channels - 1 - c)) for c in range(channels)]
    return ops.cast(ops.sum(levels * ops.convert_to_tensor(places, "int32"), axis=-1), "int32")


def _cross_entropy(targets: Any, predictions: Any) -> Any:
    return ops.sparse_categorical_crossentropy(targets, predictions, from_logits=True)


TARGETS = {
    "mean_colour": Target(
        mean_colours,
        lambda config, bits: (2 ** (bits * config.channels),),
        _cross_entropy,
        has_classes=True,
    ),
    "downsized": Target(
        downsized_colours,
        lambda config, bits: (CELLS**2, 2 ** (bits * config.channels)),
        lambda targets, predictions: ops.mean(_cross_entropy(targets, predictions), axis=-1),
        has_classes=True,
    ),
    "pixels": Target(
        patch_pixels,
        lambda config, bits: (math.prod(config.patch_size) * config.channels,),
        lambda targets, predictions: ops.mean(
            ops.square(ops.subtract(targets, predictions)), axis=-1
        ),
        has_classes=False,
    ),
}
"""Targets by name: one colour of 512; 16 colours of a downsized patch; L2 regression on pixels."""


def check(name: str, config: ViTConfig, bits: int) -> None:
    """Checks a target against a model.

    Raises:
        ConfigError: the name is unknown, there are too many colours, or 4 does not divide the
            sides of a patch.
    """
    if name not in TARGETS:
        raise ConfigError(f"target={name!r} is not one of {', '.join(TARGETS)}.")
    if not isinstance(bits, int) or bits < 1 or bits * config.channels > 16:
        raise ConfigError(
            f"bits={bits!r} for {config.channels} channels: expected at least 1 bit, and at most "
            "16 of all channels together."
        )
    if name == "downsized" and any(side % CELLS for side in config.patch_size):
        raise ConfigError(
            f"target='downsized' needs patches whose sides are multiples of {CELLS}, found "
            f"patch_size={config.patch_size}."
        )
