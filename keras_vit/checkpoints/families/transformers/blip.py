"""transformers' BLIP (arXiv 2201.12086), BLIP-2 (arXiv 2301.12597) and InstructBLIP.

Queries, keys and values of the tower are one product.
"""

from typing import Any

from keras_vit.checkpoints.families.family import Class, Family, Output
from keras_vit.checkpoints.families.keys import Keys
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers.clip import KEYS, NAMES
from keras_vit.checkpoints.families.transformers.library import (
    SHAPES,
    SQUARE_ALONE,
    TRANSFORMERS,
)

_OWN: Section = {
    "class_token/token": "embeddings.class_embedding",
    "position_embedding/embedding": "embeddings.position_embedding",
    "block_{l}/attention/{qkv}": "encoder.layers.{l}.self_attn.qkv : (qkv h d)",
    "block_{l}/attention/out": "encoder.layers.{l}.self_attn.projection",
}

_QKV_BIAS: Keys = {"qkv_bias": "block.qkv_bias"}


def _tower(model: str, **more: Any) -> Class:
    """Returns the class of a tower.

    Args:
        model: `model_type` of the whole model.
        **more: further fields of `Class`.
    """
    own = f"{model.replace('-', '_')}_vision_model"
    # The pooled output has the last norm a second time.
    return Class(f"{own} {model}", own, head=False, output=Output(has_pooler=False), **more)


FAMILIES = (
    Family(
        "transformers/blip",
        TRANSFORMERS,
        {**NAMES, **_OWN},
        keys=KEYS,
        shapes=SHAPES,
        fixed={"pool.kind": "token", "position": "learned"},
        limits=SQUARE_ALONE,
        classes={
            "BlipVisionModel": _tower(
                "blip", fixed={"block.epsilon": 1e-5, "block.qkv_bias": True}
            ),
            "Blip2VisionModel": _tower("blip-2", keys=_QKV_BIAS),
            "InstructBlipVisionModel": _tower("instructblip", keys=_QKV_BIAS),
        },
    ),
)
