"""transformers' CLIP and SigLIP: a vision tower alone, beside a text tower, or under a classifier.

An example is `openai/clip-vit-base-patch32`, of the class `CLIPModel`. In a file of two towers,
keras_vit ignores `text_model.*`, the names of the vision tower begin with `vision_model.`, and
config.json nests the sizes in `vision_config`.
"""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Limits, Names, StoredAs
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
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.processor import FILE as PROCESSOR
from keras_vit.models.config import ViTConfig

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
    """What the classes of one kind of vision tower share.

    Args:
        model_type: the word of config.json for a model of two towers.
        words: names of the weights.
        rows: rows of config.json.
        sizes: defaults of the class; config.json of older releases omits keys with these values.
        fields: fields of `ViTConfig` that every file has.
        more: further arguments of `common.dialect`.
        refusals: models that no file can hold.
        limit: the row of the processor's limit of patches, if images keep their aspect ratio.
    """

    model_type: str
    words: Mapping[str, Names]
    rows: tuple[Row, ...]
    sizes: Json
    fields: Mapping[str, Any]
    more: Mapping[str, Any]
    refusals: Limits = dataclasses.field(default_factory=dict)
    limit: Row | None = None


_CLIP = _Encoder(
    "clip",
    TORCH.names("transformers/tower", "transformers/clip"),
    common.tower_rows("quick_gelu", 1e-5),
    common.tower_sizes(768, 3072, 12, 12, 224, 32) | {"num_channels": 3},
    {"pre_norm": True, "patch_bias": False, "qkv_bias": True},
    {"gelu": "quick", "epsilon": 1e-5, "undetermined": lambda fields: common.GELU_OF_CLIP},
)

_SIGLIP = _Encoder(
    "siglip",
    TORCH.names("transformers/tower", "transformers/siglip"),
    common.tower_rows("gelu_pytorch_tanh", 1e-6),
    common.tower_sizes(768, 3072, 12, 12, 224, 16) | {"num_channels": 3},
    {"class_token": None, "qkv_bias": True},
    {"gelu": "tanh"},
)


def _read_grid_size(content: Json) -> dict[str, Any]:
    return {"image_size": math.isqrt(content["num_patches"]) * number(content, "patch_size")}


def _write_grid_size(config: ViTConfig) -> dict[str, Any]:
    return {"num_patches": math.prod(config.source_grid)}


def _read_limit(content: Json) -> dict[str, Any]:
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


