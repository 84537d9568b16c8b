"""keras-hub's `DeiTBackbone` and `DeiTImageClassifier`.

The distillation token takes part in the attention and has no head. A classifier with
`pooling="gap"` averages it and the class token too.
"""

from keras_vit.checkpoints.dialects.keras_hub.common import classifier_family, size_rows
from keras_vit.checkpoints.dialects.names import Section

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

_deit = classifier_family(
    "keras_hub/deit",
    "DeiTBackbone",
    size_rows(),
    _NAMES,
    fields={"class_token": True, "distillation_token": True},
)

FAMILIES = (_deit,)
