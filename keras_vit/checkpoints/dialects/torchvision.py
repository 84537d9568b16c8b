"""torchvision's `VisionTransformer` (such as `vit_b_16`): a state dict, without JSON.

Query, key and value are one array, as in torch's MultiheadAttention. The number of heads does not
follow from the arrays.
"""

from keras_vit.checkpoints.dialects.base import Dialect, PreparationWords
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.torch_conventions import IMAGENET, POSITIONS_OF_ANOTHER_GRID
from keras_vit.config import Numerics
from keras_vit.images.protocols import ProtocolSpec

_IMAGENET: ProtocolSpec = {**IMAGENET, "interpolation": "bilinear"}

torchvision = Dialect(
    name="torchvision",
    library="torchvision",
    container="safetensors",
    words=TORCH.names("torchvision"),
    reasons={
        "root/": "torchvision's VisionTransformer has no ResNet stem",
        "": "torchvision's VisionTransformer has no such part",
    },
    images=PreparationWords(default=lambda config: _IMAGENET),
    numerics=Numerics(gelu="exact", position_resize="bicubic"),
    fields={
        "classifier": "token",
        "position": "learned",
        "position_before_class": False,
        "qkv_bias": True,
    },
    impossible={
        "patches that are not square": lambda c: len({*c.patch_size}) > 1,
        "a grid that is not square": lambda c: len({*c.source_grid}) > 1,
        "num_classes=0": lambda c: c.num_classes == 0,
        **POSITIONS_OF_ANOTHER_GRID,
    },
    crops=False,
    metadata={"format": "pt"},
)
