"""keras-hub's `SigLIPVisionEncoder`, alone or inside of its backbone with two towers."""

from keras_vit.checkpoints.families.family import Class, Family, Open
from keras_vit.checkpoints.families.keras_hub import library
from keras_vit.checkpoints.families.keys import only

_BLOCK, _EMBEDDING = "layers/sig_lip_encoder_layer{_l}", "layers/sig_lip_vision_embedding"
_POOL = "layers/sig_lip_multi_head_attention_pooling"
_POSITIONS, _NUMBERS = f"{_EMBEDDING}/position_embedding/vars/0", f"{_EMBEDDING}/vars/0"

FAMILIES = (
    Family(
        "keras_hub/siglip",
        library.KERAS_HUB,
        names={
            "patch_embedding": f"{_EMBEDDING}/patch_embedding",
            "position_embedding/embedding": f"{_POSITIONS} : n m",
            **library.block(_BLOCK, "layer_norm", "self_attn", "mlp/fc1", "mlp/fc2"),
            "encoder_norm": "layers/layer_normalization",
            "pool/probe": f"{_POOL}/vars/0",
            "pool/attention/{qkv}": f"{_POOL}/attention/{{qkv}}_dense",
            "pool/attention/out": f"{_POOL}/attention/output_dense",
            "pool/norm": f"{_POOL}/layer_norm",
            "pool/mlp/dense_0": f"{_POOL}/mlp/fc1",
            "pool/mlp/dense_1": f"{_POOL}/mlp/fc2",
        },
        # The last norm always uses 1e-6, so another value would give the model two epsilons.
        keys={**library.KEYS, "layer_norm_epsilon": only(1e-6)},
        shapes=library.SHAPES,
        classes={
            "SigLIPVisionEncoder": Class("SigLIPVisionEncoder"),
            "SigLIPBackbone": Class("SigLIPBackbone", inside="vision_encoder"),
        },
        fixed={**library.TOWER, "pool.kind": "map", "block.activation": "gelu_tanh"},
        ignored={_NUMBERS: "the numbers of the positions"},
        open={"block.activation": Open("'gelu_tanh' in the published weights")},
        fold=library.rows_in_order(_POSITIONS, _NUMBERS),
    ),
)
