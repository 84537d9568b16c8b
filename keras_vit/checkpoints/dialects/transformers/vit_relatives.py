"""transformers' relatives of ViT, which have its blocks.

DeiT (arXiv 2012.12877): a distillation token, and a head for it or not. The encoder of MAE (arXiv
2111.06377), with or without the decoder of pretraining. MSN (arXiv 2204.07141). I-JEPA (arXiv
2301.08243): no class token. The encoder of DPT (arXiv 2103.13413). The image model of FLAVA (arXiv
2112.04482), alone or inside of FLAVA.
"""

import dataclasses

from keras_vit.checkpoints.dialects.base import Feature, Names
from keras_vit.checkpoints.dialects.json_fields import constant, note
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common, vit

_WORDS_OF_DEIT: Section = {
    "distillation_token/token": "embeddings.distillation_token",
    "head/{head}": {
        "name": "{cls}_classifier",
        "implies": {"pool.kind": "token_and_distillation", "representation_size": None},
        "outside": True,
    },
}
_WORDS_OF_MSN: dict[str, Names] = {
    # transformers 5 writes a classifier's tokens and last norm with `vit.`, its blocks without.
    path: (*names, *(dataclasses.replace(name, outside=True) for name in names))
    if path.startswith("block_")
    else names
    for path, names in TORCH.names(vit.NAMES).items()
}

FAMILIES = (
    vit.family_with_blocks(
        "deit",
        "deit.",
        ("DeiTForImageClassification", "DeiTModel"),
        {**vit.POOLER, **TORCH.names(_WORDS_OF_DEIT), **common.classifier_names(vit.NO_POOLER)},
        poolings=("token", "token_and_distillation"),
        fields={"tokens.distillation": True},
        rows=vit.POOLER_ROWS,
        impossible={
            **vit.NOT_BOTH,
            "two heads without classes": "pool.kind=token_and_distillation num_classes!",
        },
    ),
    vit.family_with_blocks(
        "vit_mae",
        "vit.",
        (None, "ViTMAEModel"),
        {},
        ignored={r"decoder\..*": "the decoder of pretraining"},
        fields={"num_classes": 0},
        prefix_for=lambda config: "",
        # A share of hidden patches belongs to pretraining; the class hides that share in inference
        # too.
        rows=(note("mask_ratio", 0.0),),
        feature=Feature("ViTMAEModel", arguments={"mask_ratio": 0.0}),
    ),
    vit.family_with_blocks(
        "vit_msn",
        "vit.",
        ("ViTMSNForImageClassification", "ViTMSNModel"),
        {**_WORDS_OF_MSN, **common.classifier_names()},
        epsilon=1e-6,
    ),
    vit.family_with_blocks(
        "ijepa",
        "ijepa.",
        ("IJepaForImageClassification", "IJepaModel"),
        common.classifier_names(),
        poolings=("gap",),
        fields={"tokens.class_tokens": 0},
        feature=Feature(first_patch=0),
    ),
    vit.family_with_blocks(
        "dpt",
        "dpt.",
        (None, "DPTModel"),
        vit.POOLER,
        ignored={
            r"(neck|head|auxiliary_head)\..*": "the decoder of depths or segments",
            r"dpt\.pooler\..*": "a layer that no class with a decoder reads",
        },
        rows=(*vit.POOLER_ROWS, constant("is_hybrid", False), constant("backbone_config", None)),
        only_read="an encoder without the decoder of DPT",
    ),
    vit.family_with_blocks(
        "flava_image_model",
        "image_model.",
        (None, "FlavaImageModel"),
        vit.POOLER,
        prefixes=("", "image_model.", "flava.image_model."),
        ignored={
            r".*embeddings\.mask_token": vit.MASK,
            r"(flava\.)?logit_scale": "the temperature of the contrastive loss",
        },
        only_read="an image model without the text and multimodal models of Flava",
    ),
)
