"""keras-hub's `ViTBackbone` and `ViTImageClassifier`, such as `vit_base_patch16_224_imagenet`.

With `intermediate_dim` the first Dense layer of the task is `pre_logits` and the second
the head; without `intermediate_dim` the first is the head.

`DeiTBackbone` and `DeiTImageClassifier`: the distillation token takes part in the attention and has
no head. A classifier with `pooling="gap"` averages it and the class token too.
"""

from keras_vit.checkpoints.dialects.json_fields import REQUIRED, Json, JsonField, JsonFields
from keras_vit.checkpoints.dialects.keras_hub.common import classifier_family, size_rows
from keras_vit.checkpoints.dialects.names import Section

_NAMES: Section = {
    "patch_embedding": "layers/vi_t_patching_and_embedding/patch_embedding",
    "class_token/token": "layers/vi_t_patching_and_embedding/vars/0",
    "position_embedding/embedding": "layers/vi_t_patching_and_embedding/position_embedding/vars/0 : n m",
    "block_{l}/attention_norm": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/layer_norm_1",
    "block_{l}/attention/{qkv}": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mha/{qkv}_dense",
    "block_{l}/attention/out": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mha/output_dense",
    "block_{l}/mlp_norm": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/layer_norm_2",
    "block_{l}/mlp/dense_0": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mlp/dense_1",
    "block_{l}/mlp/dense_1": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mlp/dense_2",
    "encoder_norm": "layers/vi_t_encoder/layer_norm",
    "pre_logits": "task/layers/dense",
    "head": [
        {"name": "task/layers/dense_1", "when": "representation_size"},
        {"name": "task/layers/dense", "when": "representation_size!"},
    ],
}


def _class_token(content: Json) -> dict[str, object]:
    with_class = content.get("use_class_token", True)
    return {"pool.kind": "token" if with_class else "gap", "tokens.class_tokens": int(with_class)}


_vit = classifier_family(
    "keras_hub",
    "ViTBackbone",
    (
        *size_rows("mlp_dim"),
        JsonField("use_mlp_bias", "block.mlp_bias", default=True),
        JsonFields(("use_class_token",), ("pool.kind", "tokens.class_tokens"), _class_token),
        JsonField("use_patch_bias", "patch_bias", default=True),
    ),
    _NAMES,
    fields={},
    task=(JsonField("intermediate_dim", "representation_size", default=REQUIRED),),
)

_NAMES_OF_DEIT: Section = {
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

_deit = classifier_family(
    "keras_hub/deit",
    "DeiTBackbone",
    size_rows(),
    _NAMES_OF_DEIT,
    fields={"tokens.class_tokens": 1, "tokens.distillation": True},
)

FAMILIES = (_vit, _deit)
