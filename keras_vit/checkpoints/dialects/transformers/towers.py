"""transformers' CLIP and SigLIP: a vision tower alone, beside a text tower, or under a classifier.

An example is `openai/clip-vit-base-patch32`, of the class `CLIPModel`. In a file of two towers,
keras_vit ignores `text_model.*`, the names of the vision tower begin with `vision_model.`, and
config.json nests the sizes in `vision_config`.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Identity,
    Limit,
    Names,
    StoredAs,
    Unsupported,
)
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonConstant,
    JsonField,
    JsonFields,
    JsonNote,
    JsonTable,
    Row,
    number,
    object_at,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers.common import (
    GELU_OF_CLIP,
    IMAGE_SIZE,
    LABEL_ROWS,
    arithmetic_rows,
    classifier_names,
    dialect,
    has_no_head,
    size_rows,
)
from keras_vit.checkpoints.dialects.transformers.processor import FILE as PROCESSOR
from keras_vit.config import ViTConfig

_TOWER = "vision_model."
_OF_TEXT = {
    r"text_model\..*": "the text tower",
    r"text_projection\.weight": "the projection of texts",
    r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
    r"(vision_model\.)?embeddings\.position_ids": "the numbers of the positions",
}
_WITH_TEXT = "a vision tower without a text tower, which this class has"


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """Names and rows that the classes of one kind of vision tower share.

    Args:
        model_type: the word of config.json for a model of two towers.
        words: names of the weights.
        rows: rows of config.json.
        sizes: defaults of the class; config.json of older releases omits keys with these values.
        fields: fields of `ViTConfig` that every file has.
        arithmetic: arguments of `dialect`.
        more: further fields of `Dialect`.
        refusals: models that no file can hold.
        limit: the row of the processor's limit of patches, if images keep their aspect ratio.
    """

    model_type: str
    words: Mapping[str, Names]
    rows: tuple[Row, ...]
    sizes: Mapping[str, Any]
    fields: Mapping[str, Any]
    arithmetic: Mapping[str, Any]
    more: Mapping[str, Any]
    refusals: tuple[Limit, ...] = ()
    limit: Row | None = None


_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
_DROPOUT = JsonField("attention_dropout", "attention_dropout_rate")

_CLIP = _Encoder(
    model_type="clip",
    words=TORCH.names("transformers/tower", "transformers/clip"),
    rows=(*size_rows(), *arithmetic_rows("quick_gelu", 1e-5), _DROPOUT),
    sizes=_DEFAULTS,
    fields={"pre_norm": True, "patch_bias": False, "qkv_bias": True},
    arithmetic={"gelu": "quick", "epsilon": 1e-5},
    more={"undetermined": lambda fields: GELU_OF_CLIP},
)

_SIGLIP = _Encoder(
    model_type="siglip",
    words=TORCH.names("transformers/tower", "transformers/siglip"),
    rows=(*size_rows(), *arithmetic_rows("gelu_pytorch_tanh", 1e-6), _DROPOUT),
    sizes={**_DEFAULTS, "patch_size": 16},
    fields={"class_token": None, "qkv_bias": True},
    arithmetic={"gelu": "tanh"},
    more={},
)


def _image_of_patches(content: Json) -> dict[str, Any]:
    side = math.isqrt(content["num_patches"])
    return {"image_size": side * number(content, "patch_size")}


def _patches_of_image(config: ViTConfig) -> dict[str, Any]:
    return {"num_patches": math.prod(config.source_grid)}


def _image_of_limit(content: Json) -> dict[str, Any]:
    """Returns an image of as many patches as the processor allows, and the grid of positions.

    The image is square, or one row of patches if no square has this number.
    """
    if content.get("max_num_patches") is None:
        return {}
    most, patch = number(content, "max_num_patches"), number(content, "patch_size")
    if most < 1:
        raise ValueError("expected at least 1")
    side, stored = math.isqrt(most), math.isqrt(number(content, "num_patches"))
    grid = (side, side) if side * side == most else (1, most)
    return {
        "image_size": (grid[0] * patch, grid[1] * patch),
        "position_grid": None if grid == (stored, stored) else (stored, stored),
    }


def _is_oblong(config: ViTConfig) -> bool:
    rows, columns = config.source_grid
    return rows != columns


_SIGLIP_2 = dataclasses.replace(
    _SIGLIP,
    model_type="siglip2",
    words={**_SIGLIP.words, **TORCH.names("transformers/siglip2")},
    rows=(
        JsonFields(("num_patches",), ("image_size",), _image_of_patches, _patches_of_image),
        *(row for row in _SIGLIP.rows if row is not IMAGE_SIZE),
    ),
    sizes={**_SIGLIP.sizes, "num_patches": 256},
    fields={**_SIGLIP.fields, "native_aspect": True},
    refusals=((_is_oblong, "positions of a grid that is no square"),),
    arithmetic={"gelu": "tanh", "resize": "bilinear_antialias"},
    more={"needs_json": "patch_size"},
    limit=JsonFields(
        ("max_num_patches",),
        ("image_size", "position_grid"),
        _image_of_limit,
        lambda config: {"max_num_patches": config.packed_shape[0]},
    ),
)
"""SigLIP 2 in its NaFlex form: patches come as rows of a matrix, which a convolution equals.

