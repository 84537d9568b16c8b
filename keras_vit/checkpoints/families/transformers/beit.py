"""transformers' BEiT (arXiv 2106.08254), and Data2Vec's image model, the same network."""

from keras_vit.checkpoints.families.codecs import layer_scale_or_zero, relative_bias
from keras_vit.checkpoints.families.family import Class, Family, Output
from keras_vit.checkpoints.families.keys import Codec, Facts, Json, note
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import library, vit
from keras_vit.errors import shown

_KEYS_OF_BIAS = "use_relative_position_bias use_shared_relative_position_bias"
_BIAS = relative_bias(_KEYS_OF_BIAS)
_SWAPS = "transformers swaps rows and columns of the position bias"


def _read_bias(content: Json) -> Facts:
    facts, size = dict(_BIAS.read(content)), content.get("image_size")
    if facts["relative_position_bias"] and isinstance(size, list) and size != size[::-1]:
        raise ValueError(f"with image_size={shown(size)}, expected a square: {_SWAPS}")
    return facts


_OF_MEAN = {
    "name": "pooler.layernorm",
    "when": "pool.kind=gap pool.norm!=none",
    "implies": {"pool.kind": "gap", "pool.norm": "after"},
}
_OF_TOKENS = {"name": "layernorm", "when": "pool.kind!=gap"}
_NAMES: Section = {
    **vit.NAMES,
    **vit.CLASSIFIER,
    "relative_position_bias/table": "encoder.relative_position_bias.relative_position_bias_table",
    "position_bias_{l}/table": (
        "encoder.layer.{l}.attention.attention.relative_position_bias.relative_position_bias_table"
    ),
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.lambda_1",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.lambda_2",
    "encoder_norm": [_OF_MEAN, _OF_TOKENS],
}

_NORM_OR_NONE: Section = {"encoder_norm": [_OF_MEAN, _OF_TOKENS, None]}
"""The names in classes without a pooler, whose norm follows a mean."""
_OF_DATA2VEC = Class(
    "data2vec-vision",
    "data2vec-vision",
    names=_NORM_OR_NONE,
    limits={
        "an encoder without a last norm": "pool.norm=none pool.kind!=gap",
        "features after a norm of the mean: Data2VecVisionModel has none": "pool.norm=after",
    },
    output=Output("Data2VecVisionModel", first_patch=1),
)

BEIT = Family(
    "transformers/beit",
    library.TRANSFORMERS,
    names=_NAMES,
    keys={
        **library.KEYS,
        **library.DROPOUT,
        "drop_path_rate": "stochastic_depth_rate",
        "use_mean_pooling": ("pool.kind", {True: "gap", False: "token"}),
        "layer_scale_init_value": layer_scale_or_zero,
        "use_absolute_position_embeddings": ("position", {True: "learned", False: "none"}),
        "use_mask_token": note(False),
    },
    shapes={**library.SHAPES, _KEYS_OF_BIAS: Codec(_BIAS.fields, _read_bias, _BIAS.write)},
    classes={
        "BeitBackbone": Class(
            "beit",
            head=False,
            names=_NORM_OR_NONE,
            only_read="an encoder inside a larger model, such as ZoeDepth",
        ),
        **library.encoder_and_classifier("Beit", Class("beit")),
        **library.encoder_and_classifier(
            "Data2VecVision", _OF_DATA2VEC, names={}, limits={}, output=Output()
        ),
    },
    fixed={
        "block.norm": "layer",
        "block.epsilon": 1e-12,
        "block.qkv_bias": (True, False, True),
        "tokens.class_tokens": 1,
    },
    limits={
        f"patches or a grid that are not square: {_SWAPS}": (
            "patch_size!=square or table_grid!=square or image_size image_size!=square"
        )
    },
    ignored={r".*relative_position_index": "indices, which follow from the grid"},
)
