"""A model that trains an encoder on images without labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.config.views import Views
from keras_vit.distribution.processes import count_replicas
from keras_vit.errors import ConfigError, expect_model
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.training.lejepa import BatchNorm, invariance, sigreg
from keras_vit.training.recipes import PretrainRecipe


@keras.saving.register_keras_serializable("keras_vit")
class SelfSupervised(keras.Model):
    """Trains an encoder on images without labels: self-supervised, by LeJEPA (arXiv 2511.08544).

    It is an ordinary `keras.Model`. `fit` trains the given encoder in place, and the encoder's
    `save_to_preset` saves the result::

        encoder = keras_vit.vit_ti16(image_size=(None, None), num_classes=0)
        model = keras_vit.training.SelfSupervised(encoder)
        data = keras_vit.data.from_folder("photos", encoder, 256, augmentation=model.views)
        model.compile(keras.optimizers.AdamW(5e-4, weight_decay=0.05))
        model.fit(data, epochs=100, shuffle=False)

    Input: a dict of views, as `keras_vit.data` makes them: `"global_views"` and `"local_views"`,
    float32 `(batch, views, height, width, channels)`. Output: projections, float32
    `(batch, views, units)`, global views first. The model computes its own loss, so `compile` needs
    none; `fit` also shows its two parts, `invariance` and `sigreg`. Gradient accumulation gives the
    mean loss of small batches, not the loss of a large batch.

    Args:
        model: a `VisionTransformer` with num_classes=0. For views of two sizes it takes images of
            any size: image_size=(None, None).
        views: `keras_vit.data.Views`, or their fields as a dict; None for the authors' settings.
            The model uses only their sizes and numbers; the data make the views.
        projector: widths of the MLP after the encoder, with batch norm and ReLU between its layers.
            It is not a part of the encoder.
        sigreg_weight: weight of SIGReg in the loss, lambda of the paper, which tries 0.01 to 0.1.
        directions: number of random directions of SIGReg, drawn anew in every step.
        seed: seed of the directions.
        **kwargs: name and other arguments of `keras.Model`.

    Raises:
        ConfigError: the model has a head, does not return one vector per image, takes packed
            patches, or cannot take the views; or another argument is invalid.
    """

    def __init__(
        self,
        model: VisionTransformer,
        views: Views | Mapping[str, Any] | None = None,
        *,
        projector: Sequence[int] = (2048, 2048, 128),
        sigreg_weight: float = 0.05,
        directions: int = 1024,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        config = expect_model(model).config
        views = Views.read(views or {}).fit(config)
        if not config.is_pooled or config.stem.is_packed:
            raise ConfigError(
                "SelfSupervised trains an encoder that takes images, not packed patches, and "
                f"returns one vector for each, found pool.kind={config.pool.kind!r} and "
                f"stem.kind={config.stem.kind!r}. Load another model."
            )
        for name, (_, size, _) in views.groups.items():
            if config.image_size not in (None, (size, size)) or any(
                size % k for k in config.stride
            ):
                raise ConfigError(
                    f"{name} of {size}x{size} pixels: the model takes images of "
                    f"{config.image_size or 'any size'} in patches of {config.stride}. Give "
                    "views of whole patches, and load the model with image_size=(None, None)."
                )
        super().__init__(**{"dtype": model.dtype_policy, **kwargs})
        self.encoder = model
        self.views = views
        recipe = PretrainRecipe(  # which refuses invalid settings
            1, projector=projector, sigreg_weight=sigreg_weight, directions=directions, seed=seed
        )
        self.settings = recipe.loss_args
        # Keras would number the names by the layers of the process, and `Resume` compares them.
        policy, parts = self.dtype_policy, list[Any]()
        for k, width in enumerate(projector[:-1]):
            dense = keras.layers.Dense(width, use_bias=False, name=f"dense_{k}", dtype=policy)
            norm = BatchNorm(name=f"norm_{k}", dtype=policy)
            parts += [dense, norm, keras.layers.ReLU(dtype=policy)]
        parts.append(keras.layers.Dense(projector[-1], name="dense", dtype=policy))
        self.projector = keras.Sequential(parts, name="projector")
        self.projector.build((None, model.get_layer("pre_logits").output.shape[-1]))
        self.draws = keras.random.SeedGenerator(seed % 2**32)
        self.parts = [keras.metrics.Mean(name) for name in ("invariance", "sigreg")]
        self.built = True

    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> Any:
        """Returns the projections of the views, `(batch, views, units)`."""
        vectors = ops.concatenate(
            [self._encode(inputs[name], training) for name in self.views.groups], axis=1
        )
        flat = self.projector(ops.reshape(vectors, (-1, vectors.shape[-1])), training=training)
        projections = ops.reshape(flat, (-1, vectors.shape[1], flat.shape[-1]))
        return ops.cast(projections, "float32")

    def _encode(self, views: Any, training: bool | None) -> Any:
        vectors = self.encoder(ops.reshape(views, (-1, *views.shape[2:])), training=training)
        return ops.reshape(vectors, (-1, views.shape[1], vectors.shape[-1]))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns the loss of a batch; called by Keras.

        Losses of layers, such as regularisers of the encoder, are added.

        Raises:
            ConfigError: there are sample weights, which SIGReg cannot use.
        """
        if sample_weight is not None:
            raise ConfigError(
                "SelfSupervised gives all images the same weight: omit sample_weight and "
                "class_weight of fit."
            )
        shape = (y_pred.shape[-1], self.settings["directions"])
        directions = keras.random.normal(shape, dtype="float32", seed=self.draws)
        directions = directions / ops.norm(directions, axis=0, keepdims=True)
        found = invariance(y_pred, self.views.global_views), sigreg(y_pred, directions)
        for tracker, part in zip(self.parts, found, strict=True):
            tracker.update_state(part, sample_weight=ops.shape(y_pred)[0])
        share = self.settings["sigreg_weight"]
        loss = (1 - share) * found[0] + share * found[1]
        if keras.backend.backend() == "tensorflow":
            loss = loss / count_replicas()  # Keras sums gradients of replicas; ddp takes the mean
        if self.losses or self.loss is not None:
            loss = loss + super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments; `from_config` is its inverse."""
        model = keras.saving.serialize_keras_object(self.encoder)
        own = {"model": model, "views": self.views.to_dict(), **self.settings}
        return {"name": self.name, "trainable": self.trainable, **own}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "SelfSupervised":
        """Rebuilds a model from `get_config()`'s output."""
        model = keras.saving.deserialize_keras_object(config["model"], custom_objects)
        return cls(**{**config, "model": model})
