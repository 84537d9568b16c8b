"""The official checkpoints of google-research/vision_transformer, such as `ViT-B_16.npz`.

There are two spellings of one model. `google` has the names from before flax linen, as every
published npz of the paper and of AugReg: one count numbers all submodules of a block.
`google_linen` has the names that today's code writes: one count for each class. Sources:
`vit_jax/models_vit.py`, `vit_jax/models_resnet.py`, `vit_jax/checkpoint.py`.
"""

import dataclasses

from keras_vit.checkpoints.dialects.base import Dialect, Limits, Names
from keras_vit.checkpoints.dialects.names import FLAX, Section
from keras_vit.config.weights.lexicon import LEXICON

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
}
_NORMS: Section = {
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


def _words(submodules: Section, norm_axes: tuple[str, str]) -> dict[str, Names]:
    """Returns the names of all weights.

    Args:
        submodules: the names of a block's attention norm, attention, MLP norm and MLP.
        norm_axes: axes of a GroupNorm's arrays: the axes to write, and further axes to
            read; `{}` is the axis of the channels.
    """
    axes = {word.path: tuple(a.format(word.axes) for a in norm_axes) for word in LEXICON}
    norms = {
        path: (dataclasses.replace(name, axes=axes[path][0], also=axes[path][1:]),)
        for path, (name,) in FLAX.names(_NORMS).items()
    }
    return {**FLAX.names(NAMES, _OF_STEM, submodules), **norms}


UNREAD_CLASS_TOKEN: Limits = {
    "a class token that the head does not read": "tokens.class_tokens pool.kind=gap|map"
}
"""A limit of the official code and of big_vision."""

google = Dialect(
    name="google",
    library="google-research/vision_transformer (published files)",
    container="npz",
    # The published hybrids have four axes; files that were loaded and saved again have one.
    words=_words(_PRE_LINEN, norm_axes=("1 1 1 {}", "{}")),
    prefixes=("", "params/", "opt/target/"),
    ignored={r"opt/state(/.*)?": "optimizer state", r"(opt/)?step": "training step"},
    arithmetic={},
    fields={"position": "learned", "block.qkv_bias": True},
    impossible=UNREAD_CLASS_TOKEN,
)

google_linen = dataclasses.replace(
    google,
    name="google_linen",
    library="google-research/vision_transformer (flax linen)",
    words=_words(LINEN, norm_axes=("{}", "1 1 1 {}")),
)
