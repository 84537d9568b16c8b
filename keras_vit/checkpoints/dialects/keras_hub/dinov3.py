"""keras-hub's `DINOV3Backbone`, such as `dinov3_vit_base_lvd1689m`."""

from keras_vit.checkpoints.dialects.dinov3_rows import dinov3_rows
from keras_vit.checkpoints.dialects.keras_hub.common import size_rows
from keras_vit.checkpoints.dialects.keras_hub.dinov2 import MASK_TOKEN, dino_family
from keras_vit.checkpoints.dialects.names import Section

_NAMES: Section = {
    "patch_embedding": "layers/dinov3_embedding/patch_embeddings/projection",
    "mask_token/token": "layers/dinov3_embedding/vars/1 : 1 1 m",
    "class_token/token": "layers/dinov3_embedding/vars/0",
    "register_tokens/tokens": [
        {"name": "layers/dinov3_embedding/vars/2", "when": "tokens.mask"},
        {"name": "layers/dinov3_embedding/vars/1", "when": "tokens.mask!"},
    ],
    "block_{l}/attention_norm": "layers/dinov3_encoder/layers/dinov3_layer{_l}/norm1",
    "block_{l}/attention/{qkv}/kernel": "layers/dinov3_encoder/layers/dinov3_layer{_l}/attention/{qkv}_dense/vars/0 : m (h d)",
    "block_{l}/attention/{qkv}/bias": "layers/dinov3_encoder/layers/dinov3_layer{_l}/attention/{qkv}_dense/vars/1 : (h d)",
    "block_{l}/attention/out/kernel": "layers/dinov3_encoder/layers/dinov3_layer{_l}/attention/output_dense/vars/0 : (h d) m",
    "block_{l}/attention/out/bias": "layers/dinov3_encoder/layers/dinov3_layer{_l}/attention/output_dense/vars/1",
    "block_{l}/attention_scale": "layers/dinov3_encoder/layers/dinov3_layer{_l}/layer_scale1",
    "block_{l}/mlp_norm": "layers/dinov3_encoder/layers/dinov3_layer{_l}/norm2",
    "block_{l}/mlp/dense_0": "layers/dinov3_encoder/layers/dinov3_layer{_l}/mlp/up_proj",
    "block_{l}/mlp/{gate}": "layers/dinov3_encoder/layers/dinov3_layer{_l}/mlp/{up}_proj",
    "block_{l}/mlp/dense_1": "layers/dinov3_encoder/layers/dinov3_layer{_l}/mlp/down_proj",
    "block_{l}/mlp_scale": "layers/dinov3_encoder/layers/dinov3_layer{_l}/layer_scale2",
    "encoder_norm": "layers/layer_normalization",
}

_dinov3 = dino_family(
    "dinov3",
    "DINOV3Backbone",
    (
        *size_rows(),
        *dinov3_rows(
            biases=("use_query_bias", "use_key_bias", "use_value_bias"),
            projection_bias="use_proj_bias",
            mlp_bias="use_mlp_bias",
            activation="hidden_activation",
            layer_scale="layer_scale_init_value",
        ),
        MASK_TOKEN,
    ),
    _NAMES,
    {"position": "none"},
    needs_json="theta of the rotary positions",
    arithmetic={"block.activation": "gelu", "block.epsilon": 1e-5},
)

FAMILIES = (_dinov3,)
