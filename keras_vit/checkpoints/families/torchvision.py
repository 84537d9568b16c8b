"""torchvision's `VisionTransformer`, such as `vit_b_16`: a state dict, without JSON.

Query, key and value are one array, as in torch's MultiheadAttention. The number of heads does not
follow from the arrays.
"""

from keras_vit.checkpoints.families.family import Family, Images, Library
from keras_vit.checkpoints.families.keys import stored_image_size
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.protocols import IMAGENET
from keras_vit.config import ViTConfig
from keras_vit.images.protocols import ProtocolSpec


def _default(config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol of torchvision's weights; SWAG's weights, above 224 pixels, do not crop.

    L/16 (resized to 242) and SWAG's linear heads (bicubic, 224) cannot be recognized by the arrays.
    """
    if max(stored_image_size(config)) > 224:
        return {**IMAGENET, "crop_pct": 1.0}
    return {**IMAGENET, "interpolation": "bilinear"}


_BLOCK = "encoder.layers.encoder_layer_{l}"
_NAMES: Section = {
    "patch_embedding": "conv_proj",
    "class_token/token": "class_token",
    "position_embedding/embedding": "encoder.pos_embedding",
    "block_{l}/attention_norm": f"{_BLOCK}.ln_1",
    "block_{l}/attention/{qkv}/kernel": f"{_BLOCK}.self_attention.in_proj_weight : (qkv h d) m",
    "block_{l}/attention/{qkv}/bias": f"{_BLOCK}.self_attention.in_proj_bias : (qkv h d)",
    "block_{l}/attention/out": f"{_BLOCK}.self_attention.out_proj",
    "block_{l}/mlp_norm": f"{_BLOCK}.ln_2",
    "block_{l}/mlp/dense_0": [f"{_BLOCK}.mlp.0", f"{_BLOCK}.mlp.linear_1"],
    "block_{l}/mlp/dense_1": [f"{_BLOCK}.mlp.3", f"{_BLOCK}.mlp.linear_2"],
    "encoder_norm": "encoder.ln",
    "pre_logits": "heads.pre_logits",
    "head": "heads.head",
}

FAMILIES = (
    Family(
        "torchvision",
        Library(
            "torchvision",
            images=Images(default=_default),
            arithmetic={"block.activation": "gelu", "position_resize": "bicubic"},
            only_read=(
                "family='timm' and family='transformers' write the same network for these libraries"
            ),
        ),
        _NAMES,
        fixed={"pool.kind": "token", "position": "learned", "block.qkv_bias": True},
    ),
)
