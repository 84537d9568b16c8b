"""`Engine`: prepares encoded images, and computes a batch of them."""

import dataclasses
import io

import keras
import numpy as np
from fastapi import HTTPException
from PIL import Image, ImageOps

from keras_vit.data.records import Encoded
from keras_vit.errors import ConfigError, expect_model
from keras_vit.explanation.display import brightness, patch_colours
from keras_vit.explanation.maps import choose_classes, spread
from keras_vit.explanation.methods import relevance, weigh_outputs
from keras_vit.images.decoding import LONGEST_SIDE, MODES, TooManyPixelsError, pixel_limit
from keras_vit.images.resampling import make_picture
from keras_vit.layers.quantisation import quantised_parts
from keras_vit.models.inference import run
from keras_vit.models.tokens import choose_stage, compute_grid
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.serving.batching import Function
from keras_vit.serving.settings import Settings

_SMALLEST_PICTURE = 256  # pixels of a side: pictures of the digits have 16


class Engine:
    """A model, and the functions that requests call.

    Args:
        model: a `VisionTransformer` that takes image files.
        settings: the limits.
        stage, pooling: the features of an image, as in `keras_vit.evaluation.features`.

    Raises:
        ConfigError: the model takes no image files, or has no such stage or pooling.
    """

    def __init__(
        self, model: VisionTransformer, settings: Settings, stage: str | None, pooling: str | None
    ) -> None:
        if expect_model(model).config.channels not in MODES:
            raise ConfigError(
                f"The model takes {model.config.channels} channels; the image files that a server "
                "receives have 1, 3 or 4."
            )
        self.model = model
        self.most_pixels = pixel_limit(settings.max_pixels)
        self.classifies = model.config.has_one_prediction and model.task != "regression"
        self._preprocessor = dataclasses.replace(model.preprocessor, max_pixels=self.most_pixels)
        self._max_batch = settings.max_batch
        has_gradients = keras.backend.backend() != "openvino" and not quantised_parts(model.layers)
        # Made once: under JAX each one compiles anew.
        self._relevance = relevance(model) if self.classifies and has_gradients else None
        self.stage = chosen = choose_stage(model, stage, pooling)
        self.functions: dict[str, Function] = {
            "classify": lambda batch: model.probabilities(batch, settings.max_batch, prepared=True),
            "embed": lambda batch: run(model, batch, [chosen], settings.max_batch)[chosen],
            "explain": self._explain,
        }

    @property
    def explains(self) -> str:
        """`"relevance"`, the evidence for a class; or `"components"`, for a model without."""
        return "components" if self._relevance is None else "relevance"

    def _explain(self, batch: np.ndarray) -> np.ndarray:
        """Returns, for each patch, relevance for the predicted class, or a colour of the PCA.

        One image at a time: the attention weights of all blocks take much memory.
        """
        if self._relevance is None:
            name = f"block_{self.model.config.num_layers - 1}/norm"
            tokens = run(self.model, batch, [name], 1)[name]
            patches = tokens[:, self.model.config.num_prefix_tokens :]
            grid = compute_grid(self.model, batch)
            each = patches.reshape(len(batch), 1, *grid, patches.shape[-1])
            return np.concatenate([patch_colours(image) for image in each])
        classes = choose_classes(self.model, batch, None, self._max_batch)
        chosen = weigh_outputs(self.model.prediction, classes)
        maps = [self._relevance(batch[k : k + 1], chosen[k : k + 1]) for k in range(len(batch))]
        return np.concatenate(maps)

    def warm_up(self) -> None:
        """Computes black images at every batch size, so that no request waits for a compiler.

        A model of any size compiles later, because the sizes of its images are unknown.
        """
        if self.model.config.image_size is None:
            return
        function = self.functions["classify" if self.classifies else "embed"]
        count = 1
        while count < 2 * self._max_batch:
            shape = (min(count, self._max_batch), *self.model.input_shape[1:])
            function(np.zeros(shape, "float32"))
            count *= 2
        if not self.model.config.stem.is_packed:
            self._explain(np.zeros((1, *self.model.input_shape[1:]), "float32"))

    def prepare(self, encoded: bytes, name: str) -> np.ndarray:
        """Returns one image as the model takes it, without a batch axis.

        Args:
            encoded: the bytes of the image.
            name: the first words of a message about it, such as `Image 2`.

        Raises:
            HTTPException: the bytes are not an image (415), the image has too many pixels (413), or
                it is too small for a model of any size (422).
        """
        # A file object: bytes that look like a file's name would be taken for one.
        try:
            batch: np.ndarray = self._preprocessor(Encoded(encoded, name))
        except TooManyPixelsError as error:
            raise HTTPException(
                413,
                f"{name} has more pixels than the limit, {self.most_pixels:,}, or more than "
                f"{LONGEST_SIDE:,} on a side. Send a smaller image, or start the server with a "
                "larger --max-pixels.",
            ) from error
        except ConfigError as error:
            raise HTTPException(415, str(error)) from error
        image: np.ndarray = batch[0]
        if self.model.config.stem.is_packed:  # packed patches, of which an image has one or more
            return image
        first = 0 if self.model.data_format == "channels_last" else 1
        high, wide = self.model.config.stride
        if image.shape[first] < high or image.shape[first + 1] < wide:
            raise HTTPException(
                422,
                f"{name} is smaller than a patch of {high}x{wide} pixels. Send a larger image.",
            )
        return image

    def picture(self, prepared: np.ndarray, patches: np.ndarray) -> bytes:
        """Returns a PNG of an image, dark where the evidence is low, or of the colours of patches.

        Args:
            prepared: the image, without a batch axis.
            patches: the row of the function `explain` for it.
        """
        pixels = self._preprocessor.pixels(prepared[None])[0]
        if patches.ndim == 2:
            share = spread(brightness(patches)[None], pixels.shape[:2], self.model.config)[0]
            pixels = pixels * (0.15 + 0.85 * share[..., None])
        else:
            planes = np.moveaxis(patches, -1, 0)
            pixels = np.moveaxis(spread(planes, pixels.shape[:2], self.model.config), 0, -1)
        image = make_picture(np.round(255 * pixels).astype(np.uint8)[..., :3])
        times = -(-_SMALLEST_PICTURE // min(image.size))
        file = io.BytesIO()
        ImageOps.scale(image, times, Image.Resampling.NEAREST).save(file, "PNG")
        return file.getvalue()
