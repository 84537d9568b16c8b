"""transformers' SigLIP (arXiv 2303.15343), and SigLIP 2 (arXiv 2502.14786) in its NaFlex form.

The towers of Idefics 3 (arXiv 2408.12637) and SmolVLM are SigLIP's without attention pooling.
"""

import math
from typing import Any

from keras_vit.checkpoints.families.family import Class, Family, Output
from keras_vit.checkpoints.families.keys import Codec, Json, Keys, note, number
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import library
from keras_vit.checkpoints.families.transformers.clip import KEYS, NAMES
from keras_vit.checkpoints.families.transformers.vit import CLASSIFIER
from keras_vit.config import ViTConfig

_POOL: Section = {
    "pool/probe": "head.probe",
    "pool/attention/{qkv}/kernel": "head.attention.in_proj_weight : (qkv h d) m",
    "pool/attention/{qkv}/bias": "head.attention.in_proj_bias : (qkv h d)",
    "pool/attention/out": "head.attention.out_proj",
    "pool/norm": "head.layernorm",
    "pool/mlp/dense_0": "head.mlp.fc1",
    "pool/mlp/dense_1": "head.mlp.fc2",
}
_USE_HEAD = Codec(
    "pool.kind",
    lambda keys: {} if keys["vision_use_head"] else {"pool.kind": "gap"},
    lambda config: {} if config.pool.kind == "map" else {"vision_use_head": False},
)


def _read_patches(keys: Json) -> dict[str, Any]:
    """Returns an image size with the processor's largest number of patches, and the position grid.

    The image is square, or a single row of patches if the number is not a square.
    """
    patch, stored = number(keys, "patch_size"), math.isqrt(number(keys, "num_patches"))
    if keys.get("max_num_patches") is None:
        return {"image_size": stored * patch}
    most = number(keys, "max_num_patches")
    if most < 1:
        raise ValueError("expected at least 1")
    side = math.isqrt(most)
    rows, columns = (side, side) if side * side == most else (1, most)
    return {"image_size": (rows * patch, columns * patch), "position_grid": (stored, stored)}


def _write_patches(config: ViTConfig) -> dict[str, Any]:
    return {"max_num_patches": config.packed_shape[0], "num_patches": math.prod(config.source_grid)}


_OF_NAFLEX: Keys = {
    "image_size": "",
    "max_num_patches num_patches": Codec("image_size position_grid", _read_patches, _write_patches),
}
_FIXED = {"position": "learned", "block.qkv_bias": True, "block.activation": "gelu_tanh"}


def _classes(network: str, word: str) -> dict[str, Class]:
    """Returns the rows of a tower, with and without pooling, a classifier, and the full model.

    Args:
        network: prefix of the names of the classes.
        word: `model_type` of the full model.
    """
    own = f"{word}_vision_model"
    return {
        f"{network}VisionModel": Class(
            own,
            head=False,
            names=_POOL,
            keys={"vision_use_head": _USE_HEAD},
            output=Output(first_patch=0),
        ),
        f"{network}ForImageClassification": Class(
            word,
            inside=own,
            head=True,
            prefix="vision_model.",
            names=CLASSIFIER,
            keys={"vision_use_head": note(False)},
            ignored={r"head\..*": "an attention pooling that the class does not use"},
        ),
        f"{network}Model": Class(
            word,
            inside=own,
            head=False,
            names=_POOL,
            output=Output(f"{network}VisionModel"),
            only_read=library.WITH_TEXT,
        ),
    }


SIGLIP = Family(
    "transformers/siglip",
    library.TRANSFORMERS,
    NAMES,
    keys=KEYS,
    shapes=library.SHAPES,
    fixed=_FIXED,
    limits=library.SQUARE_ALONE,
    classes={
        **_classes("Siglip", "siglip"),
        "Idefics3VisionTransformer": library.tower(
            "idefics3", "idefics3_vision", output=Output(first_patch=0)
        ),
        "SmolVLMVisionTransformer": library.tower(
            "smolvlm", "smolvlm_vision", output=Output(first_patch=0)
        ),
    },
)

# Patches are rows of a matrix, whose projection is equivalent to a convolution. The class resizes
# positions for each image with torch's antialiased bilinear interpolation.
SIGLIP2 = Family(
    "transformers/siglip2",
    library.TRANSFORMERS,
    {**NAMES, "patch_embedding/kernel": "embeddings.patch_embedding.weight : m (p q c)"},
    keys={**KEYS, **_OF_NAFLEX},
    shapes=library.SHAPES,
    fixed={**_FIXED, "stem.kind": "packed", "position_resize": "bilinear_antialias"},
    limits=library.SQUARE_ALONE,
    classes=_classes("Siglip2", "siglip2"),
)
