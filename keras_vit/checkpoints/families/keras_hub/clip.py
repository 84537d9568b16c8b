"""keras-hub's `CLIPVisionEncoder`, alone or inside of its backbone with two towers."""

from keras_vit.checkpoints.families.family import Class, Family, Open
from keras_vit.checkpoints.families.keras_hub import library
from keras_vit.checkpoints.families.keys import only

_BLOCK, _EMBEDDING = "layers/clip_encoder_layer{_l}", "layers/clip_vision_embedding"
_POSITIONS = f"{_EMBEDDING}/position_embedding/vars/0"
# Zeros in a new encoder of keras-hub, so that every token reads the first row.
_NUMBERS = f"{_EMBEDDING}/vars/1"

FAMILIES = (
    Family(
        "keras_hub/clip",
        library.KERAS_HUB,
        names={
            "patch_embedding": f"{_EMBEDDING}/patch_embedding",
            "class_token/token": f"{_EMBEDDING}/vars/0 : m",
            "position_embedding/embedding": f"{_POSITIONS} : n m",
            "pre_norm": "layers/layer_normalization",
            **library.block(_BLOCK, "layer_norm_", "attention", "dense_1", "dense_2"),
            "encoder_norm": "layers/layer_normalization_1",
        },
        keys={**library.KEYS, "intermediate_output_index": only(None)},
        shapes=library.SHAPES,
        classes={
            "CLIPVisionEncoder": Class("CLIPVisionEncoder"),
            "CLIPBackbone": Class(
                "CLIPBackbone",
                inside="vision_encoder",
                names={"projection/kernel": {"name": "layers/dense/vars/0", "outside": True}},
            ),
        },
        fixed={
            **library.TOWER,
            "pool.kind": "token",
            "patch_bias": False,
            "block.input_norm": "tokens",
            "block.activation": "quick_gelu",
            "block.epsilon": 1e-5,
        },
        ignored={_NUMBERS: "the numbers of the positions"},
        open={"block.activation": Open("'quick_gelu' in OpenAI's weights")},
        fold=library.rows_in_order(_POSITIONS, _NUMBERS),
    ),
)
