"""transformers' `DINOv3ViTModel`, such as `facebook/dinov3-vitb16-pretrain-lvd1689m`."""

from keras_vit.checkpoints.families.codecs import biases, dinov3_rope
from keras_vit.checkpoints.families.family import Class, Family, Open
from keras_vit.checkpoints.families.transformers import library

DINOV3 = Family(
    "transformers/dinov3_vit",
    library.ANY_SIZE,
    names={
        "patch_embedding": "embeddings.patch_embeddings",
        "mask_token/token": "embeddings.mask_token",
        "class_token/token": "embeddings.cls_token",
        "register_tokens/tokens": "embeddings.register_tokens",
        "block_{l}/attention_norm": "layer.{l}.norm1",
        "block_{l}/attention/{qkv}": "layer.{l}.attention.{q}_proj",
        "block_{l}/attention/out": "layer.{l}.attention.o_proj",
        "block_{l}/attention_scale/gamma": "layer.{l}.layer_scale1.lambda1",
        "block_{l}/mlp_norm": "layer.{l}.norm2",
        "block_{l}/mlp/dense_0": "layer.{l}.mlp.up_proj",
        "block_{l}/mlp/{gate}": "layer.{l}.mlp.{up}_proj",
        "block_{l}/mlp/dense_1": "layer.{l}.mlp.down_proj",
        "block_{l}/mlp_scale/gamma": "layer.{l}.layer_scale2.lambda1",
        "encoder_norm": "norm",
    },
    keys={
        **library.KEYS,
        "attention_dropout": "attention_dropout_rate",
        "drop_path_rate": "stochastic_depth_rate",
        "layerscale_value": "block.layer_scale",
        "rope_theta": dinov3_rope,
        "use_gated_mlp": "block.gated",  # plain MLP and gated values have the same name
    },
    shapes={
        **library.SHAPES,
        "query_bias key_bias value_bias": biases,
        "proj_bias": "block.projection_bias",
        "mlp_bias": "block.mlp_bias",
        "num_register_tokens": "tokens.registers",
    },
    classes={"DINOv3ViTModel": Class("dinov3_vit", head=False)},
    fixed={
        "pool.kind": "token",
        "position": "none",
        "position_resize": "bilinear_align_corners",
        "tokens.mask": True,
    },
    open={"rope": Open("{'form': 'dinov3', 'theta': 100.0}")},
)
