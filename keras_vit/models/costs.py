"""Computes the floating-point operations (FLOPs) of a model from its configuration.

A multiply-add counts as two operations. As in table 6 of the paper, only matrix products and
convolutions are counted; norms, activations, softmax and additions are below 1 % of the operations.
A dense head is not counted.
"""

import dataclasses
import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from keras_vit.config import ViTConfig
from keras_vit.config.rules import pair
from keras_vit.config.weights import lexicon
from keras_vit.errors import ConfigError, expect_model

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer

_PARTS = {
    "stem": r"root/|stage\d",
    "patch_embedding": r"patch_embedding/",
    "attention_projections": r"block_\d+/attention/",
    "mlp": r"block_\d+/mlp/",
    "pooling": r"pool/|projection/",
    "head": r"",
}
"""Part of a model -> prefix of the paths of its weights; the first match decides."""


@dataclasses.dataclass(frozen=True)
class Flops:
    """The floating-point operations of a model for one image.

    Attributes:
        parts: operations of the forward pass by part: `stem` of a hybrid, `patch_embedding`,
            `attention_projections`, `attention_products` (Eq. 6 and 7), `mlp`, `pooling` and
            `head`.
        training: operations of a training step: the forward pass, and the gradients of the input
            and the weights of every product, except the gradient of the images.
    """

    parts: dict[str, int]
    training: int

    @property
    def forward(self) -> int:
        """Number of multiplications and additions of the forward pass."""
        return sum(self.parts.values())


def flops(
    model: "VisionTransformer | ViTConfig", image_size: int | tuple[int, int] | None = None
) -> Flops:
    """Counts the floating-point operations (FLOPs) of a model for one image.

    Args:
        model: a `VisionTransformer` or a `ViTConfig`, from which no model is built.
        image_size: pixels, an int or (height, width); None for the size of the model.

    Raises:
        ConfigError: `image_size` is None for a model of any size, or the image is smaller than
            a patch.

    >>> import keras_vit
    >>> counts = keras_vit.models.flops(keras_vit.vit_s16())
    >>> round(counts.forward / 1e9, 1), round(counts.training / 1e9, 1)
    (9.2, 27.5)
    """
    config = model if isinstance(model, ViTConfig) else expect_model(model).config
    size = _resolve_size(config, image_size)
    rows, columns = config.compute_grid(size)
    tokens = rows * columns + config.num_prefix_tokens
    attended = tokens if config.pool.kind == "map" else rows * columns
    cells = _cells(config, size)
    parts: Counter[str] = Counter(attention_products=0)
    first = 0
    for weight in lexicon.weights(config):
        is_of_map = config.dense is not None and weight.path.startswith("head/")
        if is_of_map or not weight.path.endswith("kernel"):
            continue
        part = next(part for part, start in _PARTS.items() if re.match(start, weight.path))
        if part == "stem":
            times = cells[weight.path]
        elif part == "patch_embedding":
            times = rows * columns
        elif part in ("attention_projections", "mlp"):
            times = tokens
        elif re.match(r"pool/attention/(key|value)/", weight.path):
            times = attended
        elif part == "pooling" or config.is_pooled:
            times = 1
        else:
            times = tokens
        count = 2 * math.prod(weight.shape) * times
        parts[part] += count
        first = first or count
    parts["attention_products"] = config.num_layers * 4 * tokens**2 * config.hidden_size
    if config.pool.is_map:
        parts["pooling"] += 4 * attended * config.hidden_size
    counted = {part: parts[part] for part in (*_PARTS, "attention_products") if parts[part]}
    return Flops(counted, 3 * sum(counted.values()) - first)


def _resolve_size(config: ViTConfig, image_size: int | tuple[int, int] | None) -> tuple[int, int]:
    size = config.image_size if image_size is None else image_size
    if size is None:
        raise ConfigError("The model takes images of any size: give an image_size.")
    return pair("image_size", size)


def _cells(config: ViTConfig, size: tuple[int, int]) -> dict[str, int]:
    """Returns the number of output cells of each convolution of a stem, by path of the kernel."""
    if not config.stem.is_resnet:
        return {}
    height, width = (-(-side // 2) for side in size)
    cells = {"root/conv/kernel": height * width}
    height, width = -(-height // 2), -(-width // 2)
    for unit in config.stem.list_units():
        before = height * width
        height, width = -(-height // unit.strides), -(-width // unit.strides)
        cells |= {f"{unit.name}/{conv}/kernel": height * width for conv in _CONVOLUTIONS}
        cells[f"{unit.name}/conv1/kernel"] = before  # only the second convolution has the stride
    return cells


_CONVOLUTIONS = ("conv_proj", "conv1", "conv2", "conv3")
