"""transformers' `DINOv3ViTModel`, such as `facebook/dinov3-vitb16-pretrain-lvd1689m`."""

from keras_vit.checkpoints.dialects.dinov3_rows import OWN_ROPE, SCALED, dinov3_rows
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers.common import (
    architectures,
    dialect,
    size_rows,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_any_size

_NAMES: Section = {
    "patch_embedding": "embeddings.patch_embeddings",
    "mask_token/token": "embeddings.mask_token",
    "class_token/token": "embeddings.cls_token",
    "register_tokens/tokens": "embeddings.register_tokens",
    "block_{l}/attention_norm": "layer.{l}.norm1",
    "block_{l}/attention/{qkv}": "layer.{l}.attention.{q}_proj",
    "block_{l}/attention/out": "layer.{l}.attention.o_proj",
    "block_{l}/attention_scale/gamma": "layer.{l}.layer_scale1.lambda1",
    "block_{l}/mlp_norm": "layer.{l}.norm2",
    "block_{l}/mlp/dense_0": "layer.{l}.mlp.up_proj",
    "block_{l}/mlp/{gate}": "layer.{l}.mlp.{up}_proj",
    "block_{l}/mlp/dense_1": "layer.{l}.mlp.down_proj",
    "block_{l}/mlp_scale/gamma": "layer.{l}.layer_scale2.lambda1",
    "encoder_norm": "norm",
}

FAMILIES = (
    dialect(
        "dinov3_vit",
        TORCH.names(_NAMES),
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
        fields={"num_classes": 0, "block.layer_scale": 1e-5, "tokens.mask": True},
        switches=("block.qkv_bias",),
        impossible={**OWN_ROPE, **SCALED},
    ),
)
