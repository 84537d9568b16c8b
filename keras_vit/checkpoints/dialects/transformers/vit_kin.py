"""DeiT, MAE, MSN and I-JEPA of transformers, which have the blocks of its ViT."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.json_fields import (
    Facts,
    JsonConstant,
    JsonField,
    JsonNote,
    JsonTable,
    Row,
)
from keras_vit.checkpoints.dialects.torch_layout import POSITIONS_OF_ANOTHER_GRID, torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    DROPOUT_ROWS,
    LABEL_ROWS,
    VIT_REASONS,
    architectures,
    arithmetic_rows,
    classifier_names,
    has_head,
    impossible,
    needs,
    size_rows,
    vit_names,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics

_NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, even if the file also has a pooler."""


def _family(
    model_type: str,
    prefix: str,
    names: tuple[str | None, str],
    words: Mapping[str, Names],
    classifiers: tuple[str, ...],
    epsilon: float = 1e-12,
    rows: tuple[Row, ...] = (),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a family that has the blocks of ViT."""
    fixed: dict[str, Any] = {"position": "learned", "position_before_class": False}
    if len(classifiers) == 1:
        fixed["classifier"] = classifiers[0]
    return Dialect(
        name=f"transformers/{model_type}",
        library="transformers",
        container="safetensors",
        words=unsupported(VIT_REASONS, {**vit_names(), **words}),
        prefixes=more.pop("prefixes", (prefix, "")),
        identity=Identity("config.json", "model_type", model_type, repr(model_type)),
        json=(
            JsonTable(
                "config.json",
                (
                    more.pop("class_name", None) or architectures(*names),
                    JsonConstant("model_type", model_type),
                    *size_rows(),
                    JsonField("qkv_bias", "qkv_bias", default=True),
                    *arithmetic_rows("gelu", epsilon),
                    *DROPOUT_ROWS,
                    *rows,
                    *(LABEL_ROWS if names[0] else ()),
                ),
            ),
        ),
        images=processor,
        numerics=Numerics(gelu="exact", layer_norm_epsilon=epsilon, position_resize="bicubic"),
        expresses=("gelu", "layer_norm_epsilon", "position_resize"),
        impossible=(
            *impossible(*classifiers),
            POSITIONS_OF_ANOTHER_GRID,
            *more.pop("impossible", ()),
        ),
        crops=False,
        metadata={"format": "pt"},
        **{
            "prefix_for": lambda config: prefix if config.num_classes else "",
            **more,
            "fields": fixed | more.get("fields", {}),
        },
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
    ("DeiTForImageClassification", "DeiTModel"),
    {
        "distillation_token/token": StoredAs("embeddings.distillation_token"),
        **torch_modules({"pre_logits": "pooler.dense"}),
        **classifier_names(_NO_POOLER),
        "head/{head}/kernel": StoredAs(
            "{cls}_classifier.weight", "k e", implies=_TEACHER, outside=True
        ),
        "head/{head}/bias": StoredAs("{cls}_classifier.bias", implies=_TEACHER, outside=True),
    },
    ("token", "token_and_distillation"),
    fields={"distillation_token": True},
    switches=("distillation_token", "token_and_distillation"),
    class_name=JsonNote("architectures", _deit_class),
    impossible=needs(distillation_token=True),
    ignored={r"(deit\.)?embeddings\.mask_token": "mask of masked image modelling"},
)

vit_mae = _family(
    "vit_mae",
    "vit.",
    (None, "ViTMAEModel"),
    {},
    ("token",),
    ignored={r"decoder\..*": "the decoder of pretraining"},
    impossible=((has_head, "a head: transformers has no classifier of this family"),),
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
    ("token",),
    epsilon=1e-6,
    ignored={r"(vit\.)?embeddings\.mask_token": "mask of masked image modelling"},
)

ijepa = _family(
    "ijepa",
    "ijepa.",
    ("IJepaForImageClassification", "IJepaModel"),
    {**classifier_names({})},
    ("gap",),
    fields={"class_token": None},
    ignored={r"(ijepa\.)?embeddings\.mask_token": "mask of masked image modelling"},
    impossible=((lambda c: c.has_class_token, "a class token"),),
)

flava_image = _family(
    "flava_image_model",
    "image_model.",
    (None, "FlavaImageModel"),
    {**torch_modules({"pre_logits": "pooler.dense"})},
    ("token",),
    prefixes=("", "image_model.", "flava.image_model."),
    ignored={r".*embeddings\.mask_token": "mask of masked image modelling"},
    only_read="an image model alone, where Flava's files have text and multimodal models too",
)

dpt = _family(
    "dpt",
    "dpt.",
    (None, "DPTModel"),
    {},
    ("token",),
    ignored={
        r"(neck|head|auxiliary_head)\..*": "what makes depths or segments of the tokens",
        r"(dpt\.)?pooler\..*": "a layer that no class of DPT reads",
    },
    rows=(JsonConstant("is_hybrid", False), JsonConstant("backbone_config", None)),
    only_read="an encoder alone, where DPT has a decoder too",
)
