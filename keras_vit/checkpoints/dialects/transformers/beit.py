"""transformers' BEiT (arXiv 2106.08254), and Data2Vec's image model, which is the same network."""

from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Feature, Limits
from keras_vit.checkpoints.dialects.json_fields import (
    HAS_POSITIONS,
    Codec,
    Json,
    JsonField,
    JsonFields,
    note,
    one_of,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section, last_norms
from keras_vit.checkpoints.dialects.torch_conventions import (
    read_relative_bias,
    write_relative_bias,
)
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.vit import family_with_blocks, mask_token
from keras_vit.errors import shown

_NAMES: Section = {
    "relative_position_bias/table": "encoder.relative_position_bias.relative_position_bias_table",
    "position_bias_{l}/table": "encoder.layer.{l}.attention.attention.relative_position_bias.relative_position_bias_table",
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.lambda_1",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.lambda_2",
    "encoder_norm": last_norms("pooler.layernorm", "layernorm"),
}

_NO_KEY = (True, False, True)
_BIASES = ("use_relative_position_bias", "use_shared_relative_position_bias")
_POOLINGS = one_of({True: "gap", False: "token"})
_SCALE = Codec(lambda initial: initial or 0, lambda value: value if value > 0 else None)
_SWAPS = "transformers reads the rows of a table as its columns"


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


def _beit(model_type: str, class_name: str, of_model: Limits, feature: Feature) -> Dialect:
    """Returns the dialect of BEiT, or of Data2Vec's image model, which is the same network.

    Args:
        model_type: the family's word in config.json.
        class_name: start of the names of its classes.
        of_model: models that the class without a head lacks.
        feature: the output of the class without a head.
    """
    prefix = model_type.replace("-", "_") + "."
    limits: Limits = {
        f"patches or a grid that are not square: {_SWAPS}": (
            "patch_size!=square or table_grid!=square or image_size image_size!=square"
        ),
        "a norm before the mean of the patches": "pool.kind=gap pool.norm=before",
        **of_model,
    }
    return family_with_blocks(
        model_type,
        prefix,
        (f"{class_name}ForImageClassification", f"{class_name}Model"),
        {**TORCH.names(_NAMES), **common.classifier_names()},
        rows=(
            JsonField("drop_path_rate", "stochastic_depth_rate"),
            JsonField("use_mean_pooling", "pool.kind", _POOLINGS, default=True),
            JsonField("layer_scale_init_value", "block.layer_scale", _SCALE, default=0.1),
            JsonField("use_absolute_position_embeddings", "position", HAS_POSITIONS, default=False),
            JsonFields(
                _BIASES,
                ("relative_position_bias",),
                _read_bias,
                lambda c: write_relative_bias(c, _BIASES),
            ),
            note("use_mask_token", False),
        ),
        poolings=("token", "gap"),
        positions=("learned", "none"),
        ignored={
            **mask_token(prefix),
            r".*relative_position_index": "a number that follows from the grid",
        },
        expresses=("block.activation", "block.epsilon", "position_resize", "pool.norm"),
        fields={"block.qkv_bias": _NO_KEY},
        switches=("position", "pool.norm=none"),
        impossible=limits,
        feature=feature,
    )


FAMILIES = (
    _beit("beit", "Beit", {"an encoder without a last norm": "pool.norm=none"}, Feature()),
    _beit(
        "data2vec-vision",
        "Data2VecVision",
        {
            "an encoder without a last norm": (
                "pool.norm=none num_classes or pool.norm=none pool.kind!=gap"
            ),
            "features behind a norm of the mean: Data2VecVisionModel has none": (
                "num_classes! pool.norm=after"
            ),
        },
        Feature(first_patch=1),
    ),
)