The class resizes positions for each image by torch's antialiased bilinear resize.
"""


def _older_sizes(files: Json) -> Json:
    """Returns the sizes of config.json before transformers 4.22; the library still prefers them."""
    content = files.get("config.json")
    return content.get("vision_config_dict") or {} if isinstance(content, Mapping) else {}


def _tower(
    encoder: _Encoder,
    name: str,
    class_name: str,
    classifier: str,
    words: Mapping[str, Names],
    is_part: bool,
    rows: tuple[Row, ...] = (),
    fields: Mapping[str, Any] | None = None,
    refusals: tuple[Limit, ...] = (),
    ignored: Mapping[str, str] | None = None,
    **more: Any,
) -> Dialect:
    """Returns the dialect of one class.

    Args:
        encoder: names and rows that the class shares with others.
        name: name of the dialect behind `transformers/`.
        class_name: name of the class, which config.json names.
        classifier: input of the output, see `ViTConfig`.
        words: names of weights beside the encoder's.
        is_part: whether the tower is a part of the class, so that names have its prefix and
            config.json nests its rows.
        rows, fields, refusals, ignored: beside those of the encoder and of all classes.
        **more: further fields of `Dialect`.
    """
    own = encoder.model_type if is_part else f"{encoder.model_type}_vision_model"
    note = JsonNote("architectures", lambda facts: [class_name])
    top: tuple[Row, ...] = (note, JsonConstant("model_type", own))
    sizes: dict[str, Any] = {"assumed": lambda content: encoder.sizes}
    tables: tuple[JsonTable, ...] = (
        JsonTable("config.json", (*top, *encoder.rows, *rows), **sizes),
    )
    if is_part:
        kind = JsonNote("model_type", lambda facts: f"{encoder.model_type}_vision_model")
        tables = (
            JsonTable("config.json", (*top, *LABEL_ROWS)),
            JsonTable(
                "config.json",
                (kind, *encoder.rows),
                at=("vision_config",),
                beside=_older_sizes,
                **sizes,
            ),
        )
        more = {"prefixes": (_TOWER,), "prefix_for": lambda config: _TOWER, **more}
    if encoder.limit is not None:

        def sizes_of(files: Json) -> Json:
            """Returns the sizes of config.json for the row of the processor."""
            content = object_at(files.get("config.json", {}), ("vision_config",) * is_part)
            own = {key: content.get(key) for key in ("num_patches", "patch_size")}
            return {key: encoder.sizes[key] if v is None else v for key, v in own.items()}

        tables += (JsonTable(PROCESSOR, (encoder.limit,), beside=sizes_of),)
    return dialect(
        own,
        {**encoder.words, **words},
        rows,
        name=name,
        classifiers=(classifier,),
        identity=Identity("config.json", "model_type", own, repr(own), class_name),
        json=tables,
        ignored={**_OF_TEXT, **(ignored or {})},
        fields={**encoder.fields, **({"num_classes": 0} if fields is None else fields)},
        impossible=(*encoder.refusals, *refusals),
        **encoder.arithmetic,
        **{**encoder.more, **more},
    )


_PROJECTION = {"projection/kernel": StoredAs("visual_projection.weight", "t m", outside=True)}
_NO_CLASSES = (has_no_head, "num_classes=0")

clip_vision = _tower(
    _CLIP,
    "clip_vision_model",
    "CLIPVisionModel",
    "token",
    {},
    is_part=False,
    prefixes=("", _TOWER),
)
clip_projection = _tower(
    _CLIP,
    "clip_vision_model_with_projection",
    "CLIPVisionModelWithProjection",
    "token",
    _PROJECTION,
    is_part=False,
    rows=(JsonField("projection_dim", "projection_dim", default=512),),
    refusals=((lambda c: c.projection_dim is None, "projection_dim=None"),),
    prefixes=(_TOWER, ""),
    prefix_for=lambda config: _TOWER,
)
clip_classifier = _tower(
    _CLIP,
    "clip_classifier",
    "CLIPForImageClassification",
    "gap",
    classifier_names(),
    is_part=True,
    fields={"class_token": True, "final_norm": False},
    refusals=(_NO_CLASSES,),
    ignored={r"vision_model\.post_layernorm\..*": "a norm that the class does not use"},
)
clip = _tower(
    _CLIP,
    "clip",
    "CLIPModel",
    "token",
    _PROJECTION,
    is_part=True,
    only_read=_WITH_TEXT,
)


def _siglip(encoder: _Encoder, name: str) -> tuple[Dialect, ...]:
    """Returns the dialects of a tower alone, under a classifier, and beside a text tower.

    Args:
        encoder: SigLIP or SigLIP 2.
        name: start of the names of its classes.
    """
    kind = encoder.model_type
    skipped = "an attention pooling that the class does not use"
    unpooled = {path: Unsupported(skipped) for path in encoder.words if path.startswith("pool/")}
    return (
        _tower(
            encoder,
            f"{kind}_vision_model",
            f"{name}VisionModel",
            "map",
            {},
            is_part=False,
            prefixes=("", _TOWER),
        ),
        _tower(
            encoder,
            f"{kind}_classifier",
            f"{name}ForImageClassification",
            "gap",
            {**unpooled, **classifier_names()},
            is_part=True,
            fields={},
            refusals=(_NO_CLASSES,),
            ignored={r"vision_model\.head\..*": skipped},
        ),
        _tower(
            encoder,
            kind,
            f"{name}Model",
            "map",
            {},
            is_part=True,
            **{"only_read": _WITH_TEXT, **encoder.more},
        ),
    )


FAMILIES = (
    clip_vision,
    clip_projection,
    clip_classifier,
    clip,
    *_siglip(_SIGLIP, "Siglip"),
    *_siglip(_SIGLIP_2, "Siglip2"),
)
