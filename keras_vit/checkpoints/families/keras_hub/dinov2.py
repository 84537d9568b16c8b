"""keras-hub's `DINOV2Backbone`, such as `dinov2_base`.

The tokens of the embedding are numbered, and a token that a model lacks shifts the numbers of
those after it. The file stores positions twice: resized to the images of the backbone, and
unchanged. keras-hub and keras_vit compute the resized positions again when they load the file.
"""

import dataclasses
from typing import Any

from keras_vit.checkpoints.families.codecs import mlp_by_width
from keras_vit.checkpoints.families.family import Class, Family, Open
from keras_vit.checkpoints.families.keras_hub import library
from keras_vit.checkpoints.families.keys import Codec, Json, Keys
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.protocols import IMAGENET

_OF_IMAGENET = {"name": "keras_hub", "mean": IMAGENET["mean"], "std": IMAGENET["std"]}
_IMAGES = dataclasses.replace(library.KERAS_HUB.images, default=lambda config: _OF_IMAGENET)
DINO = dataclasses.replace(library.KERAS_HUB, images=_IMAGES)
"""The library for DINOv2 and DINOv3."""
KEYS: Keys = {**library.KEYS, "layer_scale_init_value": "block.layer_scale"}
SHAPES: Keys = {
    **library.SHAPES,
    "num_register_tokens": "tokens.registers",
    "use_mask_token": "tokens.mask",
}


def names(name: str, attention: str, *mlp: str) -> Section:
    """Returns the names that DINOv2 and DINOv3 share but for these words, as of `library.block`."""
    block = f"layers/{name}_encoder/layers/{name}_layer{{_l}}"
    return {
        "patch_embedding": f"layers/{name}_embedding/patch_embeddings/projection",
        "mask_token/token": f"layers/{name}_embedding/mask_token : 1 m",
        "class_token/token": f"layers/{name}_embedding/class_token",
        "register_tokens/tokens": f"layers/{name}_embedding/register_tokens",
        **library.block(block, "norm", attention, *mlp),
        "block_{l}/attention_scale": f"{block}/layer_scale1",
        "block_{l}/mlp_scale": f"{block}/layer_scale2",
        "encoder_norm": "layers/layer_normalization",
    }


def _read_grid(keys: Json) -> dict[str, Any]:
    height, width = keys["position_embedding_shape"][:2]
    return {"position_grid": (height // keys["patch_size"], width // keys["patch_size"])}


_MLP = "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp"
_RESIZE = {True: "bicubic_antialias", False: "bicubic_catmull_rom"}

FAMILIES = (
    Family(
        "keras_hub/dinov2",
        DINO,
        names={
            **names("dinov2", "attention/attention", "mlp/fc1", "mlp/fc2"),
            "position_embedding/embedding": "layers/dinov2_embedding/positions",
            "block_{l}/mlp/{gate}": f"{_MLP}/weights_in : (gate f)",
            "block_{l}/mlp/dense_1": [f"{_MLP}/fc2", f"{_MLP}/weights_out"],
        },
        keys={
            **KEYS,
            "position_embedding_shape": Codec("position_grid", _read_grid),
            "antialias_in_interpolation": ("position_resize", _RESIZE),
        },
        shapes={
            **SHAPES,
            "intermediate_dim": None,
            "intermediate_dim use_swiglu_ffn": mlp_by_width,
        },
        classes={"DINOV2Backbone": Class("DINOV2Backbone", head=False)},
        fixed={
            "pool.kind": "token",
            "position": "learned_except_registers",
            "position_resize": _RESIZE[False],
            "block.qkv_bias": True,
        },
        ignored={r".*/resized_positions": "positions that the library computes from the others"},
        open={"position_resize": Open(f"one of {', '.join(_RESIZE.values())}")},
        fold=library.plain_tokens("layers/dinov2_embedding"),
    ),
)
