"""transformers' BLIP (arXiv 2201.12086), BLIP-2 (arXiv 2301.12597) and InstructBLIP.

Query, key and value of the tower are one array.
"""

from keras_vit.checkpoints.families.family import Family, Output
from keras_vit.checkpoints.families.keys import Keys
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import library
from keras_vit.checkpoints.families.transformers.clip import KEYS, NAMES

_OWN: Section = {
    "class_token/token": "embeddings.class_embedding",
    "position_embedding/embedding": "embeddings.position_embedding",
    "block_{l}/attention/{qkv}": "encoder.layers.{l}.self_attn.qkv : (qkv h d)",
    "block_{l}/attention/out": "encoder.layers.{l}.self_attn.projection",
}

_QKV_BIAS: Keys = {"qkv_bias": "block.qkv_bias"}
_OUTPUT = Output(has_pooler=False)
"""`verify` compares the first token: the pooled output applies the last norm twice."""

BLIP = Family(
    "transformers/blip",
    library.TRANSFORMERS,
    {**NAMES, **_OWN},
    keys=KEYS,
    shapes=library.SHAPES,
    fixed={"pool.kind": "token", "position": "learned"},
    limits=library.SQUARE_ALONE,
    classes={
        "BlipVisionModel": library.tower(
            "blip", fixed={"block.epsilon": 1e-5, "block.qkv_bias": True}, output=_OUTPUT
        ),
        "Blip2VisionModel": library.tower("blip-2", keys=_QKV_BIAS, output=_OUTPUT),
        "InstructBlipVisionModel": library.tower("instructblip", keys=_QKV_BIAS, output=_OUTPUT),
    },
)
