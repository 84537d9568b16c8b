"""The models that a dialect can hold: the fields that differ from the paper's, and its refusals."""

from keras_vit.checkpoints.dialects.base import find_met

_TOWER = {"num_classes": 0, "resnet": None}
_CLIP = {**_TOWER, "pooling": "token", "pre_norm": True, "patch_bias": False}
_DINOV2 = {
    "pooling": "token_and_mean",
    "num_classes": 3,
    "layer_scale": True,
    "mask_token": True,
    "hidden_size": 16,
    "num_heads": 2,
    "mlp_dim": 64,
}

_DINOV3 = {
    **_TOWER,
    "pooling": "token",
    "position": "none",
    "rope": {"form": "dinov3", "theta": 100.0},
    "num_registers": 2,
    "layer_scale": True,
    "mask_token": True,
    "qkv_bias": (True, False, True),
}
_SQUARE = {"patch_size": (2, 2), "image_size": (48, 48)}
_PACKED = {
    **_SQUARE,
    "resnet": None,
    "rope": None,
    "position": "learned",
    "relative_position_bias": None,
    "class_token": False,
    "native_aspect": True,
}

HOMES = {
    "timm/eva": {
        "resnet": None,
        "rope": {"form": "axial", "reference_grid": (16, 16)},
        "qkv_bias": (True, False, True),
        "mlp": "gated",
        "num_registers": 1,
    },
    "transformers/dinov2": _DINOV2,
    "transformers/dinov2_with_registers": {
        **_DINOV2,
        "num_registers": 2,
        "position_before_registers": True,
    },
    "transformers/dinov3_vit": _DINOV3,
    "transformers/deit": {"pooling": "token", "distillation_token": True},
    "transformers/vit_mae": {**_TOWER, "pooling": "token"},
    **{
        f"transformers/{family}": {
            **_SQUARE,
            "resnet": None,
            "pooling": "token",
            "class_token": True,
            "num_classes": 3,
            "position": "none",
            "relative_position_bias": "block",
            "layer_scale": True,
            "qkv_bias": (True, False, True),
        }
        for family in ("beit", "data2vec-vision")
    },
    "transformers/ijepa": {"pooling": "gap", "class_token": False},
    "transformers/clip_vision_model": _CLIP,
    "transformers/clip_vision_model_with_projection": {**_CLIP, "projection_dim": 5},
    "transformers/clip_classifier": {
        **_CLIP,
        "num_classes": 3,
        "pooling": "gap",
        "class_token": True,
        "final_norm": False,
    },
    "transformers/siglip_vision_model": {**_TOWER, "pooling": "map", "class_token": False},
    "transformers/siglip_classifier": {
        "pooling": "gap",
        "class_token": False,
        "num_classes": 3,
    },
    "transformers/siglip2_vision_model": {**_TOWER, **_PACKED, "pooling": "map"},
    "transformers/siglip2_classifier": {**_PACKED, "pooling": "gap", "num_classes": 3},
    "timm/naflex": {
        **{key: value for key, value in _PACKED.items() if key != "class_token"},
        "pooling": "map",
        "num_registers": 1,
        "position_before_class": True,
    },
    **{
        f"transformers/{family}_vision_model": _CLIP
        for family in ("metaclip_2", "chinese_clip", "altclip", "git", "owlvit", "owlv2")
    },
    **{
        f"transformers/{family}_vision_model": {**_TOWER, "pooling": "token"}
        for family in ("blip", "blip_2", "instructblip")
    },
    **{
        f"transformers/{family}_vision": {**_TOWER, "pooling": "gap", "class_token": False}
        for family in ("idefics3", "smolvlm")
    },
    "transformers/internvl_vision": {
        **_TOWER,
        "pooling": "token",
        "layer_scale": True,
        "final_norm": False,
    },
    "torchvision": {**_SQUARE, "pooling": "token", "num_classes": 3},
    "keras_hub/deit": {"pooling": "token", "class_token": True, "distillation_token": True},
    "keras_hub/dinov2": {
        **_DINOV2,
        **_SQUARE,
        **_TOWER,
        "pooling": "token",
        "num_registers": 2,
        "position_before_registers": True,
    },
    "keras_hub/dinov3": {**_DINOV3, **_SQUARE},
    "keras_hub/clip_vision": {**_CLIP, **_SQUARE},
    "keras_hub/siglip_vision": {
        **_TOWER,
        **_SQUARE,
        "pooling": "map",
        "class_token": False,
    },
}
"""Fields that the tests of the laws give a model before they write it in a dialect."""


def beyond_library(dialect, config) -> list[str]:
    """What the dialect or its library cannot express of a model, in words."""
    return find_met(dialect.refusals, config) + find_met(dialect.limits, config)
