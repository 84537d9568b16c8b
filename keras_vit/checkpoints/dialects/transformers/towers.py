"""The vision towers of CLIP and SigLIP, alone, beside a text tower, or under a classifier.

A file of two towers holds `text_model.*`, which keras_vit leaves out, and puts `vision_model.` in
front of the names of the vision tower; config.json then nests the sizes in `vision_config`.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.json_fields import (
    JsonConstant,
    JsonField,
    JsonFields,
    JsonNote,
    JsonTable,
    Row,
    number,
)
from keras_vit.checkpoints.dialects.torch_layout import POSITIONS_OF_ANOTHER_GRID, torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    GELU_OF_CLIP,
    IMAGE_SIZE,
    LABEL_ROWS,
    VIT_REASONS,
    arithmetic_rows,
    classifier_names,
    has_head,
    has_no_head,
    impossible,
    needs,
    size_rows,
    tower_names,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics

_TOWER = "vision_model."
_OF_TEXT = {
    r"text_model\..*": "the text tower",
    r"text_projection\.weight": "the projection of texts",
    r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
    r"(vision_model\.)?embeddings\.position_ids": "the numbers of the positions",
}

_CLIP_WORDS: dict[str, Names] = {
    **tower_names(),
    "class_token/token": StoredAs("embeddings.class_embedding", "m"),
    **torch_modules({"pre_norm": "pre_layrnorm"}),  # the library's spelling
}
_PROJECTION = {"projection/kernel": StoredAs("visual_projection.weight", "t m", outside=True)}

_SIGLIP_WORDS: dict[str, Names] = {
    **tower_names(),
    "pool/probe": StoredAs("head.probe"),
    **torch_modules(
        {
            "pool/attention/out": "head.attention.out_proj",
            "pool/norm": "head.layernorm",
            "pool/mlp/dense_0": "head.mlp.fc1",
            "pool/mlp/dense_1": "head.mlp.fc2",
        }
    ),
    "pool/attention/{qkv}/kernel": StoredAs("head.attention.in_proj_weight", "(qkv h d) m"),
    "pool/attention/{qkv}/bias": StoredAs("head.attention.in_proj_bias", "(qkv h d)"),
}

_CLIP_ROWS: tuple[Row, ...] = (
    *size_rows(),
    *arithmetic_rows("quick_gelu", 1e-5),
    JsonField("attention_dropout", "attention_dropout_rate"),
)
_SIGLIP_ROWS: tuple[Row, ...] = (
    *size_rows(),
    *arithmetic_rows("gelu_pytorch_tanh", 1e-6),
    JsonField("attention_dropout", "attention_dropout_rate"),
)
_CLIP_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
_SIGLIP_SIZES = {**_CLIP_SIZES, "patch_size": 16}
"""The defaults of the class; config.json of older releases omits keys with these values."""

_CLIP = {
    "position": "learned",
    "position_before_class": False,
    "pre_norm": True,
    "patch_bias": False,
    "qkv_bias": True,
}
_CLIP_SWITCHES = ("pre_norm", "patch_bias")
_NEEDS = needs(pre_norm=True, patch_bias=False, qkv_bias=True)
_SIGLIP = {"position": "learned", "class_token": None, "qkv_bias": True}


def _alone(
    name: str, class_name: str, model_type: str, rows: tuple[Row, ...], sizes: Mapping[str, Any]
) -> JsonTable:
    """Returns the JSON of a vision tower in a folder of its own."""
    table = (JsonNote("architectures", lambda facts: [class_name]), *rows)
    return JsonTable(
        "config.json",
        (JsonConstant("model_type", model_type), *table),
        assumed=lambda content: sizes,
    )


def _older_sizes(files: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the sizes of config.json before transformers 4.22; the library still prefers them."""
    content = files.get("config.json")
    return content.get("vision_config_dict") or {} if isinstance(content, Mapping) else {}


def _nested(
    class_name: str, model_type: str, rows: tuple[Row, ...], sizes: Mapping[str, Any]
) -> tuple[JsonTable, ...]:
    """Returns the JSON of a class that has a vision tower among its parts."""
    return (
        JsonTable(
            "config.json",
            (
                JsonNote("architectures", lambda facts: [class_name]),
                JsonConstant("model_type", model_type),
                *LABEL_ROWS,
            ),
        ),
        JsonTable(
            "config.json",
            (JsonNote("model_type", lambda facts: f"{model_type}_vision_model"), *rows),
            at=("vision_config",),
            assumed=lambda content: sizes,
            beside=_older_sizes,
        ),
    )


