"""The model's part of a server: an encoded image to a prepared one, a batch to rows."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from PIL import Image

from keras_vit.errors import ConfigError
from keras_vit.evaluation.batches import as_numpy
from keras_vit.explanation.attention import (
    attention_maps,
    attention_rollout,
    grid_of,
    read_tokens,
)
from keras_vit.explanation.pixels import per_pixel
from keras_vit.images.decoding import MODES, TooManyPixelsError, pixel_limit
from keras_vit.inference import run
from keras_vit.model import VisionTransformer
from keras_vit.serving.batching import Function
from keras_vit.serving.settings import RequestError, Settings

_SMALLEST_PICTURE = 256  # pixels of a side: pictures of the digits have 16


class Engine:
    """A model, and the functions that requests call.

    Args:
        model: of any kind that takes image files.
        settings: the limits.

    Raises:
        ConfigError: the model takes no image files.
    """

    def __init__(self, model: VisionTransformer, settings: Settings) -> None:
        if model.config.channels not in MODES:
            raise ConfigError(
                f"The model takes {model.config.channels} channels; image files, which a server "
                "takes, have 1, 3 or 4."
            )
        self.model = model
        self.most_pixels = pixel_limit(settings.max_pixels)
        self._preprocessor = dataclasses.replace(model.preprocessor, max_pixels=self.most_pixels)
        self._max_batch = settings.max_batch
        self._least = model.config.stride
        # JAX compiles a model for each size of a batch. Powers of two keep the number small.
        self._pads = keras.backend.backend() == "jax" or bool(model.jit_compile)
        self.functions: dict[str, Function] = {
            "classify": self._in_few_sizes(model.probabilities),
            "embed": self._in_few_sizes(
                lambda batch: run(model, batch, ["pre_logits"])["pre_logits"]
            ),
            "attention": self._rollout,
        }

    def warm_up(self) -> None:
        """Computes black images in every size of a batch, so that no request waits for a compiler.

        A model of any size is left as it is: its sizes are not known.
        """
        if self.model.config.image_size is None:
            return
        black = np.zeros(self.model.input_shape[1:], "float32")
        function = self.functions["classify" if self.classifies else "embed"]
        count = 1
        while count < 2 * self._max_batch:
            function(np.stack([black] * count))
            count *= 2

    @property
    def classifies(self) -> bool:
        """Whether the model has one prediction for an image."""
        return bool(self.model.config.has_one_prediction)

    def prepared(self, encoded: bytes) -> np.ndarray:
        """Returns one image as the model takes it, without a batch axis.

        Raises:
            RequestError: the bytes are no image (415), it has too many pixels (413), or it is too
                small for a model of any size (422).
        """
        # A file object: bytes that look like a file's name would be taken for one.
        try:
            batch: np.ndarray = self._preprocessor(io.BytesIO(encoded))
        except TooManyPixelsError as error:
            raise RequestError(
                413,
                f"An image has more pixels than the {self.most_pixels:,} that are taken. Send a "
                "smaller one, or start the server with a larger --max-pixels.",
            ) from error
        except ConfigError as error:
            reason = str(error)  # it begins with "an encoded image"
            raise RequestError(415, reason[:1].upper() + reason[1:]) from error
        image: np.ndarray = batch[0]
        if any(have < least for have, least in zip(self._sides(image), self._least, strict=True)):
            high, wide = self._least
            raise RequestError(
                422,
                f"The image is smaller than a patch of {high}x{wide} pixels. Send a larger one.",
            )
        return image

    def picture(self, prepared: np.ndarray, attention: np.ndarray) -> bytes:
        """Returns a PNG of an image, dark where the prediction attends little (Figure 6)."""
        pixels = self._preprocessor.pixels(prepared[None])[0]
        share = attention / max(float(attention.max()), 1e-12)
        shown = np.round(255 * pixels * (0.15 + 0.85 * share[..., None])).astype(np.uint8)
        image = Image.fromarray(shown[..., 0] if shown.shape[-1] == 1 else shown[..., :3])
        times = -(-_SMALLEST_PICTURE // min(image.size))
        if times > 1:
            image = image.resize(
                (times * image.width, times * image.height), Image.Resampling.NEAREST
            )
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    def _rollout(self, batch: np.ndarray) -> np.ndarray:
        """Rollout over all blocks, `(batch, height, width)`; one image at a time for its memory."""
        return np.concatenate([self._rollout_of_one(image[None]) for image in batch])

    def _rollout_of_one(self, image: np.ndarray) -> np.ndarray:
        model = self.model
        reads = read_tokens(model, image)
        patches = attention_rollout(
            attention_maps(model, image), grid_of(model, image), reads=reads
        )
        return per_pixel(patches, self._sides(image[0]), model.config)

    def _sides(self, image: np.ndarray) -> tuple[int, int]:
        first = 0 if self.model.data_format == "channels_last" else 1
        height, width = image.shape[first : first + 2]
        return height, width

    def _in_few_sizes(self, function: Callable[[np.ndarray], Any]) -> Function:
        def run(batch: np.ndarray) -> np.ndarray:
            count = len(batch)
            full = 1 << (count - 1).bit_length() if self._pads else count
            padded = np.pad(batch, [(0, full - count)] + [(0, 0)] * (batch.ndim - 1))
            return as_numpy(function(padded))[:count].astype("float32", copy=False)

        return run
