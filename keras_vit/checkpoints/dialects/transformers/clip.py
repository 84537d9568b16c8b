"""transformers' CLIP (arXiv 2103.00020), such as `openai/clip-vit-base-patch32` of `CLIPModel`."""

import numpy as np

from keras_vit.checkpoints.containers import Reader, computed
from keras_vit.checkpoints.dialects.base import Dialect, Feature, Fold
from keras_vit.checkpoints.dialects.json_fields import Json, JsonField
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.towers import (
    NAMES,
    NO_CLASSES,
    PROJECTION,
    TOWER,
    WITH_TEXT,
    Encoder,
    projection,
    tower,
    tower_inside,
)

_OWN: Section = {
    "class_token/token": "embeddings.class_embedding : m",
    "pre_norm": "pre_layrnorm",
}
WORDS = TORCH.names(NAMES, _OWN)
FIELDS = {"block.input_norm": "tokens", "patch_bias": False, "block.qkv_bias": True}

ENCODER = Encoder(
    "clip",
    WORDS,
    common.tower_rows("quick_gelu", 1e-5),
    common.tower_sizes(768, 3072, 12, 12, 224, 32) | {"num_channels": 3},
    FIELDS,
    {
        "activation": "quick_gelu",
        "epsilon": 1e-5,
        "undetermined": lambda fields: common.ACTIVATION_OF_CLIP,
    },
    refusals=common.SQUARE_ALONE,
)
_PROJECTED = projection(PROJECTION)


def _with_last_norm(reader: Reader, files: Json) -> Reader:
    """Returns the arrays with the last norm of the tower, which its class makes and does not read."""
    shape = reader.shapes[f"{TOWER}pre_layrnorm.weight"]
    norm = {"weight": np.ones(shape, "float32"), "bias": np.zeros(shape, "float32")}
    return computed(reader, {f"{TOWER}post_layernorm.{key}": norm[key] for key in norm})


def classifier(encoder: Encoder, class_name: str) -> Dialect:
    """Returns the dialect of the class with a head on the mean of the patches."""
    return tower_inside(
        encoder,
        class_name,
        "gap",
        common.classifier_names(),
        name=f"{encoder.model_type}_classifier",
        fields={"pool.norm": "none"},
        refusals=NO_CLASSES,
        ignored={r"vision_model\.post_layernorm\..*": "a norm that the class does not use"},
        fold=Fold(write=_with_last_norm),
    )


FAMILIES = (
    tower(
        ENCODER,
        "CLIPVisionModel",
        "token",
        {},
        prefixes=("", TOWER),
    ),
    tower(
        ENCODER,
        "CLIPVisionModelWithProjection",
        "token",
        _PROJECTED,
        name="clip_vision_model_with_projection",
        rows=(JsonField("projection_dim", "projection_size", default=512),),
        refusals={"projection_size=None": "projection_size!"},
        prefixes=(TOWER, ""),
        prefix_for=lambda config: TOWER,
    ),
    classifier(ENCODER, "CLIPForImageClassification"),
    tower_inside(
        ENCODER,
        "CLIPModel",
        "token",
        _PROJECTED,
        only_read=WITH_TEXT,
        feature=Feature("CLIPVisionModelWithProjection"),
    ),
)
