"""Rescales pixels in [0, 255] to the range that the weights were trained with."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class Rescale(ConfiguredLayer):
    """Normalises pixels, `(x / 255 - mean) / std`, in float32, as `keras_vit.Preprocessor.scale`.

    Input: images of any numeric type, `(batch, height, width, channels)` or
    `(batch, channels, height, width)`, in [0, 255]. Output: the same shape in the compute dtype.

    Args:
        mean: mean of pixels in [0, 1], a number or one per channel.
        std: standard deviation of pixels in [0, 1], a positive number or one per channel.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
    """

    def __init__(
        self,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # 16 bits would round the pixels
        self.mean, self.std = mean, std
        self.data_format = data_format or keras.config.image_data_format()

    def call(self, inputs: Any) -> Any:
        """Returns images in the range of the weights."""
        pixels = ops.cast(inputs, "float32")
        scaled = (pixels - self._per_channel(self.mean)) / self._per_channel(self.std)
        return ops.cast(scaled, self.compute_dtype)

    def _per_channel(self, numbers: float | Sequence[float]) -> Any:
        values = ops.convert_to_tensor(numbers, "float32") * 255.0
        if values.ndim and self.data_format == "channels_first":
            return ops.reshape(values, (-1, 1, 1))
        return values
