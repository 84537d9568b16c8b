"""Small models of six families; together they use every switch of `ViTConfig`."""

FAMILIES = {
    "clip": {
        "num_classes": 0,
        "patch_bias": False,
        "pre_norm": True,
        "projection_dim": 6,
        "numerics": {"gelu": "quick", "layer_norm_epsilon": 1e-5},
    },
    "dinov2": {
        "classifier": "token_and_mean",
        "num_registers": 2,
        "position_before_registers": True,
        "mask_token": True,
        "layer_scale": True,
        "mlp": "gated",
    },
    "dinov3": {
        "classifier": "gap",
        "class_token": True,
        "num_registers": 2,
        "position": "none",
        "rope": {"form": "dinov3", "theta": 100.0},
        "layer_scale": True,
        "qkv_bias": (True, False, True),
        "mlp": "gated",
    },
    "deit": {
        "classifier": "token_and_distillation",
        "position_before_class": True,
        "rope": {"form": "mixed", "theta": 10.0, "indexing": "xy"},
    },
    "eva02": {
        "classifier": "map",
        "class_token": True,
        "num_registers": 1,
        "prefix_in_map": False,
        "map_num_heads": 4,
        "map_mlp_dim": 12,
        "rope": {"form": "axial", "offset": 1.0, "reference_grid": (5, 4), "indexing": "xy"},
        "mlp": "gated",
        "sub_norm_attention": True,
        "sub_norm_mlp": True,
        "numerics": {"gate": "gelu", "gelu": "exact"},
    },
    "aimv2": {
        "classifier": "gap",
        "num_registers": 1,
        "patch_norm": True,
        "norm": "rms",
        "final_norm": False,
        "qkv_bias": False,
        "projection_bias": False,
        "mlp_bias": False,
        "sub_norm_mlp": True,
    },
}
"""Fields for `tests.helpers.tiny`, by the family that most of them come from."""
