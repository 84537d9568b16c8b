"""The Vision Transformer as a Keras model: what users build, call, classify with and save."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.door import CheckedInputs
from keras_vit.errors import ConfigError
from keras_vit.graph import Graph
from keras_vit.keras_fixes import FixedTrainer
from keras_vit.labels import Labels, checked, compact, names_of, top_labels
from keras_vit.layers.quantisation import quantise_parts, quantised_parts
from keras_vit.losses import CompiledByHead
from keras_vit.preparation.preprocessor import Preprocessor
from keras_vit.preparation.protocols import ProtocolSpec

if TYPE_CHECKING:
    from keras_vit.checkpoints import Source
    from keras_vit.tokens import Tokens


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(CheckedInputs, CompiledByHead, FixedTrainer, keras.Model):  # type: ignore[misc]
    """An image classifier that returns logits; a plain functional `keras.Model`.

    Input: float images `(batch, height, width, channels)` in [-1, 1], or
    `(batch, channels, height, width)` under `"channels_first"`; pixels in [0, 255] of any type
    with `rescale=True`. Output: logits `(batch, num_classes)`, or probabilities with
    `classifier_activation="softmax"`; `(batch, tokens, num_classes)` for the unpooled
    classifiers; the pre_logits themselves, `(batch, hidden_size or
    representation_size)`, with `num_classes=0`.

    Every stage has a layer name, so that `keras.Model(model.input,
    model.get_layer(name).output)` slices the model: `root` and `stage{s}_unit{u}`
    (hybrids), `patch_embedding` (the grid), `patch_tokens`, `class_token`,
    `position_embedding`, `embedding_dropout`, `block_0`..., `encoder_norm`,
    `pool`, `pre_logits`, `head`. Models of other families have `patch_norm`, `mask_token`,
    `distillation_token`, `register_tokens`, `pre_norm`, `rotary_positions` and `projection`
    besides, where their configuration says so.

    Args:
        config: a `ViTConfig`; its fields may stand as keywords instead.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
        dtype: a Keras dtype or policy, such as `"mixed_bfloat16"`. Softmax, norms,
            kernel standardisation and the head stay float32 under mixed policies.
        remat: whether training keeps each block's input alone, and computes the block again
            for the gradient: less memory for a forward pass more.
        name: name of the model.
        labels: a name per class, which `classify` answers with; or the word of a
            shipped list, `"imagenet1k"` or `"imagenet21k"`.
        protocol: how images are prepared for these weights, by name or as an object of
            name and parameters; see `keras_vit.Preprocessor`.
        provenance: where the weights come from, as plain JSON types.
        **fields: fields of `ViTConfig`; with `config` they replace its own.

    Raises:
        ConfigError: the fields describe no model that can be.

    >>> import keras_vit
    >>> model = keras_vit.VisionTransformer(
    ...     image_size=32, patch_size=8, hidden_size=16, mlp_dim=32, num_heads=2,
    ...     num_layers=2, num_classes=10)
    >>> model.output_shape
    (None, 10)
    """

    def __init__(
        self,
        config: ViTConfig | None = None,
        *,
        data_format: str | None = None,
        dtype: Any = None,
        remat: bool = False,
        name: str | None = None,
        trainable: bool = True,
        labels: Labels | None = None,
        protocol: ProtocolSpec = "paper",
        provenance: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        if config is None:
            config = ViTConfig.from_dict(fields)
        elif not isinstance(config, ViTConfig):
            raise ConfigError(f"config must be a ViTConfig, found {config!r}.")
        else:
            config = config.replace(**fields)
        data_format = data_format or keras.config.image_data_format()
        if data_format not in ("channels_last", "channels_first"):
            raise ConfigError(
                f"data_format={data_format!r} is not one of channels_last, channels_first."
            )
        kept_labels = checked(labels, config.num_classes)
        preprocessor = Preprocessor(
            config.image_size,
            config.channels,
            protocol=protocol,
            data_format=data_format,
            scaled=not config.rescale,
        )
        policy = keras.dtype_policies.get(dtype)
        graph = Graph(config, data_format, policy, remat, preprocessor.normalisation)
        super().__init__(
            inputs=graph.images,
            outputs=graph(graph.images),
            name=name or "vit",
            trainable=trainable,
        )
        self._graph = graph
        self.config = config
        self.data_format = data_format
        self.remat = remat
        self.dtype_policy = policy
        self._labels = kept_labels
        self.provenance = MappingProxyType(dict(provenance or {}))
        self.preprocessor = preprocessor

    @property
    def labels(self) -> tuple[str, ...] | None:
        """A name per class, or None."""
        return names_of(self._labels)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Returns the logits of a batch of images."""
        return self._graph(self._graph.standardise(inputs, mask=mask), training)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types, and what is quantised."""
        return {
            **self.config.to_dict(),
            "data_format": self.data_format,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "remat": self.remat,
            "name": self.name,
            "trainable": self.trainable,
            "labels": compact(self._labels),
            "protocol": self.preprocessor.protocol,
            "provenance": dict(self.provenance),
            **({"quantised": parts} if (parts := quantised_parts(self.layers)) else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "VisionTransformer":
        """Rebuilds an untrained model from `get_config()`'s output."""
        fields = dict(config)
        fields["dtype"] = keras.dtype_policies.deserialize(fields["dtype"])
        quantised = fields.pop("quantised", {})
        model = cls(**fields)
        quantise_parts(model.layers, quantised)
        return model

    def classify(
        self, images: Any, top: int = 5, batch_size: int = 32
    ) -> list[list[tuple[str, float]]]:
        """Returns the most probable labels of each image: `[[(label, probability), ...], ...]`.

        Args:
            images: what `preprocessor` takes: paths, PIL images or arrays; an iterator
                is read batch by batch.
            top: labels per image.
            batch_size: images per step.

        Raises:
            ConfigError: the model has no head, or one per token; or an image cannot
                be read.
        """
        answers = [answer for _, answer in self.classify_each(images, top, batch_size)]
        if not answers:
            raise ConfigError("No image was given.")
        return answers

    def classify_each(
        self,
        images: Any,
        top: int = 5,
        batch_size: int = 32,
        unreadable: Callable[[Any, ConfigError], None] | None = None,
    ) -> Iterator[tuple[Any, list[tuple[str, float]]]]:
        """Yields each image as it was given and its most probable labels, as `classify`.

        The next batch is read and resized while the model works on this one; no more
        than two are in memory.

        Args:
            images, top, batch_size: as of `classify`.
            unreadable: called with an image that cannot be read and the reason; the
                others are answered. None raises the reason.

        Raises:
            ConfigError: as `classify`.
        """
        if not self.config.has_one_prediction:
            raise ConfigError(
                f"classify needs one prediction per image; this model has num_classes="
                f"{self.config.num_classes} and classifier={self.config.classifier!r}."
            )
        if top < 1 or batch_size < 1:
            raise ConfigError(f"top={top} and batch_size={batch_size}: expected at least 1.")
        largest = 0
        for items, batch in self.preprocessor.batches(images, batch_size, unreadable):
            largest = max(largest, len(items))
            # A smaller batch is filled up: another shape would be compiled for.
            full = np.pad(batch, [(0, largest - len(items)), (0, 0), (0, 0), (0, 0)])
            probabilities = np.asarray(self.predict_on_batch(full)[: len(items)], "float32")
            if self.config.classifier_activation is None:
                probabilities = np.exp(probabilities - probabilities.max(axis=1, keepdims=True))
                probabilities /= probabilities.sum(axis=1, keepdims=True)
            yield from zip(items, top_labels(probabilities, self.labels, top), strict=True)

    def tokens(
        self,
        images: Any,
        blocks: int | Sequence[int] = -1,
        *,
        norm: bool = True,
        batch_size: int = 32,
    ) -> "Tokens | dict[int, Tokens]":
        """Returns the tokens of blocks, taken apart: dense features, a vector for every patch.

        Args:
            images: float batch as the model takes it, see `preprocessor`.
            blocks: index of a block, negative from the end, or several.
            norm: whether the norm behind the last block is applied, to every chosen block
                alike (timm's `forward_intermediates`). A model without one, or with one
                behind the mean, gives the tokens as they are.
            batch_size: images per step.

        Returns:
            `Tokens`: `class_token` and `distillation_token` `(batch, hidden_size)`, `registers`
            `(batch, num_registers, hidden_size)`, each None where the model has none, and
            `patches` `(batch, rows, columns, hidden_size)`. `{block: Tokens}` for several.

        Raises:
            ConfigError: there is no such block.
        """
        from keras_vit.tokens import tokens_of

        return tokens_of(self, images, blocks, norm, batch_size)

    @classmethod
    def from_preset(
        cls,
        source: "str | os.PathLike[str] | Source",
        *,
        num_classes: int | None = None,
        image_size: int | tuple[int, int] | Literal["stored"] | None = "stored",
        dtype: Any = None,
        load_weights: bool = True,
        remat: bool = False,
        trainable: bool = True,
        data_format: str | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        protocol: ProtocolSpec | None = None,
        provenance: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> "VisionTransformer":
        """Loads a preset by name, from the Hub, or out of a local folder or file of any dialect.

        Args:
            source: a name of `keras_vit.list_presets()`; `"hf://owner/repo[@revision][/subfolder]"`,
                which holds a keras_vit preset, a timm, transformers or keras-hub ViT, or an
                official npz (name the file where there are several:
                `"hf://owner/repo/ViT-B_16.npz"`); a preset folder; or a checkpoint file or
                folder. Of a repository only the files that are needed are fetched, into the
                cache of huggingface_hub; repository, commit and sha256 go to `provenance`.
            num_classes: another number of classes than the preset's: a new head with
                zero weights; 0 for features. None keeps the preset's head.
            image_size: pixels, an int or a pair (height, width); the stored positions are
                resized. None for a model that takes any size per call. `"stored"` keeps
                the preset's.
            dtype: a Keras dtype or policy, such as `"mixed_bfloat16"`; None for Keras's setting.
            load_weights: False for the architecture with fresh weights. From the Hub, then,
                no weights are fetched where JSON or the header of a safetensors file suffices.
            remat, trainable, data_format, name: as of `VisionTransformer`; without a name, the
                model has that of its variant.
            labels, protocol, provenance: as of `VisionTransformer`. None keeps what the
                preset says.
            **fields: fields of `ViTConfig`, such as `dropout_rate`, and what else
                `keras_vit.checkpoints.load` takes.

        Raises:
            PresetError: there is no such preset, its folder is damaged, or the Hub refuses or
                fails; the message says what to do.
            CheckpointError: the weights do not fit.
            ConfigError: the fields describe no model that can be.
        """
        from keras_vit.checkpoints import load

        return load(
            source,
            num_classes=num_classes,
            image_size=image_size,
            dtype=dtype,
            load_weights=load_weights,
            remat=remat,
            trainable=trainable,
            data_format=data_format,
            name=name,
            labels=labels,
            protocol=protocol,
            provenance=provenance,
            **fields,
        )

    def save(self, filepath: Any, *args: Any, **options: Any) -> None:
        """Writes a `.keras` file or folder, as any `keras.Model` does.

        Raises:
            ConfigError: the name ends in `.h5` or `.hdf5`. Keras's format of that name holds no
                registered class, so that it could be written and never loaded.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ConfigError(
                f"{filepath}: the h5 format of whole models cannot be loaded again. Save a .keras "
                "file, a preset (save_to_preset), or the weights alone (save_weights)."
            )
        super().save(filepath, *args, **options)

    def save_to_preset(
        self, folder: str | os.PathLike[str], *, card: Mapping[str, Any] | None = None
    ) -> None:
        """Writes `config.json`, `model.safetensors` and a model card, whole or not at all.

        Args:
            folder: the place; a preset that is there gives way.
            card: what the model card shall say beside what the model knows: `description`,
                `license`, `datasets`, `language`, `base_model`, `tags` and `metrics`, see
                `keras_vit.presets.model_card`.

        Raises:
            PresetError: the folder holds something else than a preset, or `card` has a
                field that is none.
        """
        from keras_vit.presets import save_preset

        save_preset(self, folder, card)
