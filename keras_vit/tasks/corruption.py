"""The corruption of patches in masked patch prediction (appendix B.1.2)."""

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import RandomNormal


@keras.saving.register_keras_serializable("keras_vit")
class PatchCorruption(ConfiguredLayer):
    """Corrupts patch embeddings `(batch, patches, hidden_size)` (appendix B.1.2).

    In every image the same number of patches is drawn without replacement: `mask_rate` of all
    patches, rounded, and at least one. As in BERT, each drawn patch independently becomes the
    learned [mask] embedding, becomes another patch of the same image, or stays. The layer returns
    the patches and a mask of the drawn ones, bool `(batch, patches)`, also outside training.

    Args:
        mask_rate: share of the patches that are drawn, in (0, 1].
        mask_share: chance that a drawn patch becomes [mask].
        other_share: chance that a drawn patch becomes another patch of the image.
        seed: an int, or None to draw one from Keras's global seed.

    Raises:
        ConfigError: the rate or a share is outside its range, or the shares exceed 1.
    """

    def __init__(self, mask_rate=0.5, mask_share=0.8, other_share=0.1, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 < mask_rate <= 1:
            raise ConfigError(f"mask_rate must be in (0, 1], found {mask_rate!r}.")
        if min(mask_share, other_share) < 0 or mask_share + other_share > 1 + 1e-9:
            raise ConfigError(
                f"mask_share={mask_share!r} and other_share={other_share!r}: expected shares of "
                "at least 0 and together at most 1."
            )
        self.mask_rate = mask_rate
        self.mask_share = mask_share
        self.other_share = other_share
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed, name=f"{self.name}_seed")

    def build(self, input_shape):
        self.mask = self.add_weight(
            name="mask", shape=(1, 1, input_shape[-1]), initializer=RandomNormal(stddev=0.02)
        )

    def call(self, inputs):
        batch, patches = ops.shape(inputs)[:2]
        count = ops.cast(patches, "float32")
        places, fates, others = (self._uniform((batch, patches)) for _ in range(3))

        rank = ops.argsort(ops.argsort(places, axis=1), axis=1)
        drawn = ops.cast(rank, "float32") < ops.maximum(ops.round(self.mask_rate * count), 1)
        masked = ops.logical_and(drawn, fates < self.mask_share)
        swapped = ops.logical_and(drawn, fates >= 1 - self.other_share)

        # The other patch is 1 to patches - 1 places further on, cyclically: never the patch itself.
        steps = 1 + ops.cast(ops.minimum(ops.floor(others * (count - 1)), count - 2), "int32")
        other = (ops.arange(patches, dtype="int32")[None] + steps) % patches
        outputs = ops.where(
            swapped[..., None], ops.take_along_axis(inputs, other[..., None], axis=1), inputs
        )
        mask = ops.cast(self.mask, inputs.dtype)
        return ops.where(masked[..., None], mask, outputs), drawn

    def _uniform(self, shape):
        return keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)

    def compute_output_spec(self, inputs):
        drawn = keras.KerasTensor(inputs.shape[:2], dtype="bool")
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype), drawn
