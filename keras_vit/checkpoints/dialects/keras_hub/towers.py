"""keras-hub's `CLIPVisionEncoder` and `SigLIPVisionEncoder`, alone or inside `CLIPBackbone`."""

import dataclasses
import re
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, StoredAs, with_reasons
from keras_vit.checkpoints.dialects.json_fields import JsonConstant, JsonField, Row, one_of
from keras_vit.checkpoints.dialects.keras_hub.common import (
    GELUS,
    NOT_SQUARE,
    encoder_family,
    size_rows,
)
from keras_vit.checkpoints.dialects.keras_hub.converter import converter
from keras_vit.checkpoints.dialects.keras_hub.objects import keras_object
from keras_vit.checkpoints.dialects.names import KERAS
from keras_vit.checkpoints.dialects.transformers.common import impossible
from keras_vit.config import Numerics

_NUMBERS = "the numbers of the positions"


def _tower(name: str, module: str, class_name: str, rows: tuple[Row, ...], **more: Any) -> Dialect:
    refusals = (*more.pop("impossible"), NOT_SQUARE)
    return encoder_family(
        name,
        module,
        class_name,
        (*size_rows(), *rows),
        needs_json="the form of the GELU",
        images=converter,
        expresses=("gelu", "position_resize"),
        impossible=refusals,
        **more,
    )


clip = _tower(
    "clip_vision",
    "clip.clip_vision_encoder",
    "CLIPVisionEncoder",
    (
        JsonField("intermediate_activation", "numerics.gelu", one_of(GELUS), default="quick_gelu"),
        JsonConstant("intermediate_output_index", None),
    ),
    words=with_reasons(
        {"": "keras-hub's CLIP has no such part"},
        KERAS.names("keras_hub/clip"),
    ),
    # A new encoder of keras-hub has zeros here, so that every token reads the first row.
    ignored={"layers/clip_vision_embedding/vars/1": _NUMBERS},
    row_numbers={
        "layers/clip_vision_embedding/position_embedding/vars/0": (
            "layers/clip_vision_embedding/vars/1"
        )
    },
    numerics=Numerics(gelu="quick", layer_norm_epsilon=1e-5),
    fields={
        "classifier": "token",
        "num_classes": 0,
        "position": "learned",
        "position_before_class": False,
        "qkv_bias": True,
        "pre_norm": True,
        "patch_bias": False,
    },
    impossible=impossible("token"),
)

siglip = _tower(
    "siglip_vision",
    "siglip.siglip_vision_encoder",
    "SigLIPVisionEncoder",
    (
        JsonField(
            "intermediate_activation", "numerics.gelu", one_of(GELUS), default="gelu_approximate"
        ),
        # The last norm always uses 1e-6, so another value would give the model two epsilons.
        JsonConstant("layer_norm_epsilon", 1e-6),
    ),
    words=with_reasons(
        {"": "keras-hub's SigLIP has no such part"}, KERAS.names("keras_hub/siglip")
    ),
    ignored={"layers/sig_lip_vision_embedding/vars/0": _NUMBERS},
    row_numbers={
        "layers/sig_lip_vision_embedding/position_embedding/vars/0": (
            "layers/sig_lip_vision_embedding/vars/0"
        )
    },
    numerics=Numerics(gelu="tanh"),
    fields={
        "classifier": "map",
        "num_classes": 0,
        "position": "learned",
        "class_token": None,
        "qkv_bias": True,
    },
    impossible=impossible("map"),
)


def _inside(
    dialect: Dialect,
    name: str,
    class_names: tuple[str, str],
    prefix: str,
    projection: str = "",
) -> Dialect:
    """Returns the dialect of a backbone that has the encoder of another dialect beside a text one.

    Args:
        dialect: the dialect of the encoder alone.
        name: name of the dialect.
        class_names: classes of the backbone and of its vision encoder.
        prefix: prefix of the encoder's names in a file of the backbone.
        projection: name of the kernel behind the encoder, if the backbone has one.
    """
    backbone, encoder = class_names
    rows = dialect.json[1].rows
    kernel = {"projection/kernel": StoredAs(projection, outside=True)} if projection else {}
    parts = "|".join(re.escape(part) for part in (prefix, projection) if part)
    return dataclasses.replace(
        dialect,
        name=f"keras_hub/{name}",
        identity=Identity("config.json", "class_name", backbone, repr(backbone)),
        json=keras_object("config.json", name, encoder, rows, at=("config", "vision_encoder")),
        words={**dialect.words, **kernel},
        prefixes=(prefix,),
        ignored={
            rf"(?!{parts}).*": "a part beside the vision encoder",
            **{prefix + pattern: why for pattern, why in dialect.ignored.items()},
        },
        row_numbers={prefix + a: prefix + b for a, b in dialect.row_numbers.items()},
        only_read="a vision encoder without a text encoder, which this class has",
    )


clip_backbone = _inside(
    clip,
    "clip_backbone",
    ("CLIPBackbone", "CLIPVisionEncoder"),
    "layers/clip_vision_encoder/",
    projection="layers/dense/vars/0",
)

siglip_backbone = _inside(
    siglip,
    "siglip_backbone",
    ("SigLIPBackbone", "SigLIPVisionEncoder"),
    "layers/sig_lip_vision_encoder/",
)
