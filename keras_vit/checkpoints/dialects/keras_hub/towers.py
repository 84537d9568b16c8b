"""keras-hub's `CLIPVisionEncoder` and `SigLIPVisionEncoder`, alone or inside of their backbone."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, StoredAs
from keras_vit.checkpoints.dialects.json_fields import JsonField, Row, constant, one_of
from keras_vit.checkpoints.dialects.keras_hub.common import backbone_family, size_rows
from keras_vit.checkpoints.dialects.names import Section

_OF_CLIP: Section = {
    "patch_embedding": "layers/clip_vision_embedding/patch_embedding",
    "class_token/token": "layers/clip_vision_embedding/vars/0 : m",
    "position_embedding/embedding": "layers/clip_vision_embedding/position_embedding/vars/0 : n m",
    "pre_norm": "layers/layer_normalization",
    "block_{l}/attention_norm": "layers/clip_encoder_layer{_l}/layer_norm_1",
    "block_{l}/attention/{qkv}": "layers/clip_encoder_layer{_l}/attention/{qkv}_dense",
    "block_{l}/attention/out": "layers/clip_encoder_layer{_l}/attention/output_dense",
    "block_{l}/mlp_norm": "layers/clip_encoder_layer{_l}/layer_norm_2",
    "block_{l}/mlp/dense_0": "layers/clip_encoder_layer{_l}/dense_1",
    "block_{l}/mlp/dense_1": "layers/clip_encoder_layer{_l}/dense_2",
    "encoder_norm": "layers/layer_normalization_1",
}
_OF_SIGLIP: Section = {
    "patch_embedding": "layers/sig_lip_vision_embedding/patch_embedding",
    "position_embedding/embedding": "layers/sig_lip_vision_embedding/position_embedding/vars/0 : n m",
    "block_{l}/attention_norm": "layers/sig_lip_encoder_layer{_l}/layer_norm1",
    "block_{l}/attention/{qkv}": "layers/sig_lip_encoder_layer{_l}/self_attn/{qkv}_dense",
    "block_{l}/attention/out": "layers/sig_lip_encoder_layer{_l}/self_attn/output_dense",
    "block_{l}/mlp_norm": "layers/sig_lip_encoder_layer{_l}/layer_norm2",
    "block_{l}/mlp/dense_0": "layers/sig_lip_encoder_layer{_l}/mlp/fc1",
    "block_{l}/mlp/dense_1": "layers/sig_lip_encoder_layer{_l}/mlp/fc2",
    "encoder_norm": "layers/layer_normalization",
    "pool/probe": "layers/sig_lip_multi_head_attention_pooling/vars/0",
    "pool/attention/{qkv}": "layers/sig_lip_multi_head_attention_pooling/attention/{qkv}_dense",
    "pool/attention/out": "layers/sig_lip_multi_head_attention_pooling/attention/output_dense",
    "pool/norm": "layers/sig_lip_multi_head_attention_pooling/layer_norm",
    "pool/mlp/dense_0": "layers/sig_lip_multi_head_attention_pooling/mlp/fc1",
    "pool/mlp/dense_1": "layers/sig_lip_multi_head_attention_pooling/mlp/fc2",
}
_GELUS = {"gelu": "gelu", "gelu_approximate": "gelu_tanh", "quick_gelu": "quick_gelu"}


def _towers(
    class_name: str,
    row: Row,
    names: Section,
    embedding: str,
    rows: str,
    gelu: str,
    epsilon: float,
    fields: Mapping[str, Any],
    projection: str = "",
) -> tuple[Dialect, Dialect]:
    """Returns the dialects of a vision encoder alone, and inside of a backbone with two towers.

    Args:
        class_name: first part of the name of its class, such as `"CLIP"`.
        row: row of the encoder beside those of both families.
        names: names of the weights.
        embedding: name of the layer of the embeddings.
        rows: name in that layer of the array of integers by which the positions are read in order.
        gelu, epsilon: the library's word for the GELU and its LayerNorm's epsilon.
        fields: facts about every file.
        projection: name of the kernel behind the encoder, if the backbone has one.
    """
    name = f"keras_hub/{class_name.lower()}"
    table, numbers = f"layers/{embedding}/position_embedding/vars/0", f"layers/{embedding}/{rows}"
    activation = JsonField(
        "intermediate_activation", "block.activation", one_of(_GELUS), default=gelu
    )
    alone = backbone_family(
        f"{name}_vision",
        f"{class_name}VisionEncoder",
        (*size_rows(), activation, row),
        names,
        fields={"num_classes": 0, "position": "learned", "block.qkv_bias": True, **fields},
        needs_json="the form of the GELU",
        arithmetic={"block.activation": _GELUS[gelu], "block.epsilon": epsilon},
        row_numbers={table: numbers},
    )
    alone = dataclasses.replace(
        alone, ignored={**alone.ignored, numbers: "the numbers of the positions"}
    )
    prefix = f"layers/{embedding.removesuffix('embedding')}encoder/"
    backbone = f"{class_name}Backbone"
    kernel = {"projection/kernel": (StoredAs(projection, outside=True),)} if projection else {}
    inside = dataclasses.replace(
        alone,
        name=f"{name}_backbone",
        identity=Identity("class_name", (backbone,)),
        json=(dataclasses.replace(alone.json[0], at=("config", "vision_encoder", "config")),),
        words={**alone.words, **kernel},
        prefixes=(prefix,),
        ignored={
            rf"(?!{prefix}|{projection or prefix}).*": "a part beside the vision encoder",
            prefix + numbers: "the numbers of the positions",
        },
        row_numbers={prefix + a: prefix + b for a, b in alone.row_numbers.items()},
    )
    return alone, inside


FAMILIES = (
    *_towers(
        "CLIP",
        constant("intermediate_output_index", None),
        _OF_CLIP,
        "clip_vision_embedding",
        "vars/1",  # zeros in a new encoder of keras-hub, so that every token reads the first row
        "quick_gelu",
        1e-5,
        {"pool.kind": "token", "block.input_norm": "tokens", "patch_bias": False},
        projection="layers/dense/vars/0",
    ),
    *_towers(
        "SigLIP",
        # The last norm always uses 1e-6, so another value would give the model two epsilons.
        constant("layer_norm_epsilon", 1e-6),
        _OF_SIGLIP,
        "sig_lip_vision_embedding",
        "vars/0",
        "gelu_approximate",
        1e-6,
        {"pool.kind": "map", "tokens.class_tokens": 0},
    ),
)
