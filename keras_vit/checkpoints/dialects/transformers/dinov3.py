"""transformers' `DINOv3ViTModel`, such as `facebook/dinov3-vitb16-pretrain-lvd1689m`."""

from keras_vit.checkpoints.dialects.dinov3_rows import OWN_ROPE, dinov3_rows
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers.common import architectures, dialect, size_rows
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_any_size

dinov3 = dialect(
    "dinov3_vit",
    TORCH.names("transformers/dinov3"),
    (
        architectures(None, "DINOv3ViTModel"),
        *size_rows(),
        *dinov3_rows(
            biases=("query_bias", "key_bias", "value_bias"),
            projection_bias="proj_bias",
            mlp_bias="mlp_bias",
            activation="hidden_act",
            layer_scale="layerscale_value",
        ),
    ),
    images=processor_of_any_size,
    epsilon=1e-5,
    resize="bilinear_align_corners",
    positions=("none",),
    prefixes=("", "model."),
    needs_json="theta of the rotary positions",
    expresses=("gelu", "gate", "layer_norm_epsilon", "position_resize"),
    fields={"num_classes": 0, "layer_scale": True, "mask_token": True},
    switches=("qkv_bias",),
    impossible=OWN_ROPE,
)
