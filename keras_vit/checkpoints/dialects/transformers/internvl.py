"""transformers' tower of InternVL (arXiv 2504.10479)."""

from keras_vit.checkpoints.dialects.json_fields import JsonConstant, JsonField
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import vit
from keras_vit.checkpoints.dialects.transformers.towers import SAMPLE, tower_or_whole

_OWN: Section = {
    "block_{l}/attention/{qkv}": "encoder.layer.{l}.attention.{q}_proj",
    "block_{l}/attention/out": "encoder.layer.{l}.attention.projection_layer",
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.lambda_1",
    "block_{l}/mlp/dense_0": "encoder.layer.{l}.mlp.fc1",
    "block_{l}/mlp/dense_1": "encoder.layer.{l}.mlp.fc2",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.lambda_2",
    "class_token/token": "embeddings.cls_token",
}
_WORDS = TORCH.names(vit.NAMES, _OWN)

FAMILIES = (
    tower_or_whole(
        "internvl",
        "internvl_vision",
        "InternVLVisionModel",
        ("", "model.vision_tower.", "vision_tower."),
        {path: n for path, n in _WORDS.items() if not path.startswith("encoder_norm/")},
        (1024, 4096, 24, 16, 448, 14),
        "gelu",
        1e-6,
        {"layer_scale": True, "final_norm": False},
        rows=(
            JsonField("attention_bias", "qkv_bias", default=False),
            JsonField("layer_scale_init_value", "layer_scale_init"),
            JsonConstant("use_qk_norm", False),
            JsonConstant("use_mean_pooling", True),
            JsonConstant("norm_type", "layer_norm"),
            JsonConstant("use_absolute_position_embeddings", True),
        ),
        sample={**SAMPLE, "pooling": "token", "layer_scale": True, "final_norm": False},
    ),
)
