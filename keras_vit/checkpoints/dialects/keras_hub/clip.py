"""keras-hub's `CLIPVisionEncoder`, alone or inside of `CLIPBackbone`."""

from keras_vit.checkpoints.dialects.json_fields import JsonConstant
from keras_vit.checkpoints.dialects.keras_hub.towers import inside, tower
from keras_vit.checkpoints.dialects.names import Section

_NAMES: Section = {
    "patch_embedding": "layers/clip_vision_embedding/patch_embedding",
    "class_token/token": "layers/clip_vision_embedding/vars/0 : m",
    "position_embedding/embedding": "layers/clip_vision_embedding/position_embedding/vars/0 : n m",
    "pre_norm": "layers/layer_normalization",
    "block_{l}/attention_norm": "layers/clip_encoder_layer{_l}/layer_norm_1",
    "block_{l}/attention/{qkv}": "layers/clip_encoder_layer{_l}/attention/{qkv}_dense",
    "block_{l}/attention/out": "layers/clip_encoder_layer{_l}/attention/output_dense",
    "block_{l}/mlp_norm": "layers/clip_encoder_layer{_l}/layer_norm_2",
    "block_{l}/mlp/dense_0": "layers/clip_encoder_layer{_l}/dense_1",
    "block_{l}/mlp/dense_1": "layers/clip_encoder_layer{_l}/dense_2",
    "encoder_norm": "layers/layer_normalization_1",
}

_clip = tower(
    "clip",
    "CLIP",
    (JsonConstant("intermediate_output_index", None),),
    _NAMES,
    "clip_vision_embedding",
    "vars/1",  # zeros in a new encoder of keras-hub, so that every token reads the first row
    "quick_gelu",
    1e-5,
    {"pooling": "token", "position_before_class": False, "pre_norm": True, "patch_bias": False},
    {"num_classes": 0, "pooling": "token", "pre_norm": True, "patch_bias": False},
)

_clip_backbone = inside(
    _clip,
    "clip_backbone",
    ("CLIPBackbone", "CLIPVisionEncoder"),
    "layers/clip_vision_encoder/",
    projection="layers/dense/vars/0",
)

FAMILIES = (_clip, _clip_backbone)
