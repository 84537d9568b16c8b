"""Masked patch prediction, the self-supervision of appendix B.1.2: images without labels."""

import functools
import math
from typing import Any

import keras
from keras import ops

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.images.protocols import complete
from keras_vit.layers.precision import float32_under_mixed
from keras_vit.model import VisionTransformer
from keras_vit.tasks import targets
from keras_vit.tasks.corruption import PatchCorruption


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

    >>> import keras, numpy as np
    >>> from keras_vit import ViTConfig, tasks
    >>> config = ViTConfig(
    ...     image_size=16, patch_size=4, hidden_size=8, mlp_dim=16, num_heads=2, num_layers=1)
    >>> task = tasks.MaskedPatchPrediction(config)
    >>> task.compile(keras.optimizers.Adam(2e-4, global_clipnorm=1.0))
    >>> history = task.fit(np.zeros((8, 16, 16, 3), "float32"), verbose=0)
    >>> task.classifier(num_classes=10).output_shape
    (None, 10)
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
        targets.check(target, config, bits)
        features: dict[str, Any] = dict.fromkeys(("representation_size", "projection_dim"))
        features["num_classes"] = 0
        if isinstance(encoder, ViTConfig):
            encoder = VisionTransformer(config, **features)
        else:
            encoder = _rebuilt(encoder, labels=None, **features)
        # The task's own policy scales the loss under mixed_float16; images stay float32, so that
        # their colours are exact.
        policy = encoder.dtype_policy
        super().__init__(dtype=policy, autocast=False, name=name or "masked_patch_prediction")
        self.encoder = encoder
        self.bits = bits
        self.target = target
        self._target = targets.TARGETS[target]
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
        tokens = self.encoder.get_layer("encoder_norm")(z) if self.encoder.config.final_norm else z
        predictions = self.head(tokens[:, self.encoder.config.num_prefix_tokens :])
        shape = self._target.shape(self.encoder.config, self.bits)
        return {
            "predictions": ops.reshape(predictions, (batch, rows * columns, *shape)),
            "targets": self._targets_of(images),
            "corrupted": corrupted,
        }

    def classifier(self, num_classes: int, **fields: Any) -> VisionTransformer:
        """Returns a `VisionTransformer` with the encoder's weights and a new head of zeros.

        Args:
            num_classes: width of the head; 0 for features.
            **fields: other arguments of `VisionTransformer`, such as `labels`, `dropout_rate` or
                `representation_size`. Another `image_size` needs a file:
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
                f"MaskedPatchPrediction has a loss of its own, found loss={self.loss!r}. Leave "
                "`loss` out of compile()."
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

    def _targets_of(self, images: Any) -> Any:
        if self.encoder.data_format == "channels_first":
            images = ops.transpose(images, (0, 2, 3, 1))
        pixels = ops.cast(images, "float32")
        if not self.encoder.config.rescale:
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

    >>> from keras_vit.tasks import masked_patch_optimizer
    >>> optimizer = masked_patch_optimizer(steps=1000)
    >>> optimizer.beta_1, optimizer.beta_2
    (0.9, 0.999)
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
    if config.resnet is not None:
        raise ConfigError(
            "MaskedPatchPrediction needs patches of pixels, found a hybrid: its ResNet has shown "
            "each patch to its neighbours. Use a configuration with resnet=None."
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
                "representation_size, labels, name, dtype and the rates may change."
            )
        layer.set_weights(source.get_weights())
    return other
