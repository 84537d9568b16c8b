"""Appendix D.1: SGD with momentum against Adam, with the optimizers of the recipes.

python examples/paper/d1_optimizers.py 5
"""

import sys

import keras
from digits import SIDE, score
from keras import ops

from keras_vit import layers
from keras_vit.training import LayerwiseAdamW, LayerwiseSGD

steps = int(sys.argv[1])


def encoder():
    """Three blocks and the mean of the tokens."""
    tokens = patches = keras.Input((SIDE**2, 32))
    tokens = layers.AddPositionEmbs((SIDE, SIDE))(tokens)
    for _ in range(3):
        tokens = layers.TransformerBlock(num_heads=4, mlp_dim=64)(tokens)
    return keras.Model(patches, ops.mean(tokens, axis=1))


def cosine(peak):
    """Warm-up over a tenth of the steps, then a cosine to 0."""
    return keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=peak, warmup_steps=steps // 10
    )


# The paper pre-trains with Adam, also ResNets, and fine-tunes with SGD.
for rate in (0.01, 0.1):
    sgd = LayerwiseSGD(cosine(rate), momentum=0.9, global_clipnorm=1.0)
    adam = LayerwiseAdamW(cosine(rate / 10), weight_decay=0.1, global_clipnorm=1.0)
    found = [score(encoder(), steps, optimizer) for optimizer in (sgd, adam)]
    print(f"SGD {rate:g}: {found[0]:.1%}    Adam {rate / 10:g}: {found[1]:.1%}")