def _class(name: str, model_type: str) -> Identity:
    return Identity("config.json", "model_type", model_type, repr(model_type), name)


def _tower(name: str, words: Mapping[str, Names], **more: Any) -> Dialect:
    return Dialect(
        name=f"transformers/{name}",
        library="transformers",
        container="safetensors",
        words=unsupported(VIT_REASONS, words),
        images=processor,
        expresses=("gelu", "layer_norm_epsilon", "position_resize"),
        crops=False,
        metadata={"format": "pt"},
        **more,
    )


def _untold(fields: Mapping[str, Any]) -> dict[str, str]:
    return GELU_OF_CLIP


_CLIP_NUMERICS = Numerics(gelu="quick", layer_norm_epsilon=1e-5, position_resize="bicubic")
_SIGLIP_NUMERICS = Numerics(gelu="tanh", layer_norm_epsilon=1e-6, position_resize="bicubic")
_WITH_TEXT = "a vision tower alone, where this class has a text tower too"
_NO_HEAD = (has_head, "a head: this class has none")
_BIASES = needs(qkv_bias=True)
_NO_TOKEN = (lambda c: c.has_class_token, "a class token")

clip_vision = _tower(
    "clip_vision_model",
    _CLIP_WORDS,
    prefixes=("", _TOWER),
    ignored=_OF_TEXT,
    identity=_class("CLIPVisionModel", "clip_vision_model"),
    json=(_alone("clip", "CLIPVisionModel", "clip_vision_model", _CLIP_ROWS, _CLIP_SIZES),),
    numerics=_CLIP_NUMERICS,
    untold=_untold,
    fields={**_CLIP, "classifier": "token", "num_classes": 0},
    switches=_CLIP_SWITCHES,
    impossible=(*impossible("token"), *_NEEDS, POSITIONS_OF_ANOTHER_GRID, _NO_HEAD),
)

clip_projection = _tower(
    "clip_vision_model_with_projection",
    {**_CLIP_WORDS, **_PROJECTION},
    prefixes=(_TOWER, ""),
    prefix_for=lambda config: _TOWER,
    ignored=_OF_TEXT,
    identity=_class("CLIPVisionModelWithProjection", "clip_vision_model"),
    json=(
        _alone(
            "clip",
            "CLIPVisionModelWithProjection",
            "clip_vision_model",
            (*_CLIP_ROWS, JsonField("projection_dim", "projection_dim", default=512)),
            _CLIP_SIZES,
        ),
    ),
    numerics=_CLIP_NUMERICS,
    untold=_untold,
    fields={**_CLIP, "classifier": "token", "num_classes": 0},
    switches=(*_CLIP_SWITCHES, "projection_dim"),
    impossible=(
        *impossible("token"),
        *_NEEDS,
        POSITIONS_OF_ANOTHER_GRID,
        _NO_HEAD,
        (lambda c: c.projection_dim is None, "projection_dim=None"),
    ),
)

clip = _tower(
    "clip",
    {**_CLIP_WORDS, **_PROJECTION},
    prefixes=(_TOWER,),
    prefix_for=lambda config: _TOWER,
    ignored=_OF_TEXT,
    identity=_class("CLIPModel", "clip"),
    json=_nested("CLIPModel", "clip", _CLIP_ROWS, _CLIP_SIZES),
    numerics=_CLIP_NUMERICS,
    untold=_untold,
    fields={**_CLIP, "classifier": "token", "num_classes": 0},
    switches=(*_CLIP_SWITCHES, "projection_dim"),
    only_read=_WITH_TEXT,
)

clip_classifier = _tower(
    "clip_classifier",
    {**_CLIP_WORDS, **classifier_names({})},
    prefixes=(_TOWER,),
    prefix_for=lambda config: _TOWER,
    ignored={**_OF_TEXT, r"vision_model\.post_layernorm\..*": "a norm that the class does not use"},
    identity=_class("CLIPForImageClassification", "clip"),
    json=_nested("CLIPForImageClassification", "clip", _CLIP_ROWS, _CLIP_SIZES),
    numerics=_CLIP_NUMERICS,
    untold=_untold,
    fields={**_CLIP, "classifier": "gap", "class_token": True, "final_norm": False},
    switches=(*_CLIP_SWITCHES, "final_norm"),
    impossible=(
        *impossible("gap"),
        *_NEEDS,
        *needs(final_norm=False),
        POSITIONS_OF_ANOTHER_GRID,
        (has_no_head, "num_classes=0"),
        (lambda c: not c.has_class_token, "no class token"),
    ),
)

