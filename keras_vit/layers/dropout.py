"""Dropout and stochastic depth, which skips residual branches at random in training."""

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout, with a seed generator named after its layer (`NAME_seed`).

    Keras numbers the seed generators of a process, so that the keys of torch's `state_dict` and
    the paths of variables would differ between two equal models.

    Args:
        rate: fraction of the input that is set to 0 in training, from 0 to 1.
        noise_shape, seed: as in `keras.layers.Dropout`.

    Raises:
        ConfigError: `rate` is outside [0, 1].
    """

    def __init__(self, rate, noise_shape=None, seed=None, **kwargs):
        super().__init__(0.0, noise_shape, seed, **kwargs)  # at rate 0 Keras makes no generator
        if not 0 <= rate <= 1:
            raise ConfigError(f"rate must be in [0, 1], found {rate!r}.")
        self.rate = rate
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed, name=f"{self.name}_seed")

    def build(self, input_shape):
        """Does nothing; without it, Keras would lock the layer before the seed is set."""


@keras.saving.register_keras_serializable("keras_vit")
class StochasticDepth(ConfiguredLayer):
    """Drops a residual branch at random per example (Huang et al. 2016; AugReg, section 3).

    Input and output `(batch, ...)`. In training each example is set to zero with
    probability `rate`, and the remaining examples are divided by `1 - rate` to keep the mean.

    Args:
        rate: probability of dropping, in [0, 1).
        seed: an int, or None to draw one from Keras's global seed.

    Raises:
        ConfigError: `rate` is outside [0, 1).
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ConfigError(f"rate must be in [0, 1), found {rate!r}.")
        self.rate = rate
        self.seed = seed
        self.seed_generator = None
        if rate > 0:  # named after the layer, as in `Dropout`
            self.seed_generator = keras.random.SeedGenerator(seed, name=f"{self.name}_seed")

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return inputs
        shape = (ops.shape(inputs)[0],) + (1,) * (len(inputs.shape) - 1)
        stays = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator) >= self.rate
        return inputs * ops.cast(ops.cast(stays, "float32") / (1 - self.rate), inputs.dtype)
