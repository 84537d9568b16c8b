"""The official checkpoints of google-research/vision_transformer, such as `ViT-B_16.npz`.

There are two spellings of one model. `google` has the names from before flax linen, as every
published npz of the paper and of AugReg: one count numbers all submodules of a block.
`google_linen` has the names that today's code writes: one count for each class. Sources:
`vit_jax/models_vit.py`, `vit_jax/models_resnet.py`, `vit_jax/checkpoint.py`.
"""

import dataclasses
from collections.abc import Mapping

from keras_vit.checkpoints.families.family import Family, Library, Rule
from keras_vit.checkpoints.families.names import FLAX, Section

NAMES: Section = {
    "patch_embedding": "embedding",
    "class_token/token": "cls",
    "block_{l}/attention_norm": "Transformer/encoderblock_{l}/LayerNorm_0",
    "encoder_norm": "Transformer/encoder_norm",
    "pre_logits": "pre_logits",
    "head": "head",
}
"""The names that big_vision shares."""
_OF_STEM: Section = {
    "position_embedding/embedding": "Transformer/posembed_input/pos_embedding",
    "root/conv": "conv_root",
    "stage{s}_unit{u}/conv_proj": "block{s}/unit{u}/conv_proj",
    "stage{s}_unit{u}/conv1": "block{s}/unit{u}/conv1",
    "stage{s}_unit{u}/conv2": "block{s}/unit{u}/conv2",
    "stage{s}_unit{u}/conv3": "block{s}/unit{u}/conv3",
    "root/norm": "gn_root",
    "stage{s}_unit{u}/norm_proj": "block{s}/unit{u}/gn_proj",
    "stage{s}_unit{u}/norm1": "block{s}/unit{u}/gn1",
    "stage{s}_unit{u}/norm2": "block{s}/unit{u}/gn2",
    "stage{s}_unit{u}/norm3": "block{s}/unit{u}/gn3",
}
_PRE_LINEN: Section = {
    "block_{l}/attention/{qkv}": "Transformer/encoderblock_{l}/MultiHeadDotProductAttention_1/{qkv}",
    "block_{l}/attention/out": "Transformer/encoderblock_{l}/MultiHeadDotProductAttention_1/out",
    "block_{l}/mlp_norm": "Transformer/encoderblock_{l}/LayerNorm_2",
    "block_{l}/mlp/dense_0": "Transformer/encoderblock_{l}/MlpBlock_3/Dense_0",
    "block_{l}/mlp/dense_1": "Transformer/encoderblock_{l}/MlpBlock_3/Dense_1",
}
LINEN: Section = {
    "block_{l}/attention/{qkv}": "Transformer/encoderblock_{l}/MultiHeadDotProductAttention_0/{qkv}",
    "block_{l}/attention/out": "Transformer/encoderblock_{l}/MultiHeadDotProductAttention_0/out",
    "block_{l}/mlp_norm": "Transformer/encoderblock_{l}/LayerNorm_1",
    "block_{l}/mlp/dense_0": "Transformer/encoderblock_{l}/MlpBlock_0/Dense_0",
    "block_{l}/mlp/dense_1": "Transformer/encoderblock_{l}/MlpBlock_0/Dense_1",
}


LIBRARY = Library(
    "google-research/vision_transformer",
    "npz",
    FLAX,
    ignored={r"opt/state(/.*)?": "optimizer state", r"(opt/)?step": "training step"},
)
_FIXED = {"position": "learned", "block.qkv_bias": True}
LIMITS: Mapping[str, Rule] = {
    "a class token that the head does not read": "tokens.class_tokens pool.kind=gap|map"
}
"""A limit of the official code and of big_vision."""

FAMILIES = (
    Family(
        "google",
        # The arrays of a GroupNorm in the published hybrids have four axes.
        dataclasses.replace(
            LIBRARY, layout=dataclasses.replace(FLAX, axes={a: f"1 1 1 {a}" for a in "wvo"})
        ),
        names={**NAMES, **_OF_STEM, **_PRE_LINEN},
        fixed=_FIXED,
        limits=LIMITS,
    ),
    Family(
        "google_linen",
        LIBRARY,
        names={**NAMES, **_OF_STEM, **LINEN},
        fixed=_FIXED,
        limits=LIMITS,
    ),
)
