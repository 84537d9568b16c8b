"""Small models of ten families, which together use every switch of `ViTConfig`, and others."""

import numpy as np

from tests.plain import HYBRID, normal

_GATED = {"gated": True, "activation": "silu"}
_NO_KEY = (True, False, True)

FAMILIES = {
    "clip": {
        "num_classes": 0,
        "patch_bias": False,
        "block": {"input_norm": "tokens", "activation": "quick_gelu", "epsilon": 1e-5},
        "projection_size": 6,
    },
    "dinov2": {
        "num_layers": 2,
        "tokens": {"registers": 2, "mask": True},
        "position": "learned_except_registers",
        "block": {**_GATED, "layer_scale": 1e-5},
        "pool": {"kind": "token_and_mean", "blocks": 2},
    },
    "dinov3": {
        "tokens": {"registers": 2},
        "position": "none",
        "rope": {"form": "dinov3", "theta": 100.0},
        "block": {**_GATED, "qk_norm": "head", "layer_scale": 1e-5, "qkv_bias": _NO_KEY},
        "pool": {"kind": "gap"},
    },
    "deit": {
        "tokens": {"distillation": True},
        "position": "learned_patches",
        "rope": {"form": "mixed_xy", "theta": 10.0},
        "pool": {"kind": "token_and_distillation"},
    },
    "eva02": {
        "tokens": {"registers": 1},
        "rope": {"form": "axial_xy_from_1", "reference_grid": (5, 4)},
        "block": {"gated": True, "activation": "gelu", "sub_norm": "both"},
        "pool": {"kind": "map_of_patches", "num_heads": 4, "mlp_dim": 12},
    },
    "beit": {
        "position": "none",
        "relative_position_bias": "block",
        "block": {"layer_scale": 1e-5, "qkv_bias": _NO_KEY, "activation": "gelu"},
        "pool": {"kind": "gap", "norm": "after"},
    },
    "data2vec": {
        "position": "none",
        "relative_position_bias": "shared",
        "block": {
            **{"layer_scale": 1e-5, "qkv_bias": _NO_KEY},
            **{"activation": "gelu", "epsilon": 1e-12},
        },
    },
    "radio": {
        "tokens": {"class_tokens": 2, "registers": 3},
        "position": "learned_patches",
        "position_resize": "bilinear_longer_side",
        "patch_bias": False,
        "block": {"activation": "gelu"},
        "pool": {"kind": "tokens", "norm": "none"},
    },
    "pixio": {"tokens": {"class_tokens": 3}, "block": {"activation": "gelu"}},
    "aimv2": {
        "tokens": {"class_tokens": 0, "registers": 1},
        "block": {
            **{"norm": "rms", "input_norm": "patches", "qk_norm": "width", "sub_norm": "mlp"},
            **dict.fromkeys(("qkv_bias", "projection_bias", "mlp_bias"), False),
        },
        "pool": {"kind": "gap", "norm": "none"},
    },
}
"""Fields for `tests.helpers.tiny`, by the family that most of them come from."""

NO_CLASS_TOKEN = {"tokens": {"class_tokens": 0}}
PLAIN = {
    "map": {"pool": {"kind": "map"}, **NO_CLASS_TOKEN, "representation_size": 7},
    "hybrid": HYBRID,
    "oblong": {"image_size": (24, 16), "channels": 1},
    "packed": {"stem": {"kind": "packed"}, "position_grid": (3, 3), "tokens": {"registers": 1}},
}
"""Other parts, likewise."""


def images_for(model):
    """Two images of the model's size, or of 16 by 24 pixels; packed ones of unequal shapes."""
    if model.config.stem.is_packed:
        most, width = model.input_shape[1:]
        patches = normal(2, most, width - 2)
        return model.preprocessor.pack(patches, [(2, most // 2), (1, most - 1)])
    images = normal(2, *(model.config.image_size or (16, 24)), model.config.channels)
    return np.moveaxis(images, -1, 1) if model.data_format == "channels_first" else images
