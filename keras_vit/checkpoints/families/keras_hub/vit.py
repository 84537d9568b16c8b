"""keras-hub's `ViTBackbone` and `ViTImageClassifier`, such as `vit_base_patch16_224_imagenet`.

With `intermediate_dim` the first Dense layer of the task is `pre_logits` and the second is
the head; without `intermediate_dim` the first is the head.

`DeiTBackbone` and `DeiTImageClassifier`: the distillation token is part of the sequence, but has
no head. A classifier with `pooling="gap"` also averages it and the class token.
"""

from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keras_hub.library import KERAS_HUB, KEYS, SHAPES, names
from keras_vit.checkpoints.families.keys import Codec, Json, alike


def _read_pooling(keys: Json) -> dict[str, str]:
    has_class_token = keys.get("use_class_token", True)
    pooling = keys.get("task.pooling", "token" if has_class_token else "gap")
    if pooling not in ("token", "gap"):
        raise ValueError("expected 'token' or 'gap'")
    return {"pool.kind": "mean" if pooling == "gap" and has_class_token else pooling}


_VIT, _DEIT = "layers/vi_t_patching_and_embedding", "layers/dei_t_embeddings"
_OF_VIT = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}"
_OF_DEIT = "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}"

FAMILIES = (
    Family(
        "keras_hub",
        KERAS_HUB,
        names={"head": "task/layers/dense"},
        keys={
            **KEYS,
            "task.num_classes": "num_classes",
            "task.pooling use_class_token": Codec("pool.kind", _read_pooling),
        },
        shapes={
            **SHAPES,
            "use_mha_bias": alike("block.qkv_bias", "block.projection_bias"),
            # Only ViTs, whose backbones have `mlp_dim` instead of `intermediate_dim`.
            "mlp_dim": "mlp_dim",
            "use_mlp_bias": "block.mlp_bias",
            "use_class_token": ("tokens.class_tokens", {True: 1, False: 0}),
            "use_patch_bias": "patch_bias",
        },
        classes={
            "ViTBackbone": Class(
                "ViTBackbone",
                names={
                    **names(_VIT, _OF_VIT, "layer_norm_ mha mlp/dense_1 mlp/dense_2"),
                    "encoder_norm": "layers/vi_t_encoder/layer_norm",
                    "pre_logits": "task/layers/dense",
                    "head": [
                        {"name": "task/layers/dense_1", "when": "representation_size"},
                        {"name": "task/layers/dense", "when": "representation_size!"},
                    ],
                },
                keys={"task.intermediate_dim": "representation_size"},
            ),
            "DeiTBackbone": Class(
                "DeiTBackbone",
                "deit",
                names={
                    **names(_DEIT, _OF_DEIT, "layer_norm_ mha mlp/dense output_layer/dense"),
                    "distillation_token/token": f"{_DEIT}/vars/1",
                    "position_embedding/embedding": f"{_DEIT}/vars/2",
                    "encoder_norm": "layers/dei_t_encoder/layer_norm",
                },
                fixed={
                    "tokens.class_tokens": 1,
                    "tokens.distillation": True,
                    "patch_bias": True,
                    "block.mlp_bias": True,
                },
            ),
        },
        fixed={"pool.kind": "token", "position": "learned"},
    ),
)
