"""ViT of transformers, and DeiT, MAE, MSN, I-JEPA, Flava and DPT, which have its blocks.

Files of a classifier have the prefix of the family, such as `vit.`, in every name except the
head's; files of an encoder have none. The pooler of an encoder is the representation layer of
keras_vit.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Names, StoredAs
from keras_vit.checkpoints.dialects.json_fields import (
    Facts,
    JsonConstant,
    JsonField,
    JsonNote,
    Row,
)
from keras_vit.checkpoints.dialects.torch_layout import torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    DROPOUT_ROWS,
    LABEL_ROWS,
    NO_HEAD,
    architectures,
    arithmetic_rows,
    classifier_names,
    dialect,
    needs,
    size_rows,
    vit_names,
)

_MASK = "mask of masked image modelling"
_POOLER = torch_modules({"pre_logits": "pooler.dense"})
_NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, even if the file also has a pooler."""


def _family(
    model_type: str,
    prefix: str,
    classes: tuple[str | None, str] | JsonNote,
    words: Mapping[str, Names],
    epsilon: float = 1e-12,
    rows: tuple[Row, ...] = (),
    classifiers: tuple[str, ...] = ("token",),
    fields: Mapping[str, Any] | None = None,
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
        classifiers: inputs of the head, see `ViTConfig`.
        fields: fields of `ViTConfig` that every file has, beside a single classifier.
        **more: further arguments of `dialect`.
    """
    fixed = ("classifier",) if len(classifiers) == 1 else ()
    note = classes if isinstance(classes, JsonNote) else architectures(*classes)
    has_classifier = isinstance(classes, JsonNote) or classes[0]
    return dialect(
        model_type,
        {**vit_names(), **words},
        (
            note,
            *size_rows(),
            JsonField("qkv_bias", "qkv_bias", default=True),
            *arithmetic_rows("gelu", epsilon),
            *DROPOUT_ROWS,
            *rows,
            *(LABEL_ROWS if has_classifier else ()),
        ),
        epsilon=epsilon,
        classifiers=classifiers,
        fields={**dict.fromkeys(fixed, classifiers[0]), **(fields or {})},
        **{
            "prefixes": (prefix, ""),
            "prefix_for": lambda config: prefix if config.num_classes else "",
            "ignored": {rf"({re.escape(prefix)})?embeddings\.mask_token": _MASK},
            **more,
        },
    )


vit = dataclasses.replace(
    _family(
        "vit",
        "vit.",
        ("ViTForImageClassification", "ViTModel"),
        {**_POOLER, **classifier_names(_NO_POOLER)},
        rows=(
            JsonNote(
                "pooler_output_size",
                lambda facts: facts.config.representation_size or facts.config.hidden_size,
            ),
            JsonConstant("pooler_act", "tanh"),
        ),
    ),
    name="transformers",
)


def _deit_class(facts: Facts) -> list[str]:
    if facts.config.num_classes == 0:
        return ["DeiTModel"]
    teacher = "WithTeacher" if facts.config.has_two_heads else ""
    return [f"DeiTForImageClassification{teacher}"]


_TEACHER = {"classifier": "token_and_distillation", **_NO_POOLER}

deit = _family(
    "deit",
    "deit.",
    JsonNote("architectures", _deit_class),
    {
        "distillation_token/token": StoredAs("embeddings.distillation_token"),
        **_POOLER,
        **classifier_names(_NO_POOLER),
        "head/{head}/kernel": StoredAs(
            "{cls}_classifier.weight", "k e", implies=_TEACHER, outside=True
        ),
        "head/{head}/bias": StoredAs("{cls}_classifier.bias", implies=_TEACHER, outside=True),
    },
    classifiers=("token", "token_and_distillation"),
    fields={"distillation_token": True},
    switches=("distillation_token", "token_and_distillation"),
    impossible=needs(distillation_token=True),
)

vit_mae = _family(
    "vit_mae",
    "vit.",
    (None, "ViTMAEModel"),
    {},
    ignored={r"decoder\..*": "the decoder of pretraining"},
    impossible=(NO_HEAD,),
    prefix_for=lambda config: "",
    # A share of hidden patches belongs to pretraining; the class hides that share in inference too.
    rows=(JsonNote("mask_ratio", lambda facts: 0.0),),
)

_MSN_WORDS: dict[str, Names] = {
    # transformers 5 writes a classifier's tokens and last norm with `vit.`, its blocks without.
    path: (name, dataclasses.replace(name, outside=True)) if path.startswith("block_") else name
    for path, name in vit_names().items()
}

vit_msn = _family(
    "vit_msn",
    "vit.",
    ("ViTMSNForImageClassification", "ViTMSNModel"),
    {**_MSN_WORDS, **classifier_names({})},
    epsilon=1e-6,
)

ijepa = _family(
    "ijepa",
    "ijepa.",
    ("IJepaForImageClassification", "IJepaModel"),
    classifier_names({}),
    classifiers=("gap",),
    fields={"class_token": None},
    impossible=((lambda c: c.has_class_token, "a class token"),),
)

flava_image = _family(
    "flava_image_model",
    "image_model.",
    (None, "FlavaImageModel"),
    _POOLER,
    prefixes=("", "image_model.", "flava.image_model."),
    ignored={r".*embeddings\.mask_token": _MASK},
    only_read="an image model alone, where Flava's files have text and multimodal models too",
)

dpt = _family(
    "dpt",
    "dpt.",
    (None, "DPTModel"),
    {},
    ignored={
        r"(neck|head|auxiliary_head)\..*": "what makes depths or segments of the tokens",
        r"(dpt\.)?pooler\..*": "a layer that no class of DPT reads",
    },
    rows=(JsonConstant("is_hybrid", False), JsonConstant("backbone_config", None)),
    only_read="an encoder alone, where DPT has a decoder too",
)

FAMILIES = (vit, deit, vit_mae, vit_msn, ijepa, flava_image, dpt)
