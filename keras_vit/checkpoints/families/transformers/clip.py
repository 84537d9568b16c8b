"""transformers' CLIP (arXiv 2103.00020), such as `openai/clip-vit-base-patch32`, and its variants.

AltCLIP (arXiv 2211.06679), Chinese CLIP (arXiv 2211.01335), CLIPSeg (arXiv 2112.10003), GIT (arXiv
2205.14100), Kosmos-2 (arXiv 2306.14824), MetaCLIP 2 (arXiv 2507.22062), OWL-ViT (arXiv 2205.06230)
and OWLv2 (arXiv 2306.09683): their vision towers, in separate files or inside a larger model.
"""

from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import Reader, computed
from keras_vit.checkpoints.families.family import Class, Family, Fold, Open, Output
from keras_vit.checkpoints.families.keys import Json, Keys
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import library
from keras_vit.checkpoints.families.transformers.vit import CLASSIFIER

NAMES: Section = {
    "patch_embedding": "embeddings.patch_embedding",
    "position_embedding/embedding": "embeddings.position_embedding.weight : n m",
    "block_{l}/attention_norm": "encoder.layers.{l}.layer_norm1",
    "block_{l}/attention/{qkv}": "encoder.layers.{l}.self_attn.{q}_proj",
    "block_{l}/attention/out": "encoder.layers.{l}.self_attn.out_proj",
    "block_{l}/mlp_norm": "encoder.layers.{l}.layer_norm2",
    "block_{l}/mlp/dense_0": "encoder.layers.{l}.mlp.fc1",
    "block_{l}/mlp/dense_1": "encoder.layers.{l}.mlp.fc2",
    "encoder_norm": "post_layernorm",
}
"""The names that other towers have too."""
KEYS: Keys = {**library.KEYS, "attention_dropout": "attention_dropout_rate"}
_OWN: Section = {"class_token/token": "embeddings.class_embedding : m", "pre_norm": "pre_layrnorm"}
_PROJECTION: Section = {
    "projection/kernel": {"name": "visual_projection.weight : t m", "outside": True}
}
_OF_ALTCLIP: Section = {
    # transformers 5 writes the full model with the text tower's name for a block.
    path: [name, name.replace(".layers.", ".layer.")]
    for path, name in NAMES.items()
    if path.startswith("block_")
}


_NO_PROJECTION = {"a projection, which this class lacks": "projection_size"}
_PROJECTED: dict[str, Any] = {"names": _PROJECTION, "limits": _NO_PROJECTION}
"""Fields of the row of a tower: a file of the full model also has its projection."""
_OWL: dict[str, Any] = {
    "prefix": "vision_model.",
    "names": {**_PROJECTION, "pre_norm": "pre_layernorm"},
    "limits": _NO_PROJECTION,
}
_WITH_HEAD = Class(
    "clip",
    inside="clip_vision_model",
    head=True,
    prefix="vision_model.",
    names={**CLASSIFIER, "encoder_norm": None},
    fixed={"pool.kind": "gap", "pool.norm": "none", "tokens.class_tokens": 1},
    ignored={r"post_layernorm\..*": "a norm that the class does not use"},
)
"""The class with a head on the mean of the patches."""


def _add_last_norm(reader: Reader, files: Json) -> Reader:
    """Adds a classifier's last norm, which its class has but does not use."""
    norm = "vision_model.post_layernorm"
    if "classifier.weight" not in reader.shapes:
        return reader
    shape = reader.shapes["vision_model.pre_layrnorm.weight"]
    weight, bias = np.ones(shape, "float32"), np.zeros(shape, "float32")
    return computed(reader, {f"{norm}.weight": weight, f"{norm}.bias": bias})


CLIP = Family(
    "transformers/clip",
    library.TRANSFORMERS,
    {**NAMES, **_OWN},
    keys=KEYS,
    shapes=library.SHAPES,
    fixed={
        "pool.kind": "token",
        "position": "learned",
        "patch_bias": False,
        "block.input_norm": "tokens",
        "block.qkv_bias": True,
        "block.epsilon": 1e-5,
    },
    limits=library.SQUARE_ALONE,
    open={
        "block.activation": Open(
            "'quick_gelu' in the weights of OpenAI, MetaCLIP and DFN, 'gelu' in those of LAION "
            "and DataComp"
        )
    },
    fold=Fold(write=_add_last_norm),
    classes={
        "CLIPVisionModel": Class("clip_vision_model", head=False),
        "CLIPVisionModelWithProjection": Class(
            "clip_vision_model",
            head=False,
            prefix="vision_model.",
            names=_PROJECTION,
            keys={"projection_dim": "projection_size"},
        ),
        "CLIPForImageClassification": _WITH_HEAD,
        "CLIPModel": Class(
            "clip",
            inside="clip_vision_model",
            head=False,
            names=_PROJECTION,
            output=Output("CLIPVisionModelWithProjection"),
            only_read=library.WITH_TEXT,
        ),
        "AltCLIPVisionModel": library.tower(
            "altclip", names={**_PROJECTION, **_OF_ALTCLIP}, limits=_NO_PROJECTION
        ),
        "ChineseCLIPVisionModel": library.tower("chinese_clip", **_PROJECTED),
        "CLIPSegVisionModel": library.tower("clipseg", **_PROJECTED),
        "GitVisionModel": library.tower("git", prefix="vision_model."),
        "Kosmos2VisionModel": library.tower(
            "kosmos-2", only_read="transformers has no class for just the tower of Kosmos-2"
        ),
        "MetaClip2VisionModel": library.tower("metaclip_2", **_PROJECTED),
        "MetaClip2ForImageClassification": _WITH_HEAD._replace(
            words="metaclip_2", name="metaclip_2_classifier", inside="metaclip_2_vision_model"
        ),
        "OwlViTVisionModel": library.tower("owlvit", **_OWL),
        "Owlv2VisionModel": library.tower("owlv2", **_OWL),
    },
)
