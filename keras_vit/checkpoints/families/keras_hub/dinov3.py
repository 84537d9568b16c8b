"""keras-hub's `DINOV3Backbone`, such as `dinov3_vit_base_lvd1689m`."""

from keras_vit.checkpoints.families.codecs import biases, dinov3_rope
from keras_vit.checkpoints.families.family import Class, Family, Open
from keras_vit.checkpoints.families.keras_hub import dinov2, library

_BLOCK = "layers/dinov3_encoder/layers/dinov3_layer{_l}"

FAMILIES = (
    Family(
        "keras_hub/dinov3",
        dinov2.DINO,
        names={
            **dinov2.names("dinov3", "attention", "mlp/up_proj", "mlp/down_proj"),
            "mask_token/token": "layers/dinov3_embedding/mask_token",
            "block_{l}/attention/{qkv}": f"{_BLOCK}/attention/{{qkv}}_dense : (h d)",
            "block_{l}/attention/out/kernel": f"{_BLOCK}/attention/output_dense/vars/0 : (h d) m",
            "block_{l}/mlp/{gate}": f"{_BLOCK}/mlp/{{up}}_proj",
        },
        keys={
            **dinov2.KEYS,
            "hidden_activation": ("block.activation", library.ACTIVATIONS),
            "layer_norm_eps": "block.epsilon",
            "rope_theta": dinov3_rope,
            "use_gated_mlp": "block.gated",  # one name serves a plain MLP and the gate's values
        },
        shapes={
            **dinov2.SHAPES,
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
        fold=library.plain_tokens("layers/dinov3_embedding"),
    ),
)
