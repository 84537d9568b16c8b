"""keras-hub's `SigLIPVisionEncoder`, alone or inside of `SigLIPBackbone`."""

from keras_vit.checkpoints.dialects.json_fields import JsonConstant
from keras_vit.checkpoints.dialects.keras_hub.towers import inside, tower
from keras_vit.checkpoints.dialects.names import Section

_NAMES: Section = {
    "patch_embedding": "layers/sig_lip_vision_embedding/patch_embedding",
    "position_embedding/embedding": "layers/sig_lip_vision_embedding/position_embedding/vars/0 : n m",
    "block_{l}/attention_norm": "layers/sig_lip_encoder_layer{_l}/layer_norm1",
    "block_{l}/attention/{qkv}": "layers/sig_lip_encoder_layer{_l}/self_attn/{qkv}_dense",
    "block_{l}/attention/out": "layers/sig_lip_encoder_layer{_l}/self_attn/output_dense",
    "block_{l}/mlp_norm": "layers/sig_lip_encoder_layer{_l}/layer_norm2",
    "block_{l}/mlp/dense_0": "layers/sig_lip_encoder_layer{_l}/mlp/fc1",
    "block_{l}/mlp/dense_1": "layers/sig_lip_encoder_layer{_l}/mlp/fc2",
    "encoder_norm": "layers/layer_normalization",
    "pool/probe": "layers/sig_lip_multi_head_attention_pooling/vars/0",
    "pool/attention/{qkv}": "layers/sig_lip_multi_head_attention_pooling/attention/{qkv}_dense",
    "pool/attention/out": "layers/sig_lip_multi_head_attention_pooling/attention/output_dense",
    "pool/norm": "layers/sig_lip_multi_head_attention_pooling/layer_norm",
    "pool/mlp/dense_0": "layers/sig_lip_multi_head_attention_pooling/mlp/fc1",
    "pool/mlp/dense_1": "layers/sig_lip_multi_head_attention_pooling/mlp/fc2",
}

_siglip = tower(
    "siglip",
    "SigLIP",
    # The last norm always uses 1e-6, so another value would give the model two epsilons.
    (JsonConstant("layer_norm_epsilon", 1e-6),),
    _NAMES,
    "sig_lip_vision_embedding",
    "vars/0",
    "gelu_approximate",
    1e-6,
    {"pooling": "map", "class_token": None},
    {"num_classes": 0, "pooling": "map", "class_token": False},
)

_siglip_backbone = inside(
    _siglip,
    "siglip_backbone",
    ("SigLIPBackbone", "SigLIPVisionEncoder"),
    "layers/sig_lip_vision_encoder/",
)

FAMILIES = (_siglip, _siglip_backbone)
