"""transformers' ViT, such as `google/vit-base-patch16-224`, and networks with the same blocks.

DeiT (arXiv 2012.12877) has a distillation token, with or without its own head. The encoder of MAE
(arXiv 2111.06377). MSN (arXiv 2204.07141). I-JEPA (arXiv 2301.08243), without a class token. The
encoder of DPT (arXiv 2103.13413). The image model of FLAVA (arXiv 2112.04482). The pooler of an
encoder is the representation layer of keras_vit; classifiers do not have it.
"""

from keras_vit.checkpoints.families.family import Class, Family, Output
from keras_vit.checkpoints.families.keys import note, only
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import library

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
CLASSIFIER: Section = {"head": {"name": "classifier", "outside": True}}
_DISTILLATION: Section = {"distillation_token/token": "embeddings.distillation_token"}
_TWO_HEADS: Section = {"head": None, "head/{head}": {"name": "{cls}_classifier", "outside": True}}
_OF_MSN: Section = {
    # transformers 5 writes a classifier's tokens and last norm with `vit.`, but not its blocks.
    path: [name, {"name": name, "outside": True}] if path.startswith("block_") else name
    for path, name in NAMES.items()
}
_UNREAD_POOLER = {r"pooler\.dense\..*": "a layer that the class does not use"}
_POOLED = Class(
    head=False,
    names={"pre_logits": "pooler.dense"},
    keys={
        "pooler_output_size": note(lambda config: config.representation_size or config.hidden_size),
        "pooler_act": only("tanh"),
    },
)
_DEIT = _POOLED._replace(words="deit", name="deit", fixed={"tokens.distillation": True})

VIT = Family(
    "transformers",
    library.TRANSFORMERS,
    names={**NAMES, **CLASSIFIER},
    keys={**library.KEYS, **library.DROPOUT},
    shapes={**library.SHAPES, "qkv_bias": "block.qkv_bias"},
    fixed={"pool.kind": "token", "position": "learned", "block.epsilon": 1e-12},
    classes={
        **library.encoder_and_classifier(
            "ViT", _POOLED._replace(words="vit"), names={}, ignored=_UNREAD_POOLER
        ),
        **library.encoder_and_classifier(
            "DeiT",
            _DEIT._replace(names={**_POOLED.names, **_DISTILLATION}),
            names=_DISTILLATION,
            ignored=_UNREAD_POOLER,
        ),
        "DeiTForImageClassificationWithTeacher": _DEIT._replace(
            head=True,
            prefix="deit.",
            names={**_DISTILLATION, **_TWO_HEADS},
            fixed={**_DEIT.fixed, "pool.kind": "token_and_distillation"},
            ignored=_UNREAD_POOLER,
        ),
        "ViTMAEModel": Class(
            "vit_mae",
            "vit_mae",
            head=False,
            # The fraction of masked patches is for pretraining, but the class masks them in
            # inference too.
            keys={"mask_ratio": note(0.0)},
            ignored={r"decoder\..*": "the decoder of pretraining"},
            output=Output("ViTMAEModel", arguments={"mask_ratio": 0.0}),
        ),
        **library.encoder_and_classifier(
            "ViTMSN",
            Class("vit_msn", "vit_msn", names=_OF_MSN, fixed={"block.epsilon": 1e-6}),
            prefix="vit.",
        ),
        **library.encoder_and_classifier(
            "IJepa",
            Class(
                "ijepa",
                "ijepa",
                names={"class_token/token": None},
                fixed={"pool.kind": "gap"},
                output=Output(first_patch=0),
            ),
        ),
        "DPTModel": _POOLED._replace(
            words="dpt",
            name="dpt",
            keys={**_POOLED.keys, "is_hybrid": only(False)},
            only_read="an encoder without the decoder of DPT",
        ),
        "FlavaImageModel": _POOLED._replace(
            words="flava_image_model",
            name="flava_image_model",
            only_read="an image model without the text and multimodal models of Flava",
        ),
    },
)
