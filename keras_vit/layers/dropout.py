"""Dropout whose state has the same name in every model."""

import keras

from keras_vit.errors import ConfigError


@keras.saving.register_keras_serializable("keras_vit")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout, with a seed generator that has the name `NAME_seed` after its layer.

    Keras numbers the seed generators of a process, so that the keys of torch's `state_dict` and
    the paths of variables would differ between two equal models.

    Args:
        rate: share of the input that is set to 0 in training, from 0 to 1.
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
        """Has no effect; Keras would lock a layer without this method before the seed is set."""
