"""transformers' `Aimv2VisionModel` (AIMv2, arXiv 2411.14402), such as `apple/aimv2-large-patch14-224`.

The class's attention pooling has neither a query projection nor an MLP. It is read as keras_vit's
pooling, with an identity and zeros for these weights; models with such a pooling are not written.
"""

import numpy as np

from keras_vit.checkpoints.containers import Reader, computed
from keras_vit.checkpoints.families.family import Class, Family, Fold, Output
from keras_vit.checkpoints.families.keys import Json, alike, note, only
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import library

_NAMES: Section = {
    "patch_embedding": "embeddings.patch_embed",
    "patch_norm": "embeddings.rms_norm",
    "position_embedding/embedding": "embeddings.position_embedding.weight : n m",
    "block_{l}/attention_norm": "encoder.layers.{l}.rms_norm1",
    "block_{l}/attention/{qkv}": "encoder.layers.{l}.attention.{q}_proj",
    "block_{l}/attention/out": "encoder.layers.{l}.attention.out_proj",
    "block_{l}/mlp_norm": "encoder.layers.{l}.rms_norm2",
    "block_{l}/mlp/{gate}": "encoder.layers.{l}.ffn.{up}_proj",
    "block_{l}/mlp/dense_1": "encoder.layers.{l}.ffn.down_proj",
    "encoder_norm": "rms_norm",
    "pool/probe": "head.cls_token",
    "pool/attention/{qkv}": "head.{q}_proj",
    "pool/attention/out": "head.output_proj",
    "pool/norm": "head.norm",
    "pool/mlp/dense_0": {"name": "head.mlp.fc1", "implies": {"pool.mlp_dim": 1}},
    "pool/mlp/dense_1": "head.mlp.fc2",
}


def _read(reader: Reader, keys: Json) -> Reader:
    """Returns the arrays, with additional arrays for keras_vit's pooling."""
    shape = reader.shapes.get("head.output_proj.weight", ())
    if len(shape) != 2:
        return reader
    width, dtype = shape[0], reader.dtypes["head.output_proj.weight"]
    constants = {
        "q_proj.weight": np.eye(width),
        **{f"{name}_proj.bias": np.zeros(width) for name in "qkv"},
        **{"norm.weight": np.ones(width), "norm.bias": np.zeros(width)},
        **{"mlp.fc1.weight": np.zeros((1, width)), "mlp.fc1.bias": np.zeros(1)},
        **{"mlp.fc2.weight": np.zeros((width, 1)), "mlp.fc2.bias": np.zeros(width)},
    }
    own = {f"head.{name}": array.astype(dtype) for name, array in constants.items()}
    return computed(reader, {k: array for k, array in own.items() if k not in reader.shapes})


AIMV2 = Family(
    "transformers/aimv2_vision_model",
    library.TRANSFORMERS,
    names=_NAMES,
    keys={
        **library.KEYS,
        "layer_norm_eps": None,
        "rms_norm_eps": "block.epsilon",
        "attention_dropout": "attention_dropout_rate",
        "is_native": only(False),
        "use_head": note(False),
    },
    shapes={
        **library.SHAPES,
        "qkv_bias": alike("block.qkv_bias", "block.projection_bias"),
        "mlp_bias": "block.mlp_bias",
    },
    classes={
        "Aimv2VisionModel": Class("aimv2_vision_model", head=False, output=Output(first_patch=0))
    },
    fixed={"position": "learned", "block.norm": "rms", "block.input_norm": "patches"},
    limits={
        "attention pooling with a query projection and an MLP": "pool.kind=map",
        **library.SQUARE_ALONE,
    },
    fold=Fold(_read),
)
