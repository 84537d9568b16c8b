"""A model for every dialect whose files hold another one than the paper's."""

_TOWER = {"num_classes": 0, "resnet": None}
_CLIP = {**_TOWER, "classifier": "token", "pre_norm": True, "patch_bias": False}
_DINOV2 = {
    "classifier": "token_and_mean",
    "num_classes": 3,
    "layer_scale": True,
    "mask_token": True,
    "hidden_size": 16,
    "num_heads": 2,
    "mlp_dim": 64,
}

HOMES = {
    "transformers/dinov2": _DINOV2,
    "transformers/dinov2_with_registers": {
        **_DINOV2,
        "num_registers": 2,
        "position_before_registers": True,
    },
    "transformers/dinov3_vit": {
        **_TOWER,
        "classifier": "token",
        "position": "none",
        "rope": {"form": "dinov3", "theta": 100.0},
        "num_registers": 2,
        "layer_scale": True,
        "mask_token": True,
        "qkv_bias": (True, False, True),
    },
    "transformers/deit": {"classifier": "token", "distillation_token": True},
    "transformers/vit_mae": {**_TOWER, "classifier": "token"},
    "transformers/ijepa": {"classifier": "gap", "class_token": False},
    "transformers/clip_vision_model": _CLIP,
    "transformers/clip_vision_model_with_projection": {**_CLIP, "projection_dim": 5},
    "transformers/clip_classifier": {
        **_CLIP,
        "num_classes": 3,
        "classifier": "gap",
        "class_token": True,
        "final_norm": False,
    },
    "transformers/siglip_vision_model": {**_TOWER, "classifier": "map", "class_token": False},
    "transformers/siglip_classifier": {
        "classifier": "gap",
        "class_token": False,
        "num_classes": 3,
    },
}
"""Fields that the laws give a model before a dialect is asked to hold it."""
