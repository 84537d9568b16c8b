"""keras-hub's `CLIPVisionEncoder` and `SigLIPVisionEncoder`, alone or inside `CLIPBackbone`."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, StoredAs
from keras_vit.checkpoints.dialects.json_fields import JsonConstant, JsonField, Row, one_of
from keras_vit.checkpoints.dialects.keras_hub.common import GELUS, encoder_family, size_rows
from keras_vit.checkpoints.dialects.keras_hub.converter import converter, fitting_image_size
from keras_vit.checkpoints.dialects.keras_hub.objects import keras_object
from keras_vit.checkpoints.dialects.names import KERAS
from keras_vit.models.config import Numerics


def _tower(
    name: str,
    class_name: str,
    rows: tuple[Row, ...],
    embedding: str,
    numbers: str,
    gelu: str,
    epsilon: float,
    fields: Mapping[str, Any],
) -> Dialect:
    """Returns the dialect of a vision encoder alone.

    Args:
        name: `"clip"` or `"siglip"`.
        class_name: first part of the name of its class, such as `"CLIP"`.
        rows: rows of the object beside those of both encoders.
        embedding: name of the layer of the embeddings.
        numbers: name in that layer of the array by which the positions are read in order.
        gelu, epsilon: the library's word for the GELU and its LayerNorm's epsilon.
        fields: fields of `ViTConfig` that every file has.
    """
    return encoder_family(
        f"{name}_vision",
        f"{name}.{name}_vision_encoder",
        f"{class_name}VisionEncoder",
        (
            *size_rows(),
            JsonField("intermediate_activation", "numerics.gelu", one_of(GELUS), default=gelu),
            *rows,
        ),
        {"position": "learned", "qkv_bias": True, **fields},
        {"images that are not square": lambda c: len({*fitting_image_size(c)}) > 1},
        words=KERAS.names(f"keras_hub/{name}"),
        reasons={"": f"keras-hub's {class_name} has no such part"},
        needs_json="the form of the GELU",
        images=converter,
        numerics=Numerics(gelu=GELUS[gelu], layer_norm_epsilon=epsilon),
        expresses=("gelu", "position_resize"),
        ignored={f"layers/{embedding}/{numbers}": "the numbers of the positions"},
        row_numbers={
            f"layers/{embedding}/position_embedding/vars/0": f"layers/{embedding}/{numbers}"
        },
    )


clip = _tower(
    "clip",
    "CLIP",
    (JsonConstant("intermediate_output_index", None),),
    "clip_vision_embedding",
    "vars/1",  # zeros in a new encoder of keras-hub, so that every token reads the first row
    "quick_gelu",
    1e-5,
    {"pooling": "token", "position_before_class": False, "pre_norm": True, "patch_bias": False},
)

siglip = _tower(
    "siglip",
    "SigLIP",
    # The last norm always uses 1e-6, so another value would give the model two epsilons.
    (JsonConstant("layer_norm_epsilon", 1e-6),),
    "sig_lip_vision_embedding",
    "vars/0",
    "gelu_approximate",
    1e-6,
    {"pooling": "map", "class_token": None},
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
    kernel = {"projection/kernel": (StoredAs(projection, outside=True),)} if projection else {}
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
