"""The official checkpoints of google-research/vision_transformer.

Two spellings of one model. `google`: names from before flax linen, which every
published npz of the paper and of AugReg has; the submodules of a block are numbered
together in the order of their creation. `google_linen`: the names of files that
today's code writes; submodules are numbered per class. Sources:
`vit_jax/models_vit.py`, `vit_jax/models_resnet.py`, `vit_jax/checkpoint.py`.
"""

import dataclasses

from keras_vit.checkpoints.dialects.base import Dialect, Names, StoredAs, modules, with_reasons
from keras_vit.checkpoints.dialects.flax import FLAX_PARAMETERS, encoder_layers
from keras_vit.config import Numerics
from keras_vit.weights.lexicon import LEXICON

_CONVOLUTIONS = {
    "root/conv": "conv_root",
    "stage{s}_unit{u}/conv_proj": "block{s}/unit{u}/conv_proj",
    "stage{s}_unit{u}/conv1": "block{s}/unit{u}/conv1",
    "stage{s}_unit{u}/conv2": "block{s}/unit{u}/conv2",
    "stage{s}_unit{u}/conv3": "block{s}/unit{u}/conv3",
}
_GROUP_NORMS = {
    "root/norm": "gn_root",
    "stage{s}_unit{u}/norm_proj": "block{s}/unit{u}/gn_proj",
    "stage{s}_unit{u}/norm1": "block{s}/unit{u}/gn1",
    "stage{s}_unit{u}/norm2": "block{s}/unit{u}/gn2",
    "stage{s}_unit{u}/norm3": "block{s}/unit{u}/gn3",
}
_REASONS = {"pool/": "the official code has no attention pooling; big_vision has"}


def _words(submodules: tuple[str, str, str, str], norm_axes: tuple[str, str]) -> dict[str, Names]:
    """Returns the names of all weights.

    Args:
        submodules: names of a block's attention norm, attention, MLP norm and MLP.
        norm_axes: axes of a GroupNorm's arrays: the axes to write, and further axes to
            read; `{}` is the axis of the channels.
    """
    layers = _CONVOLUTIONS | encoder_layers("Transformer/encoderblock_{l}", *submodules)
    words: dict[str, Names] = {
        "class_token/token": StoredAs("cls"),
        "position_embedding/embedding": StoredAs("Transformer/posembed_input/pos_embedding"),
        **modules(layers, FLAX_PARAMETERS),
    }
    norms = modules(_GROUP_NORMS, FLAX_PARAMETERS)
    for word in LEXICON:
        if word.path in norms:
            written, also = (axes.format(word.axes) for axes in norm_axes)
            words[word.path] = dataclasses.replace(norms[word.path], axes=written, also=(also,))
    return with_reasons(_REASONS, words)


google = Dialect(
    name="google",
    library="google-research/vision_transformer (published files)",
    container="npz",
    words=_words(
        ("LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3"),
        # The published hybrids have four axes; files that were loaded and saved again have one.
        norm_axes=("1 1 1 {}", "{}"),
    ),
    prefixes=("", "params/", "opt/target/"),
    ignored={r"opt/state(/.*)?": "optimizer state", r"(opt/)?step": "training step"},
    numerics=Numerics(),
    fields={"position": "learned", "position_before_class": False, "qkv_bias": True},
    impossible=(
        (lambda c: c.position != "learned", "position='sincos2d'"),
        (lambda c: c.has_class_token and c.position_before_class, "position_before_class=True"),
        (lambda c: c.has_class_token and "token" not in c.classifier, "an unread class token"),
        (lambda c: not c.qkv_bias, "qkv_bias=False"),
    ),
)

google_linen = dataclasses.replace(
    google,
    name="google_linen",
    library="google-research/vision_transformer (flax linen)",
    words=_words(
        ("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0"),
        norm_axes=("{}", "1 1 1 {}"),
    ),
)
