"""The layers of a Vision Transformer, each an independent Keras layer."""

from keras_vit.layers.attention import Attention
from keras_vit.layers.dense import DistilledHead
from keras_vit.layers.dense_map import DenseMap
from keras_vit.layers.dropout import StochasticDepth
from keras_vit.layers.initializers import (
    LecunNormal,
    MixedFrequencies,
    RandomNormal,
    XavierUniform,
    blank_weights,
)
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norms import LayerNorm, RMSNorm
from keras_vit.layers.patch_embedding import PatchEmbedding
from keras_vit.layers.pooling import MAPHead, Pool
from keras_vit.layers.position_embedding import AddPositionEmbs
from keras_vit.layers.relative_position_bias import RelativePositionBias
from keras_vit.layers.rescale import Rescale
from keras_vit.layers.resnet import BottleneckUnit, ResNetRoot, StdConv2D
from keras_vit.layers.rotary_positions import RotaryPositions
from keras_vit.layers.tokens import ClassToken, MaskToken, RegisterTokens
from keras_vit.layers.transformer_block import LayerScale, TransformerBlock

__all__ = [
    "MLP",
    "AddPositionEmbs",
    "Attention",
    "BottleneckUnit",
    "ClassToken",
    "DenseMap",
    "DistilledHead",
    "LayerNorm",
    "LayerScale",
    "LecunNormal",
    "MAPHead",
    "MaskToken",
    "MixedFrequencies",
    "PatchEmbedding",
    "Pool",
    "RMSNorm",
    "RandomNormal",
    "RegisterTokens",
    "RelativePositionBias",
    "ResNetRoot",
    "Rescale",
    "RotaryPositions",
    "StdConv2D",
    "StochasticDepth",
    "TransformerBlock",
    "XavierUniform",
    "blank_weights",
]
__dir__ = __all__.copy
