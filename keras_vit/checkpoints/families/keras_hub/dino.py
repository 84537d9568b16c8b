"""keras-hub's `DINOV2Backbone` and `DINOV3Backbone`, such as `dinov2_base`.

The tokens of the embedding are numbered, and a missing token shifts the numbers of later tokens. A
file of DINOv2 stores positions twice: resized to the image size of the backbone, and
unchanged. keras-hub and keras_vit recompute the resized positions when they load the file.
"""

import dataclasses
from typing import Any

from keras_vit.checkpoints.containers import Reader, renamed
from keras_vit.checkpoints.families.codecs import biases, dinov3_rope, mlp_by_width
from keras_vit.checkpoints.families.family import Class, Family, Fold, Open
from keras_vit.checkpoints.families.keras_hub import library
from keras_vit.checkpoints.families.keys import Codec, Json, Keys
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.protocols import IMAGENET

_OF_IMAGENET = {"name": "keras_hub", "mean": IMAGENET["mean"], "std": IMAGENET["std"]}
_IMAGES = dataclasses.replace(library.KERAS_HUB.images, default=lambda config: _OF_IMAGENET)
_DINO = dataclasses.replace(library.KERAS_HUB, images=_IMAGES)
_KEYS: Keys = {**library.KEYS, "layer_scale_init_value": "block.layer_scale"}
_SHAPES: Keys = {
    **library.SHAPES,
    "num_register_tokens": "tokens.registers",
    "use_mask_token": "tokens.mask",
}


def _names(name: str, words: str) -> Section:
    """Returns the names of DINOv2 and DINOv3, which differ in `words`, see `library.block`."""
    block = f"layers/{name}_encoder/layers/{name}_layer{{_l}}"
    return {
        "patch_embedding": f"layers/{name}_embedding/patch_embeddings/projection",
        "mask_token/token": f"layers/{name}_embedding/mask_token : 1 m",
        "class_token/token": f"layers/{name}_embedding/class_token",
        "register_tokens/tokens": f"layers/{name}_embedding/register_tokens",
        **library.block(block, words),
        "block_{l}/attention_scale": f"{block}/layer_scale1",
        "block_{l}/mlp_scale": f"{block}/layer_scale2",
        "encoder_norm": "layers/layer_normalization",
    }


def _name_tokens(reader: Reader, keys: Json) -> Reader:
    """Returns the arrays with names in place of the numbers of tokens and positions."""
    names = ["class_token", "mask_token", "register_tokens", "resized_positions", "positions"]
    if not keys.get("use_mask_token", True):
        names.remove("mask_token")
    if not keys.get("num_register_tokens", 0):
        names.remove("register_tokens")
    layers = [f"layers/{own}_embedding" for own in ("dinov2", "dinov3")]
    plain = {f"{own}/vars/{k}": f"{own}/{name}" for own in layers for k, name in enumerate(names)}
    return renamed(reader, ((plain.get(name, name), name) for name in reader.shapes))


def _read_grid(keys: Json) -> dict[str, Any]:
    height, width = keys["position_embedding_shape"][:2]
    return {"position_grid": (height // keys["patch_size"], width // keys["patch_size"])}


_MLP = "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp"
_DINOV3 = "layers/dinov3_encoder/layers/dinov3_layer{_l}"
_RESIZE = {True: "bicubic_antialias", False: "bicubic_catmull_rom"}
_FOLD = Fold(_name_tokens)

FAMILIES = (
    Family(
        "keras_hub/dinov2",
        _DINO,
        names={
            **_names("dinov2", "norm attention/attention mlp/fc1 mlp/fc2"),
            "position_embedding/embedding": "layers/dinov2_embedding/positions",
            "block_{l}/mlp/{gate}": f"{_MLP}/weights_in : (gate f)",
            "block_{l}/mlp/dense_1": [f"{_MLP}/fc2", f"{_MLP}/weights_out"],
        },
        keys={
            **_KEYS,
            "position_embedding_shape": Codec("position_grid", _read_grid),
            "antialias_in_interpolation": ("position_resize", _RESIZE),
        },
        shapes={
            **_SHAPES,
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
        ignored={r".*/resized_positions": "resized positions, which the library recomputes"},
        open={"position_resize": Open(f"one of {', '.join(_RESIZE.values())}")},
        fold=_FOLD,
    ),
    Family(
        "keras_hub/dinov3",
        _DINO,
        names={
            **_names("dinov3", "norm attention mlp/up_proj mlp/down_proj"),
            "mask_token/token": "layers/dinov3_embedding/mask_token",
            "block_{l}/attention/{qkv}": f"{_DINOV3}/attention/{{qkv}}_dense : (h d)",
            "block_{l}/attention/out/kernel": f"{_DINOV3}/attention/output_dense/vars/0 : (h d) m",
            "block_{l}/mlp/{gate}": f"{_DINOV3}/mlp/{{up}}_proj",
        },
        keys={
            **_KEYS,
            "hidden_activation": ("block.activation", library.ACTIVATIONS),
            "layer_norm_eps": "block.epsilon",
            "rope_theta": dinov3_rope,
            "use_gated_mlp": "block.gated",  # plain MLP and gated values have the same name
        },
        shapes={
            **_SHAPES,
            "use_query_bias use_key_bias use_value_bias": biases,
            "use_proj_bias": "block.projection_bias",
            "use_mlp_bias": "block.mlp_bias",
        },
        classes={"DINOV3Backbone": Class("DINOV3Backbone", head=False)},
        fixed={
            "pool.kind": "token",
            "position": "none",
            "block.epsilon": 1e-5,
            "rope": {"form": "dinov3", "theta": 100.0},
        },
        open={"rope": Open("{'form': 'dinov3', 'theta': 100.0}")},
        fold=_FOLD,
    ),
)
