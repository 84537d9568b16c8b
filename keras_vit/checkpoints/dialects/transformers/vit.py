"""transformers' ViT, and DeiT, MAE, MSN, I-JEPA, BEiT, Flava and DPT, which have its blocks.

An example is `google/vit-base-patch16-224`, of the class `ViTForImageClassification`.

Files of a classifier have the prefix of the family, such as `vit.`, in every name except the
head's; files of an encoder have none. The pooler of an encoder is the representation layer of
keras_vit.
"""

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Limits, Names
from keras_vit.checkpoints.dialects.json_fields import (
    HAS_POSITIONS,
    Facts,
    Json,
    JsonConstant,
    JsonField,
    JsonFields,
    JsonNote,
    Row,
    number,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.torch_conventions import (
    read_relative_bias,
    write_relative_bias,
)
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.errors import shown

_MASK = "mask of masked image modelling"
_POOLER = TORCH.names({"pre_logits": "pooler.dense"})
_POOLER_ROWS: tuple[Row, ...] = (
    JsonNote(
        "pooler_output_size",
        lambda facts: facts.config.representation_size or facts.config.hidden_size,
    ),
    JsonConstant("pooler_act", "tanh"),
)
_NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, even if the file also has a pooler."""
_NOT_BOTH: Limits = {"a head behind a representation layer": "representation_size num_classes"}


def _family(
    model_type: str,
    prefix: str,
    classes: tuple[str | None, str] | JsonNote,
    words: Mapping[str, Names],
    epsilon: float = 1e-12,
    rows: tuple[Row, ...] = (),
    fields: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a family that has the blocks of ViT.

    Args:
        model_type: the family's word in config.json.
        prefix: prefix of the names in a classifier's files.
        classes: the classes with a head and without, or the row that names them.
        words: names of weights that ViT's encoder lacks, or has under other names.
        epsilon: LayerNorm's epsilon where config.json has none.
        rows: further rows of config.json.
        fields: fields of `ViTConfig` that every file has. config.json states `qkv_bias` if it is
            not among them.
        **more: further arguments of `common.dialect`.
    """
    note = classes if isinstance(classes, JsonNote) else common.architectures(*classes)
    has_classifier = isinstance(classes, JsonNote) or classes[0]
    biases = () if "qkv_bias" in fields else (JsonField("qkv_bias", "qkv_bias", default=True),)
    return common.dialect(
        model_type,
        {**TORCH.names("transformers/vit"), **words},
        (
            note,
            *common.size_rows(),
            *biases,
            *common.arithmetic_rows("gelu", epsilon),
            *common.DROPOUT_ROWS,
            *rows,
            *(common.LABEL_ROWS if has_classifier else ()),
        ),
        prefix=prefix,
        epsilon=epsilon,
        fields=fields,
        **{"ignored": _mask_token(prefix), **more},
    )


def _mask_token(prefix: str) -> dict[str, str]:
    return {rf"({re.escape(prefix)})?embeddings\.mask_token": _MASK}


vit = dataclasses.replace(
    _family(
        "vit",
        "vit.",
        ("ViTForImageClassification", "ViTModel"),
        {**_POOLER, **common.classifier_names(**_NO_POOLER)},
        rows=_POOLER_ROWS,
        impossible=_NOT_BOTH,
    ),
    name="transformers",
)


def _deit_class(facts: Facts) -> list[str]:
    if facts.config.num_classes == 0:
        return ["DeiTModel"]
    teacher = "WithTeacher" if facts.config.has_two_heads else ""
    return [f"DeiTForImageClassification{teacher}"]


deit = _family(
    "deit",
    "deit.",
    JsonNote("architectures", _deit_class),
    {**_POOLER, **TORCH.names("transformers/deit"), **common.classifier_names(**_NO_POOLER)},
    poolings=("token", "token_and_distillation"),
    fields={"distillation_token": True},
    rows=_POOLER_ROWS,
    impossible=_NOT_BOTH,
)

vit_mae = _family(
    "vit_mae",
    "vit.",
    (None, "ViTMAEModel"),
    {},
    ignored={r"decoder\..*": "the decoder of pretraining"},
    fields={"num_classes": 0},
    prefix_for=lambda config: "",
    # A share of hidden patches belongs to pretraining; the class hides that share in inference too.
    rows=(JsonNote("mask_ratio", lambda facts: 0.0),),
)

_MSN_WORDS: dict[str, Names] = {
    # transformers 5 writes a classifier's tokens and last norm with `vit.`, its blocks without.
    path: (*names, *(dataclasses.replace(name, outside=True) for name in names))
    if path.startswith("block_")
    else names
    for path, names in TORCH.names("transformers/vit").items()
}

vit_msn = _family(
    "vit_msn",
    "vit.",
    ("ViTMSNForImageClassification", "ViTMSNModel"),
    {**_MSN_WORDS, **common.classifier_names()},
    epsilon=1e-6,
)

ijepa = _family(
    "ijepa",
    "ijepa.",
    ("IJepaForImageClassification", "IJepaModel"),
    common.classifier_names(),
    poolings=("gap",),
    fields={"class_token": None},
)

_NO_KEY = (True, False, True)
_BIASES = ("use_relative_position_bias", "use_shared_relative_position_bias")
_SWAPS = "transformers reads the rows of a table as its columns"


def _read_pooling(content: Json) -> dict[str, Any]:
    return {
        "pooling": "gap" if content.get("use_mean_pooling", True) else "token",
        "class_token": True,
    }


def _read_scale(content: Json) -> dict[str, Any]:
    init = number(content, "layer_scale_init_value", 0.1)
    return {"layer_scale": True, "layer_scale_init": init} if init > 0 else {"layer_scale": False}


def _read_bias(content: Json) -> dict[str, Any]:
    """Returns the kind of tables; refuses classes that have more than an encoder and a head."""
    for name in content.get("architectures") or ():
        if str(name).endswith(("ForSemanticSegmentation", "ForMaskedImageModeling", "Backbone")):
            raise ValueError(f"in a {name}; expected a model or its form for image classification")
    kind = read_relative_bias(content, _BIASES)
    size = content.get("image_size")
    if kind and isinstance(size, list) and size != size[::-1]:
        raise ValueError(f"with image_size={shown(size)}, expected a square: {_SWAPS}")
    return {"relative_position_bias": kind}


def _beit(model_type: str, class_name: str, of_model: Limits) -> Dialect:
    """Returns the dialect of BEiT, or of Data2Vec's image model, which is the same network.

    Args:
        model_type: the family's word in config.json.
        class_name: start of the names of its classes.
        of_model: models that the class without a head lacks.
    """
    prefix = model_type.replace("-", "_") + "."
    limits: Limits = {
        "a model without a class token": "has_class_token!",
        "a mean of the class token too": "class_token_in_mean",
        f"patches or a grid that are not square: {_SWAPS}": (
            "patch_size!=square or table_grid!=square or image_size image_size!=square"
        ),
        "a norm before the mean of the patches": (
            "pooling=gap final_norm numerics.pool_before_norm!"
        ),
        **of_model,
    }
    return _family(
        model_type,
        prefix,
        (f"{class_name}ForImageClassification", f"{class_name}Model"),
        {**TORCH.names("transformers/beit"), **common.classifier_names()},
        rows=(
            JsonField("drop_path_rate", "stochastic_depth_rate"),
            JsonFields(
                ("use_mean_pooling",),
                ("pooling", "class_token"),
                _read_pooling,
                lambda c: {"use_mean_pooling": c.pooling == "gap"},
            ),
            JsonFields(
                ("layer_scale_init_value",),
                ("layer_scale", "layer_scale_init"),
                _read_scale,
                lambda c: {"layer_scale_init_value": c.layer_scale_init if c.layer_scale else 0},
            ),
            JsonField("use_absolute_position_embeddings", "position", HAS_POSITIONS, default=False),
            JsonFields(
                _BIASES,
                ("relative_position_bias",),
                _read_bias,
                lambda c: write_relative_bias(c, _BIASES),
            ),
            JsonNote("use_mask_token", lambda facts: False),
        ),
        poolings=("token", "gap"),
        positions=("learned", "none"),
        ignored={
            **_mask_token(prefix),
            r".*relative_position_index": "a number that follows from the grid",
        },
        expresses=("gelu", "layer_norm_epsilon", "position_resize", "pool_before_norm"),
        fields={"qkv_bias": _NO_KEY},
        switches=("position", "final_norm"),
        impossible=limits,
    )


beit = _beit("beit", "Beit", {"an encoder without a last norm": "final_norm!"})
data2vec_vision = _beit(
    "data2vec-vision",
    "Data2VecVision",
    {
        "an encoder without a last norm": "final_norm! num_classes or final_norm! pooling!=gap",
        "features behind a norm of the mean: Data2VecVisionModel has none": (
            "num_classes! numerics.pool_before_norm"
        ),
    },
)

flava_image = _family(
    "flava_image_model",
    "image_model.",
    (None, "FlavaImageModel"),
    _POOLER,
    prefixes=("", "image_model.", "flava.image_model."),
    ignored={r".*embeddings\.mask_token": _MASK},
    only_read="an image model without the text and multimodal models of Flava",
)

dpt = _family(
    "dpt",
    "dpt.",
    (None, "DPTModel"),
    _POOLER,
    ignored={
        r"(neck|head|auxiliary_head)\..*": "the decoder of depths or segments",
        r"dpt\.pooler\..*": "a layer that no class with a decoder reads",
    },
    rows=(
        *_POOLER_ROWS,
        JsonConstant("is_hybrid", False),
        JsonConstant("backbone_config", None),
    ),
    only_read="an encoder without the decoder of DPT",
)

FAMILIES = (vit, deit, vit_mae, vit_msn, ijepa, beit, data2vec_vision, flava_image, dpt)
