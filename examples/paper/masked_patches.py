"""Masked patch prediction, the self-supervision of appendix B.1.2: images without labels.

`examples/06_masked_patch_pretraining.py` trains with it; docs/paper.md has figures.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.images.protocols import complete
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import RandomNormal
from keras_vit.layers.precision import float32_under_mixed
from keras_vit.models.vision_transformer import VisionTransformer

CELLS = 4
"""Number of rows and of columns of a downsized patch."""


@dataclasses.dataclass(frozen=True)
class Target:
    """One target of a patch.

    Attributes:
        of: (pixels, patch_size, bits) -> targets `(batch, patches, ...)`; pixels are float32
            `(batch, height, width, channels)` in [0, 255].
        shape: (config, bits) -> shape of the predictions for one patch.
        loss: (targets, predictions) -> loss of each patch, `(batch, patches)`.
        has_classes: whether the target is a class, so that an accuracy exists.
    """

    of: Callable[[Any, tuple[int, int], int], Any]
    shape: Callable[[ViTConfig, int], tuple[int, ...]]
    loss: Callable[[Any, Any], Any]
    has_classes: bool


def mean_colours(pixels: Any, patch_size: tuple[int, int], bits: int = 3) -> Any:
    """Returns each patch's mean colour in `bits` bits per channel (appendix B.1.2).

    A channel's mean, in [0, 255], is rounded down to steps of `256 / 2**bits`, numbered from 0 to
    `2**bits - 1`; the first channel is in the highest bits. For RGB and 3 bits: `64 r + 8 g + b`.

    Args:
        pixels: float32 `(batch, height, width, channels)` in [0, 255].
        patch_size: (rows, columns) of a patch. Pixels beyond the last complete patch are ignored.
        bits: bits per channel.

    Returns:
        int32 `(batch, patches)` in [0, 2 ** (bits * channels)), by rows of patches.
    """
    colours = _colour_grid(pixels, patch_size, bits)
    return ops.reshape(colours, (ops.shape(colours)[0], -1))


def downsized_colours(pixels: Any, patch_size: tuple[int, int], bits: int = 3) -> Any:
    """Returns the colours of each patch downsized to 4 by 4 cells, by their means.

    Args:
        pixels, patch_size, bits: as in `mean_colours`; both sides of a patch are multiples of 4.

    Returns:
        int32 `(batch, patches, 16)`, by rows of cells.
    """
    rows, columns = (ops.shape(pixels)[1 + k] // patch_size[k] for k in range(2))
    whole = pixels[:, : rows * patch_size[0], : columns * patch_size[1]]
    cells = _colour_grid(whole, (patch_size[0] // CELLS, patch_size[1] // CELLS), bits)
    cells = ops.reshape(cells, (-1, rows, CELLS, columns, CELLS))
    return ops.reshape(ops.transpose(cells, (0, 1, 3, 2, 4)), (-1, rows * columns, CELLS**2))


def patch_pixels(pixels: Any, patch_size: tuple[int, int], bits: int = 3) -> Any:
    """Returns all values of each patch, scaled from [0, 255] to [-1, 1].

    Returns:
        float32 `(batch, patches, rows * columns * channels)`, by rows of pixels.
    """
    height, width = patch_size
    rows, columns, channels = (
        ops.shape(pixels)[1] // height,
        ops.shape(pixels)[2] // width,
        pixels.shape[-1],
    )
    whole = pixels[:, : rows * height, : columns * width] / 127.5 - 1
    parts = ops.reshape(whole, (-1, rows, height, columns, width, channels))
    parts = ops.transpose(parts, (0, 1, 3, 2, 4, 5))
    return ops.reshape(parts, (-1, rows * columns, height * width * channels))


def _colour_grid(pixels: Any, cell: tuple[int, int], bits: int) -> Any:
    means = ops.average_pool(pixels, cell, strides=cell, data_format="channels_last")
    # Rounding may have put a mean slightly below its exact whole number.
    levels = ops.floor((means + 1e-3) * (2**bits / 256))
    levels = ops.cast(ops.clip(levels, 0, 2**bits - 1), "int32")
    channels = levels.shape[-1]
    places = [2 ** (bits * (channels - 1 - c)) for c in range(channels)]
    return ops.cast(ops.sum(levels * ops.convert_to_tensor(places, "int32"), axis=-1), "int32")


def _cross_entropy(targets: Any, predictions: Any) -> Any:
    return ops.sparse_categorical_crossentropy(targets, predictions, from_logits=True)


TARGETS = {
    "mean_colour": Target(
        mean_colours,
        lambda config, bits: (2 ** (bits * config.channels),),
        _cross_entropy,
        has_classes=True,
    ),
    "downsized": Target(
        downsized_colours,
        lambda config, bits: (CELLS**2, 2 ** (bits * config.channels)),
        lambda targets, predictions: ops.mean(_cross_entropy(targets, predictions), axis=-1),
        has_classes=True,
    ),
    "pixels": Target(
        patch_pixels,
        lambda config, bits: (math.prod(config.patch_size) * config.channels,),
        lambda targets, predictions: ops.mean(
            ops.square(ops.subtract(targets, predictions)), axis=-1
        ),
        has_classes=False,
    ),
}
"""Targets by name: one colour of 512; 16 colours of a downsized patch; L2 regression on pixels."""


def check_target(name: str, config: ViTConfig, bits: int) -> None:
    """Checks a target against a model.

    Raises:
        ConfigError: the name is unknown, there are too many colours, or 4 does not divide the
            sides of a patch.
    """
    if name not in TARGETS:
        raise ConfigError(f"target={name!r} is not one of {', '.join(TARGETS)}.")
    if not isinstance(bits, int) or bits < 1 or bits * config.channels > 16:
        raise ConfigError(
            f"bits={bits!r} for {config.channels} channels: expected at least 1 bit, and at most "
            "16 of all channels together."
        )
    if name == "downsized" and any(side % CELLS for side in config.patch_size):
        raise ConfigError(
            f"target='downsized' needs patches whose sides are multiples of {CELLS}, found "
            f"patch_size={config.patch_size}."
        )


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


@keras.saving.register_keras_serializable("keras_vit")
class MaskedPatchPrediction(keras.Model):
    """Trains an encoder to predict patches that it cannot see (appendix B.1.2).

    Half of an image's patch embeddings are corrupted, see `PatchCorruption`, before the class
    token joins and positions are added; class token and positions are never corrupted. A linear
    layer predicts the target of each corrupted patch from its encoded token. The loss is averaged
    over the corrupted patches of each image, and then over images. `fit` and `evaluate` take
    images without labels, and ignore labels. `evaluate` also corrupts, differently in every call.

    Input: float images in the encoder's size and range. Output, a dictionary: `"predictions"`,
    float32 `(batch, patches, ...)`; `"targets"`; and `"corrupted"`, bool `(batch, patches)`. The
    task does not use pooling, pre_logits and head of the encoder.

    | target | predictions for a patch | targets | loss |
    |---|---|---|---|
    | `"mean_colour"` | `(2 ** (bits * channels),)` | int32, see `mean_colours` | cross-entropy |
    | `"downsized"` | `(16, 2 ** (bits * channels))` | int32 `(16,)` | its mean over 16 cells |
    | `"pixels"` | `(rows * columns * channels,)` | float32 in [-1, 1] | mean squared error |

    Args:
        encoder: a `ViTConfig`, or a `VisionTransformer` whose weights are copied. `task.encoder`
            is a copy without pre_logits and head.
        mask_rate: share of the patches of every image that are corrupted, in (0, 1].
        mask_share: share of the corrupted patches that become the learned [mask] embedding.
        other_share: share of the corrupted patches that become another patch's embedding. The
            rest of the corrupted patches is not changed.
        bits: bits per channel of a colour; there are `2 ** (bits * channels)` colours, 512 for RGB.
        seed: an int, or None to draw one from Keras's global seed.
        target: `"mean_colour"`, which trained best in the paper, `"downsized"` or `"pixels"`.
        name: name of the model.

    Raises:
        ConfigError: a share is outside its range, there are more than 65,536 colours, a patch
            cannot be downsized to 4 by 4, or the encoder is a hybrid, whose stem shows each patch
            to its neighbours.
    """

    def __init__(
        self,
        encoder: ViTConfig | VisionTransformer,
        mask_rate: float = 0.5,
        mask_share: float = 0.8,
        other_share: float = 0.1,
        bits: int = 3,
        seed: int | None = None,
        target: str = "mean_colour",
        *,
        name: str | None = None,
    ) -> None:
        if not isinstance(encoder, (ViTConfig, VisionTransformer)):
            raise ConfigError(
                f"encoder must be a ViTConfig or a VisionTransformer, found {encoder!r}."
            )
        config = encoder if isinstance(encoder, ViTConfig) else encoder.config
        _check(config)
        check_target(target, config, bits)
        features: dict[str, Any] = dict.fromkeys(("representation_size", "projection_size"))
        features["num_classes"] = 0
        if isinstance(encoder, ViTConfig):
            encoder = VisionTransformer(config, **features)
        else:
            encoder = _rebuilt(encoder, class_names=None, **features)
        # The task's own policy scales the loss under mixed_float16; images stay float32, so that
        # their colours are exact.
        policy = encoder.dtype_policy
        super().__init__(dtype=policy, autocast=False, name=name or "masked_patch_prediction")
        self.encoder = encoder
        self.bits = bits
        self.target = target
        self._target = TARGETS[target]
        self.corruption = PatchCorruption(
            mask_rate, mask_share, other_share, seed, dtype=policy, name="corruption"
        )
        self.head = keras.layers.Dense(
            math.prod(self._target.shape(config, bits)),
            kernel_initializer="zeros",
            dtype=float32_under_mixed(policy),
            name="head",
        )
        if self._target.has_classes:
            self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        encoder.get_layer("pool").trainable = False  # gets no gradient
        self.corruption.build((None, None, config.hidden_size))
        self.head.build((None, None, config.hidden_size))
        self.built = True

    def call(self, images: Any, training: bool | None = None) -> dict[str, Any]:
        embed, encode = self._stages
        grid = embed(images, training=training)  # (batch, rows, columns, hidden_size)
        batch, rows, columns, hidden_size = ops.shape(grid)
        patches = ops.reshape(grid, (batch, rows * columns, hidden_size))
        patches, corrupted = self.corruption(patches)
        z = encode(ops.reshape(patches, (batch, rows, columns, hidden_size)), training=training)
        has_norm = self.encoder.config.pool.norm != "none"
        tokens = self.encoder.get_layer("encoder_norm")(z) if has_norm else z
        predictions = self.head(tokens[:, self.encoder.config.num_prefix_tokens :])
        shape = self._target.shape(self.encoder.config, self.bits)
        return {
            "predictions": ops.reshape(predictions, (batch, rows * columns, *shape)),
            "targets": self._make_targets(images),
            "corrupted": corrupted,
        }

    def classifier(self, num_classes: int, **fields: Any) -> VisionTransformer:
        """Returns a `VisionTransformer` with the encoder's weights and a new head of zeros.

        Args:
            num_classes: width of the head; 0 for features.
            **fields: other arguments of `VisionTransformer`, such as `class_names`,
                `dropout_rate` or `representation_size`. Another `image_size` needs a file:
                `task.encoder.save_to_preset(folder)`, then `VisionTransformer.from_preset`.

        Raises:
            ConfigError: the encoder's weights do not fit a model with these fields.
        """
        return _rebuilt(self.encoder, num_classes=num_classes, **fields)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None,
        training: bool = True,
    ) -> Any:  # fmt: skip
        """Returns the mean over images of the mean loss over an image's corrupted patches.

        Args:
            x, y, training: unused.
            y_pred: output of the model.
            sample_weight: one number per image, or None.

        Raises:
            ConfigError: the model was compiled with a loss.
        """
        if self.loss is not None:
            raise ConfigError(
                f"MaskedPatchPrediction computes its loss itself, found loss={self.loss!r}. Omit "
                "`loss` in compile()."
            )
        corrupted = ops.cast(y_pred["corrupted"], "float32")
        loss = self._target.loss(y_pred["targets"], ops.cast(y_pred["predictions"], "float32"))
        loss = ops.sum(loss * corrupted, axis=1) / ops.sum(corrupted, axis=1)
        if sample_weight is not None:
            loss = loss * ops.reshape(ops.cast(sample_weight, loss.dtype), (-1,))
        return ops.mean(loss) + sum(ops.sum(penalty) for penalty in self.losses)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Updates `accuracy` and compiled `weighted_metrics` with the corrupted patches alone.

        Compiled `metrics` have no weights in Keras: they count every patch.
        """
        targets_, predictions = y_pred["targets"], y_pred["predictions"]
        corrupted = ops.cast(y_pred["corrupted"], "float32")
        if self.target == "downsized":
            corrupted = ops.broadcast_to(corrupted[..., None], ops.shape(targets_))
        if self._target.has_classes:
            self.accuracy.update_state(targets_, predictions, corrupted)
        return super().compute_metrics(x, targets_, predictions, corrupted)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        shares = ("mask_rate", "mask_share", "other_share", "seed")
        return {
            "encoder": self.encoder.get_config(),
            **{argument: getattr(self.corruption, argument) for argument in shares},
            "bits": self.bits,
            "target": self.target,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Rebuilds an untrained task from `get_config()`'s output."""
        return cls(**{**config, "encoder": VisionTransformer.from_config(config["encoder"])})

    @functools.cached_property
    def _stages(self) -> tuple[keras.Model, keras.Model]:
        """Two models that share the encoder's layers: images to grid, grid to encoded tokens."""
        grid = self.encoder.get_layer("patch_embedding").output
        last = self.encoder.get_layer(f"block_{self.encoder.config.num_layers - 1}").output
        return keras.Model(self.encoder.input, grid), keras.Model(grid, last)

    def _make_targets(self, images: Any) -> Any:
        if self.encoder.data_format == "channels_first":
            images = ops.transpose(images, (0, 2, 3, 1))
        pixels = ops.cast(images, "float32")
        if not self.encoder.rescale:
            protocol = complete(self.encoder.preprocessor.protocol)
            pixels = pixels * ops.convert_to_tensor(protocol["std"], "float32")
            pixels = 255.0 * (pixels + ops.convert_to_tensor(protocol["mean"], "float32"))
        return self._target.of(pixels, self.encoder.config.patch_size, self.bits)


def masked_patch_optimizer(
    steps: int = 1_000_000, learning_rate: float = 2e-4, warmup_steps: int = 10_000
) -> keras.optimizers.Adam:
    """Returns the optimizer of appendix B.1.2: Adam, linear warm-up, cosine decay to 0.

    Args:
        steps: number of weight updates; the paper makes a million, in batches of 4,096.
        learning_rate: highest learning rate.
        warmup_steps: updates before the highest learning rate, at most a tenth of `steps`.
    """
    warmup_steps = min(warmup_steps, steps // 10)
    if warmup_steps:
        schedule = keras.optimizers.schedules.CosineDecay(
            0.0, steps - warmup_steps, warmup_target=learning_rate, warmup_steps=warmup_steps
        )
    else:
        schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    return keras.optimizers.Adam(schedule)


def _check(config: ViTConfig) -> None:
    if config.stem.is_resnet:
        raise ConfigError(
            "MaskedPatchPrediction needs patches of pixels, found a hybrid: its ResNet has shown "
            "each patch to its neighbours. Use a configuration with stem.kind='none'."
        )


def _rebuilt(model: VisionTransformer, **fields: Any) -> VisionTransformer:
    """Returns a model with other `fields` and the weights of all layers that both models have."""
    other = VisionTransformer.from_config({**model.get_config(), **fields})
    for layer in other.layers:
        if layer.name in ("projection", "pre_logits", "head"):
            continue
        source = model.get_layer(layer.name)
        if [w.shape for w in source.weights] != [w.shape for w in layer.weights]:
            raise ConfigError(
                f"The weights of {layer.name} do not fit: found "
                f"{[tuple(w.shape) for w in source.weights]}, expected "
                f"{[tuple(w.shape) for w in layer.weights]}. Only num_classes, "
                "representation_size, class_names, name, dtype and the rates may change."
            )
        layer.set_weights(source.get_weights())
    return other
