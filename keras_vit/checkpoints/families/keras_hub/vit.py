"""keras-hub's `ViTBackbone` and `ViTImageClassifier`, such as `vit_base_patch16_224_imagenet`.

With `intermediate_dim` the first Dense layer of the task is `pre_logits` and the second
the head; without `intermediate_dim` the first is the head.

`DeiTBackbone` and `DeiTImageClassifier`: the distillation token takes part in the attention and has
no head. A classifier with `pooling="gap"` averages it and the class token too.
"""

from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keras_hub import library
from keras_vit.checkpoints.families.keys import Codec, Json, Keys, alike


def _read_pooling(keys: Json) -> dict[str, str]:
    has_class_token = keys.get("use_class_token", True)
    pooling = keys.get("task.pooling", "token" if has_class_token else "gap")
    if pooling not in ("token", "gap"):
        raise ValueError("expected 'token' or 'gap'")
    return {"pool.kind": "mean" if pooling == "gap" and has_class_token else pooling}


_KEYS: Keys = {
    **library.KEYS,
    "task.num_classes": "num_classes",
    "task.pooling use_class_token": Codec("pool.kind", _read_pooling),
}
_SHAPES: Keys = {
    **library.SHAPES,
    "use_mha_bias": alike("block.qkv_bias", "block.projection_bias"),
}
_OF_VIT = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}"
_OF_DEIT = "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}"
_LEARNED = {"pool.kind": "token", "position": "learned"}

FAMILIES = (
    Family(
        "keras_hub",
        library.KERAS_HUB,
        names={
            "patch_embedding": "layers/vi_t_patching_and_embedding/patch_embedding",
            "class_token/token": "layers/vi_t_patching_and_embedding/vars/0",
            "position_embedding/embedding": "layers/vi_t_patching_and_embedding/position_embedding/vars/0 : n m",
            **library.block(_OF_VIT, "layer_norm_", "mha", "mlp/dense_1", "mlp/dense_2"),
            "encoder_norm": "layers/vi_t_encoder/layer_norm",
            "pre_logits": "task/layers/dense",
            "head": [
                {"name": "task/layers/dense_1", "when": "representation_size"},
                {"name": "task/layers/dense", "when": "representation_size!"},
            ],
        },
        keys={**_KEYS, "task.intermediate_dim": "representation_size"},
        shapes={
            **_SHAPES,
            "mlp_dim": "mlp_dim",
            "use_mlp_bias": "block.mlp_bias",
            "use_class_token": ("tokens.class_tokens", {True: 1, False: 0}),
            "use_patch_bias": "patch_bias",
        },
        classes={"ViTBackbone": Class("ViTBackbone")},
        fixed=_LEARNED,
    ),
    Family(
        "keras_hub/deit",
        library.KERAS_HUB,
        names={
            "patch_embedding": "layers/dei_t_embeddings/patch_embedding",
            "class_token/token": "layers/dei_t_embeddings/vars/0",
            "distillation_token/token": "layers/dei_t_embeddings/vars/1",
            "position_embedding/embedding": "layers/dei_t_embeddings/vars/2",
            **library.block(_OF_DEIT, "layer_norm_", "mha", "mlp/dense", "output_layer/dense"),
            "encoder_norm": "layers/dei_t_encoder/layer_norm",
            "head": "task/layers/dense",
        },
        keys=_KEYS,
        shapes=_SHAPES,
        classes={"DeiTBackbone": Class("DeiTBackbone")},
        fixed={**_LEARNED, "tokens.class_tokens": 1, "tokens.distillation": True},
    ),
)
