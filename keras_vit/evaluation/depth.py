"""Metres for every pixel: the linear heads of depth that DINOv2 publishes as files of their own."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.evaluation.dense import PatchLayer, read_head
from keras_vit.evaluation.extraction import list_sources
from keras_vit.evaluation.label_maps import resize_grid
from keras_vit.models.tokens import block_index
from keras_vit.models.vision_transformer import VisionTransformer

_UPSAMPLING = 4
_LEAST_SCORE = 0.1
"""Added to the score of each bin, so that no pixel has a sum of 0."""
_FOUR_OF_24_BLOCKS = (4, 11, 17, 23)
"""What DINOv2's ViT-L heads read; even distances would begin with block 5."""


@dataclasses.dataclass(frozen=True, eq=False)
class DepthProbe(PatchLayer):
    """A linear head of depth on a frozen model, as in DINOv2 (`dinov2/hub/depth`).

    The features are patches and class tokens before the last norm. The logits, four times as fine
    as the patches, become weights of depths at equal distances: `relu(logits) + 0.1`, divided by
    their sum. The depth is the weighted mean.

    Args:
        min_depth, max_depth: the first and the last of these depths, in metres.

    Raises:
        ConfigError: not `0 <= min_depth < max_depth`, or not finite.
    """

    kind: ClassVar[str] = ""

    min_depth: float
    max_depth: float

    def __post_init__(self) -> None:
        if not 0 <= self.min_depth < self.max_depth < np.inf:
            raise ConfigError(
                f"min_depth={self.min_depth!r}, max_depth={self.max_depth!r}: expected metres, "
                "0 <= min_depth < max_depth; DINOv2's heads have 0.001, and 10 (NYU) or 80 (KITTI)."
            )

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        model: VisionTransformer,
        *,
        max_depth: float,
        min_depth: float = 0.001,
        blocks: Sequence[int] | None = None,
        allow_pickle_weights: bool = False,
    ) -> "DepthProbe":
        """Reads a linear head of depth, such as DINOv2's `..._nyu_linear4_head.pth`.

        The file has `decode_head.conv_depth.weight` `(bins, width, 1, 1)` and `bias`. It does not
        state the depths, which are 10 metres at most for DINOv2's heads of NYU, and 80 of KITTI.

        Args:
            path: a `.safetensors` file, or a `.pth` file with `allow_pickle_weights`.
            model: the encoder that the head was trained on.
            max_depth, min_depth: the depths of the last bin and of the first, in metres.
            blocks: the blocks that the head reads; None for those of DINOv2: the last one, or
                several at even distances, as the head's width has room for.
            allow_pickle_weights: as for `keras_vit.checkpoints.load`.

        Raises:
            CheckpointError: the file cannot be read, is no linear head of depth, or belongs to
                another encoder.
            ConfigError: as for the constructor, or the model has no such block.
        """
        count, arrays = read_head(path, "depth", model, blocks, allow_pickle_weights)
        kernel, bias = arrays
        if len(bias) < 2:
            raise CheckpointError(f"{path}: {len(bias)} bin of depth, expected two or more.")
        hidden, depth = model.config.hidden_size, model.config.num_layers
        places = [(k + 1) * depth // count - 1 for k in range(count)] if blocks is None else blocks
        if blocks is None and (count, depth) == (4, 24):
            places = _FOUR_OF_24_BLOCKS
        # The file has patch and class token of each block beside each other.
        kernel = kernel.reshape(count, 2, hidden, -1).swapaxes(0, 1).reshape(len(kernel), -1)
        chosen = tuple(block_index(model, block) for block in places)
        return cls(chosen, True, kernel, bias, min_depth, max_depth)

    def predict(
        self,
        model: VisionTransformer,
        images: Any,
        size: tuple[int, int] | None = None,
        batch_size: int = 8,
    ) -> list[np.ndarray]:
        """Returns the depth of each pixel in metres, float32 `(height, width)` for each image.

        Images are squashed to the model's size, so load it with an `image_size` of their shape.

        Args:
            model: the model that the head belongs to.
            images: images as for `model.preprocessor`, of any sizes.
            size: (height, width) of the results; None for each image's own.
            batch_size: images per step.

        Raises:
            ConfigError: an image cannot be read, or the model is another.
        """
        depths = np.linspace(self.min_depth, self.max_depth, len(self.bias))
        answer = []
        for own, logits in self.logits(model, list_sources(model, images), False, batch_size):
            rows, columns = logits.shape[:2]
            # Resizing commutes with the 1x1 convolution, before which DINOv2 has it.
            fine = resize_grid(logits, (_UPSAMPLING * rows, _UPSAMPLING * columns))
            scores = np.maximum(fine, 0) + _LEAST_SCORE
            depth = scores @ depths / scores.sum(axis=-1)
            answer.append(resize_grid(depth[..., None], size or own)[..., 0].astype("float32"))
        return answer