siglip_vision = _tower(
    "siglip_vision_model",
    _SIGLIP_WORDS,
    prefixes=("", _TOWER),
    ignored=_OF_TEXT,
    identity=_class("SiglipVisionModel", "siglip_vision_model"),
    json=(
        _alone("siglip", "SiglipVisionModel", "siglip_vision_model", _SIGLIP_ROWS, _SIGLIP_SIZES),
    ),
    numerics=_SIGLIP_NUMERICS,
    fields={**_SIGLIP, "num_classes": 0},
    impossible=(*impossible("map"), *_BIASES, POSITIONS_OF_ANOTHER_GRID, _NO_HEAD, _NO_TOKEN),
)

siglip = _tower(
    "siglip",
    _SIGLIP_WORDS,
    prefixes=(_TOWER,),
    prefix_for=lambda config: _TOWER,
    ignored=_OF_TEXT,
    identity=_class("SiglipModel", "siglip"),
    json=_nested("SiglipModel", "siglip", _SIGLIP_ROWS, _SIGLIP_SIZES),
    numerics=_SIGLIP_NUMERICS,
    fields={**_SIGLIP, "num_classes": 0},
    only_read=_WITH_TEXT,
)

siglip_classifier = _tower(
    "siglip_classifier",
    {
        **{path: name for path, name in _SIGLIP_WORDS.items() if not path.startswith("pool/")},
        **classifier_names({}),
    },
    prefixes=(_TOWER,),
    prefix_for=lambda config: _TOWER,
    ignored={**_OF_TEXT, r"vision_model\.head\..*": "an attention pooling that the class skips"},
    identity=_class("SiglipForImageClassification", "siglip"),
    json=_nested("SiglipForImageClassification", "siglip", _SIGLIP_ROWS, _SIGLIP_SIZES),
    numerics=_SIGLIP_NUMERICS,
    fields={**_SIGLIP, "classifier": "gap"},
    impossible=(
        *impossible("gap"),
        *_BIASES,
        POSITIONS_OF_ANOTHER_GRID,
        (has_no_head, "num_classes=0"),
        _NO_TOKEN,
    ),
)


def _packed(
    dialect: Dialect, name: str, class_name: str, model_type: str, json: tuple[JsonTable, ...]
) -> Dialect:
    """SigLIP 2 in its NaFlex form: patches come as rows of a matrix, which a convolution equals.

    A model of keras_vit takes images of one size; positions go to another grid by torch's
    antialiased bilinear resize, as the class resizes them for each image.
    """
    kernel = StoredAs("embeddings.patch_embedding.weight", "m (p q c)")
    return dataclasses.replace(
        dialect,
        name=f"transformers/{name}",
        words={**dialect.words, "patch_embedding/kernel": kernel},
        identity=_class(class_name, model_type),
        json=json,
        needs_json="patch_size",
        numerics=dataclasses.replace(_SIGLIP_NUMERICS, position_resize="bilinear_antialias"),
        only_read="images of one size, where this class takes packed patches of any",
    )


def _image_of_patches(found: Mapping[str, Any]) -> dict[str, Any]:
    side = math.isqrt(found["num_patches"])
    return {"image_size": side * number(found, "patch_size")}


_SIGLIP2_ROWS: tuple[Row, ...] = (
    JsonFields(("num_patches",), ("image_size",), _image_of_patches, lambda config: {}),
    *(row for row in _SIGLIP_ROWS if row is not IMAGE_SIZE),
)
_SIGLIP2_SIZES = {**_SIGLIP_SIZES, "num_patches": 256}

siglip2 = (
    _packed(
        siglip_vision,
        "siglip2_vision_model",
        "Siglip2VisionModel",
        "siglip2_vision_model",
        (
            _alone(
                "siglip2",
                "Siglip2VisionModel",
                "siglip2_vision_model",
                _SIGLIP2_ROWS,
                _SIGLIP2_SIZES,
            ),
        ),
    ),
    _packed(
        siglip,
        "siglip2",
        "Siglip2Model",
        "siglip2",
        _nested("Siglip2Model", "siglip2", _SIGLIP2_ROWS, _SIGLIP2_SIZES),
    ),
    _packed(
        siglip_classifier,
        "siglip2_classifier",
        "Siglip2ForImageClassification",
        "siglip2",
        _nested("Siglip2ForImageClassification", "siglip2", _SIGLIP2_ROWS, _SIGLIP2_SIZES),
    ),
)
