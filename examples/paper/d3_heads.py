"""Appendix D.3: the class token compared with the mean of the patches, at several learning rates.

python examples/paper/d3_heads.py 5
"""

import sys

import keras
from digits import SIDE, score
from keras import ops

from keras_vit import layers

steps = int(sys.argv[1])


def encoder(kind):
    """Three blocks; the head reads the class token, the mean, or an attention pooling."""
    tokens = patches = keras.Input((SIDE**2, 32))
    if kind == "token":
        tokens = layers.ClassToken()(tokens)
    tokens = layers.AddPositionEmbs((SIDE, SIDE), kind == "token")(tokens)
    for _ in range(3):
        tokens = layers.TransformerBlock(num_heads=4, mlp_dim=64)(tokens)
    if kind == "map":
        pooled = layers.MAPHead(num_heads=4, mlp_dim=64)(tokens)
    else:
        pooled = tokens[:, 0] if kind == "token" else ops.mean(tokens, axis=1)
    return keras.Model(patches, pooled)


# The paper: a mean of patches failed at the class token's rate, and did as well at its own.
for kind in ("token", "gap", "map"):
    for rate in (3e-3, 1e-3):
        accuracy = score(encoder(kind), steps, keras.optimizers.Adam(rate))
        print(f"{kind:6} learning rate {rate:g}: {accuracy:.1%}")
