"""Small models of ten families; together they use every switch of `ViTConfig`."""

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
