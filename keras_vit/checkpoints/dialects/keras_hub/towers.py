"""Builders of keras-hub's vision encoders of two towers, alone or inside of their backbone."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, StoredAs
from keras_vit.checkpoints.dialects.json_fields import JsonField, Row, one_of
from keras_vit.checkpoints.dialects.keras_hub.common import GELUS, encoder_family, size_rows
from keras_vit.checkpoints.dialects.keras_hub.converter import converter, fitting_image_size
from keras_vit.checkpoints.dialects.keras_hub.objects import keras_object
from keras_vit.checkpoints.dialects.names import KERAS, Section
from keras_vit.checkpoints.dialects.torch_conventions import POSITIONS_OF_ANOTHER_GRID
from keras_vit.config import Numerics


def tower(
    name: str,
    class_name: str,
    rows: tuple[Row, ...],
    names: Section,
    embedding: str,
    numbers: str,
    gelu: str,
    epsilon: float,
    fields: Mapping[str, Any],
    sample: Mapping[str, Any],
) -> Dialect:
    """Returns the dialect of a vision encoder alone.

    Args:
        name: `"clip"` or `"siglip"`.
        class_name: first part of the name of its class, such as `"CLIP"`.
        rows: rows of the object beside those of both encoders.
        names: names of the weights.
        embedding: name of the layer of the embeddings.
        numbers: name in that layer of the array by which the positions are read in order.
        gelu, epsilon: the library's word for the GELU and its LayerNorm's epsilon.
        fields: fields of `ViTConfig` that every file has.
        sample: see `Dialect`.
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
        {
            "images that are not square": lambda c: len({*fitting_image_size(c)}) > 1,
            **POSITIONS_OF_ANOTHER_GRID,
        },
        words=KERAS.names(names),
        reasons={"": f"keras-hub's {class_name} has no such part"},
        needs_json="the form of the GELU",
        images=converter,
        sample=sample,
        numerics=Numerics(gelu=GELUS[gelu], layer_norm_epsilon=epsilon),
        expresses=("gelu", "position_resize"),
        ignored={f"layers/{embedding}/{numbers}": "the numbers of the positions"},
        row_numbers={
            f"layers/{embedding}/position_embedding/vars/0": f"layers/{embedding}/{numbers}"
        },
    )


def inside(
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
