"""torchvision's `VisionTransformer` (such as `vit_b_16`): a state dict, without JSON.

Query, key and value are one array, as in torch's MultiheadAttention. The number of heads does not
follow from the arrays.
"""

from keras_vit.checkpoints.dialects.base import Dialect, PreparationWords
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.torch_conventions import (
    IMAGENET,
    stored_image_size,
)
from keras_vit.config import ViTConfig
from keras_vit.images.protocols import ProtocolSpec

_IMAGENET: ProtocolSpec = {**IMAGENET, "interpolation": "bilinear"}


def _default(config: ViTConfig) -> ProtocolSpec:
    """Returns the transform of torchvision's weights: SWAG's, above 224 pixels, do not crop.

    The arrays do not tell L/16 (scaled to 242) and SWAG's linear heads (bicubic, 224) apart.
    """
    if max(stored_image_size(config)) > 224:
        return {**IMAGENET, "crop_pct": 1.0}
    return _IMAGENET


_NAMES: Section = {
    "patch_embedding": "conv_proj",
    "class_token/token": "class_token",
    "position_embedding/embedding": "encoder.pos_embedding",
    "block_{l}/attention_norm": "encoder.layers.encoder_layer_{l}.ln_1",
    "block_{l}/attention/{qkv}/kernel": "encoder.layers.encoder_layer_{l}.self_attention.in_proj_weight : (qkv h d) m",
    "block_{l}/attention/{qkv}/bias": "encoder.layers.encoder_layer_{l}.self_attention.in_proj_bias : (qkv h d)",
    "block_{l}/attention/out": "encoder.layers.encoder_layer_{l}.self_attention.out_proj",
    "block_{l}/mlp_norm": "encoder.layers.encoder_layer_{l}.ln_2",
    "block_{l}/mlp/dense_0": [
        "encoder.layers.encoder_layer_{l}.mlp.0",
        "encoder.layers.encoder_layer_{l}.mlp.linear_1",
    ],
    "block_{l}/mlp/dense_1": [
        "encoder.layers.encoder_layer_{l}.mlp.3",
        "encoder.layers.encoder_layer_{l}.mlp.linear_2",
    ],
    "encoder_norm": "encoder.ln",
    "pre_logits": "heads.pre_logits",
    "head": "heads.head",
}

torchvision = Dialect(
    name="torchvision",
    library="torchvision",
    words=TORCH.names(_NAMES),
    images=PreparationWords(default=_default),
    arithmetic={"block.activation": "gelu", "position_resize": "bicubic"},
    fields={"pool.kind": "token", "position": "learned", "block.qkv_bias": True},
    only_read="family='timm' and family='transformers' write the same network for these libraries",
)
