"""transformers' ViT, such as `google/vit-base-patch16-224` of `ViTForImageClassification`.

Files of a classifier have the prefix of the family, such as `vit.`, in every name except the
head's; files of an encoder have none. The pooler of an encoder is the representation layer of
keras_vit. Many families have the blocks of ViT, and are built by `family_with_blocks`.
"""

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Limits, Names
from keras_vit.checkpoints.dialects.json_fields import JsonField, Row, constant, note
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common

NAMES: Section = {
    "patch_embedding": "embeddings.patch_embeddings.projection",
    "class_token/token": "embeddings.cls_token",
    "position_embedding/embedding": "embeddings.position_embeddings",
    "block_{l}/attention_norm": "encoder.layer.{l}.layernorm_before",
    "block_{l}/attention/{qkv}": "encoder.layer.{l}.attention.attention.{qkv}",
    "block_{l}/attention/out": "encoder.layer.{l}.attention.output.dense",
    "block_{l}/mlp_norm": "encoder.layer.{l}.layernorm_after",
    "block_{l}/mlp/dense_0": "encoder.layer.{l}.intermediate.dense",
    "block_{l}/mlp/dense_1": "encoder.layer.{l}.output.dense",
    "encoder_norm": "layernorm",
}

MASK = "mask of masked image modelling"
POOLER = TORCH.names({"pre_logits": "pooler.dense"})
POOLER_ROWS: tuple[Row, ...] = (
    note(
        "pooler_output_size",
        lambda facts: facts.config.representation_size or facts.config.hidden_size,
    ),
    constant("pooler_act", "tanh"),
)
NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, even if the file also has a pooler."""
NOT_BOTH: Limits = {"a head behind a representation layer": "representation_size num_classes"}


def family_with_blocks(
    model_type: str,
    prefix: str,
    classes: tuple[str | None, str],
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
        classes: the classes with a head and without.
        words: names of weights that ViT's encoder lacks, or has under other names.
        epsilon: LayerNorm's epsilon where config.json has none.
        rows: further rows of config.json.
        fields: facts about every file. config.json states `block.qkv_bias` if it is not among
            them.
        **more: further arguments of `common.dialect`.
    """
    biases = (JsonField("qkv_bias", "block.qkv_bias", default=True),)
    return common.dialect(
        model_type,
        {**TORCH.names(NAMES), **words},
        (
            common.architectures(*classes),
            *common.size_rows(),
            *(() if "block.qkv_bias" in fields else biases),
            *common.arithmetic_rows("gelu", epsilon),
            *common.DROPOUT_ROWS,
            *rows,
            *(common.LABEL_ROWS if classes[0] else ()),
        ),
        prefix=prefix,
        epsilon=epsilon,
        fields=fields,
        **{"ignored": mask_token(prefix), **more},
    )


def mask_token(prefix: str) -> dict[str, str]:
    """Returns the name of the mask token to ignore, with and without the prefix of a family."""
    return {rf"({re.escape(prefix)})?embeddings\.mask_token": MASK}


FAMILIES = (
    dataclasses.replace(
        family_with_blocks(
            "vit",
            "vit.",
            ("ViTForImageClassification", "ViTModel"),
            {**POOLER, **common.classifier_names(NO_POOLER)},
            rows=POOLER_ROWS,
            impossible=NOT_BOTH,
        ),
        name="transformers",
    ),
)