_SIGLIP_2 = dataclasses.replace(
    _SIGLIP,
    model_type="siglip2",
    words={**_SIGLIP.words, **TORCH.names("transformers/siglip2")},
    rows=(
        JsonFields(("num_patches",), ("image_size",), _read_grid_size, _write_grid_size),
        *(row for row in _SIGLIP.rows if row is not common.IMAGE_SIZE),
    ),
    sizes={**_SIGLIP.sizes, "num_patches": 256},
    fields={**_SIGLIP.fields, "native_aspect": True},
    refusals={"positions of a grid that is no square": "source_grid!=square"},
    more={"gelu": "tanh", "resize": "bilinear_antialias", "needs_json": "patch_size"},
    limit=JsonFields(
        ("max_num_patches",),
        ("image_size", "position_grid"),
        _read_limit,
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
    class_name: str,
    pooling: str,
    words: Mapping[str, Names],
    *,
    name: str = "",
    rows: tuple[Row, ...] = (),
    fields: Mapping[str, Any] = MappingProxyType({"num_classes": 0}),
    refusals: Limits = MappingProxyType({}),
    **more: Any,
) -> Dialect:
    """Returns the dialect of the class that is a vision tower alone.

    Args:
        encoder: names and rows that the class shares with others.
        class_name: name of the class, which config.json names.
        pooling: see `ViTConfig`.
        words: names of weights beside the encoder's.
        name: name of the dialect behind `transformers/`; `""` for the `model_type`.
        rows, fields, refusals: beside those of the encoder and of all classes.
        **more: further arguments of `common.dialect`; `ignored` is added to that of all towers.
    """
    note = JsonNote("architectures", lambda facts: [class_name])
    own = more.pop("model_type", f"{encoder.model_type}_vision_model")
    tower = common.dialect(
        own,
        {**encoder.words, **words},
        (note, *encoder.rows, *rows),
        name=name,
        poolings=(pooling,),
        sizes=encoder.sizes,
        fields={**encoder.fields, **fields},
        impossible={**encoder.refusals, **refusals},
        **{
            "identity": Identity("config.json", "model_type", own, repr(own), class_name),
            **encoder.more,
            **more,
            "ignored": {**_OF_TEXT, **more.get("ignored", {})},
        },
    )
    if encoder.limit is None:
        return tower

    def read_sizes(files: Json) -> Json:
        """Returns the sizes of config.json for the row of the processor."""
        place = ("vision_config",) if own == encoder.model_type else ()
        content = object_at(files.get("config.json", {}), place)
        stated = {key: content.get(key) for key in ("num_patches", "patch_size")}
        return {key: encoder.sizes[key] if v is None else v for key, v in stated.items()}

    limit = JsonTable(PROCESSOR, (encoder.limit,), beside=read_sizes)
    return dataclasses.replace(tower, json=(*tower.json, limit))


def _tower_inside(encoder: _Encoder, class_name: str, *arguments: Any, **more: Any) -> Dialect:
    """Returns the dialect of a class that has the tower as a part; arguments as of `_tower`.

    Names have the tower's prefix, and config.json nests the tower's rows.
    """
    own = encoder.model_type
    note = JsonNote("architectures", lambda facts: [class_name])
    kind = JsonNote("model_type", lambda facts: f"{own}_vision_model")
    return _tower(
        encoder,
        class_name,
        *arguments,
        model_type=own,
        json=(
            JsonTable("config.json", (note, JsonConstant("model_type", own), *common.LABEL_ROWS)),
            JsonTable(
                "config.json",
                (kind, *encoder.rows),
                at=("vision_config",),
                assumed=lambda content: encoder.sizes,
                beside=_older_sizes,
            ),
        ),
        prefixes=(_TOWER,),
        prefix_for=lambda config: _TOWER,
        **more,
    )


_PROJECTION = {"projection/kernel": (StoredAs("visual_projection.weight", "t m", outside=True),)}
_NO_CLASSES = {"num_classes=0": "num_classes!"}

clip_vision = _tower(_CLIP, "CLIPVisionModel", "token", {}, prefixes=("", _TOWER))
clip_projection = _tower(
    _CLIP,
    "CLIPVisionModelWithProjection",
    "token",
    _PROJECTION,
    name="clip_vision_model_with_projection",
    rows=(JsonField("projection_dim", "projection_dim", default=512),),
    refusals={"projection_dim=None": "projection_dim!"},
    prefixes=(_TOWER, ""),
    prefix_for=lambda config: _TOWER,
)
clip_classifier = _tower_inside(
    _CLIP,
    "CLIPForImageClassification",
    "gap",
    common.classifier_names(),
    name="clip_classifier",
    fields={"class_token": True, "final_norm": False},
    refusals=_NO_CLASSES,
    ignored={r"vision_model\.post_layernorm\..*": "a norm that the class does not use"},
)
clip = _tower_inside(_CLIP, "CLIPModel", "token", _PROJECTION, only_read=_WITH_TEXT)


def _siglip(encoder: _Encoder, name: str) -> tuple[Dialect, ...]:
    """Returns the dialects of a tower alone, under a classifier, and beside a text tower.

    Args:
        encoder: SigLIP or SigLIP 2.
        name: start of the names of its classes.
    """
    skipped = "an attention pooling that the class does not use"
    unpooled = {p: names for p, names in encoder.words.items() if not p.startswith("pool/")}
    return (
        _tower(encoder, f"{name}VisionModel", "map", {}, prefixes=("", _TOWER)),
        _tower_inside(
            dataclasses.replace(encoder, words=unpooled),
            f"{name}ForImageClassification",
            "gap",
            common.classifier_names(),
            name=f"{encoder.model_type}_classifier",
            reasons={"pool/": skipped},
            fields={},
            refusals=_NO_CLASSES,
            ignored={r"vision_model\.head\..*": skipped},
        ),
        _tower_inside(encoder, f"{name}Model", "map", {}, only_read=_WITH_TEXT),
    )


FAMILIES = (
    clip_vision,
    clip_projection,
    clip_classifier,
    clip,
    *_siglip(_SIGLIP, "Siglip"),
    *_siglip(_SIGLIP_2, "Siglip2"),
)
