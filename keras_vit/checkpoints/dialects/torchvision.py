"""torchvision's `VisionTransformer` (such as `vit_b_16`): a state dict, without JSON.

Query, key and value are one array, as in torch's MultiheadAttention. The number of heads does not
follow from the arrays.
"""

from keras_vit.checkpoints.dialects.base import Dialect, PreparationWords
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.torch_conventions import (
    IMAGENET,
    POSITIONS_OF_ANOTHER_GRID,
    stored_image_size,
)
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.models.config import Numerics, ViTConfig

_IMAGENET: ProtocolSpec = {**IMAGENET, "interpolation": "bilinear"}


def _default(config: ViTConfig) -> ProtocolSpec:
    """Returns the transform of torchvision's weights: SWAG's, above 224 pixels, do not crop.

    The arrays do not tell L/16 (scaled to 242) and SWAG's linear heads (bicubic, 224) apart.
    """
    if max(stored_image_size(config)) > 224:
        return {**IMAGENET, "crop_pct": 1.0}
    return _IMAGENET


torchvision = Dialect(
    name="torchvision",
    library="torchvision",
    container="safetensors",
    words=TORCH.names("torchvision"),
    reasons={
        "root/": "torchvision's VisionTransformer has no ResNet stem",
        "": "torchvision's VisionTransformer has no such part",
    },
    images=PreparationWords(default=_default),
    numerics=Numerics(gelu="exact", position_resize="bicubic"),
    fields={
        "pooling": "token",
        "position": "learned",
        "position_before_class": False,
        "qkv_bias": True,
    },
    impossible={
        "patches that are not square": "patch_size!=square",
        "a grid that is not square": "source_grid!=square",
        "num_classes=0": "num_classes!",
        **POSITIONS_OF_ANOTHER_GRID,
    },
    crops=False,
    metadata={"format": "pt"},
)
