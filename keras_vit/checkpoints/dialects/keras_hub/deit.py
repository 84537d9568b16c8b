"""keras-hub's `DeiTBackbone` and `DeiTImageClassifier`.

The distillation token takes part in the attention and has no head. A classifier with
`pooling="gap"` averages it and the class token too.
"""

from typing import Any

from keras_vit.checkpoints.dialects.base import one_of_several
from keras_vit.checkpoints.dialects.json_fields import Json, JsonFields
from keras_vit.checkpoints.dialects.keras_hub.common import (
    classifier_family,
    size_rows,
)
from keras_vit.checkpoints.dialects.names import KERAS, Section

_NAMES: Section = {
    "patch_embedding": "layers/dei_t_embeddings/patch_embedding",
    "class_token/token": "layers/dei_t_embeddings/vars/0",
    "distillation_token/token": "layers/dei_t_embeddings/vars/1",
    "position_embedding/embedding": "layers/dei_t_embeddings/vars/2",
    "block_{l}/attention_norm": "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}/layer_norm_1",
    "block_{l}/attention/{qkv}": "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}/mha/{qkv}_dense",
    "block_{l}/attention/out": "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}/mha/output_dense",
    "block_{l}/mlp_norm": "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}/layer_norm_2",
    "block_{l}/mlp/dense_0": "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}/mlp/dense",
    "block_{l}/mlp/dense_1": "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block{_l}/output_layer/dense",
    "encoder_norm": "layers/dei_t_encoder/layer_norm",
    "head": "task/layers/dense",
}

_POOLINGS = {"token": ("token", False), "gap": ("gap", True)}


def _pooling(content: Json) -> dict[str, Any]:
    if content["pooling"] not in _POOLINGS:
        raise ValueError("expected 'token' or 'gap'")
    kind, class_token_in_mean = _POOLINGS[content["pooling"]]
    return {"pooling": kind, "class_token_in_mean": class_token_in_mean}


_deit = classifier_family(
    "keras_hub/deit",
    "deit",
    "DeiT",
    size_rows(),
    (
        JsonFields(
            ("pooling",),
            ("pooling", "class_token_in_mean"),
            _pooling,
            lambda config: {"pooling": config.pooling},
        ),
    ),
    words=KERAS.names(_NAMES),
    reasons={"": "keras-hub's DeiT has no such part"},
    fields={
        "position": "learned",
        "position_before_class": False,
        "class_token": True,
        "distillation_token": True,
    },
    impossible=one_of_several("pooling", "token", "gap"),
    sample={"pooling": "token", "class_token": True, "distillation_token": True},
    limits={
        "a mean that leaves tokens out": (
            "pooling=gap class_token_in_mean! or pooling=gap has_class_token!"
        )
    },
)

FAMILIES = (_deit,)
