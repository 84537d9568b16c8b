"""The Vision Transformer as a Keras model: build, load, train, predict and save."""

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import keras
import numpy as np

from keras_vit.config import ImageSize, Prediction, Task, ViTConfig
from keras_vit.config.rules import BOOL, COUNT, choice
from keras_vit.config.variants import VARIANTS, find_variant
from keras_vit.errors import ConfigError, described, listed
from keras_vit.images.class_names import (
    ClassNames,
    Thresholds,
    are_numbers,
    check_thresholds,
    expand,
    find_names,
    match_classes,
    shorten,
    top_labels,
)
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.layers.precision import read_policy, write_policy
from keras_vit.layers.quantisation import quantise_parts, quantised_parts
from keras_vit.models import heads
from keras_vit.models.building import Arguments, Reading
from keras_vit.models.graph import Graph
from keras_vit.models.image_checks import ImageChecks, prepare
from keras_vit.models.inference import Inference, run
from keras_vit.models.losses import adapt_losses, compute_probabilities, per_class, warn_of_logits
from keras_vit.models.stages import Stages
from keras_vit.models.tokens import Names, Tokens, compute_tokens
from keras_vit.support.arguments import OnError
from keras_vit.support.fixes import trainer
from keras_vit.support.habits import MODEL_HABITS, answer_no_config
from keras_vit.support.text import log

if TYPE_CHECKING:
    from keras_vit.presets.source import Source


# torch stores parameters and layers separately; otherwise this raises Python's own error.
_read_missing = getattr(keras.Model, "__getattr__", object.__getattribute__)


class _ClassProperty(property):
    """A property of the class as well as of its instances."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.fget(owner) if self.fget else None


def _count_name(name: str) -> str:
    """Returns a name that is unique in the session, as Keras numbers its layers."""
    count = keras.backend.get_uid(name) - 1
    return f"{name}_{count}" if count else name


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(keras.Model):
    """A Vision Transformer for classification, feature extraction or dense prediction.

    It is a functional `keras.Model` with Keras's own `fit`, `evaluate` and `predict`.

    Input: float images `(batch, height, width, channels)` in [-1, 1], or
    `(batch, channels, height, width)` with `"channels_first"`; pixels in [0, 255] of any type
    with `rescale=True`; or packed patches `(batch, patches, values)` with a packed `stem`.

    Output: logits `(batch, num_classes)`, or probabilities with
    `classifier_activation="softmax"`; `(batch, tokens, num_classes)` for unpooled
    classifiers; features (the pre_logits), `(batch, hidden_size or representation_size)`, with
    `num_classes=0`; with a dense head, a map of the image's size: logits
    `(batch, height, width, num_classes)` or depths `(batch, height, width)`.

    Every stage is a named layer, so that `keras.Model(model.input,
    model.get_layer(name).output)` slices the model: `root` and `stage{s}_unit{u}`
    (hybrids), `patch_embedding` (the grid), `patch_tokens`, `class_token`,
    `position_embedding`, `embedding_dropout`, `block_0`..., `encoder_norm`,
    `pool`, `pre_logits`, `head`. Models of other families may also have
    `patch_norm`, `mask_token`, `class_tokens`, `distillation_token`, `register_tokens`,
    `pre_norm`, `rotary_positions` and `projection`.

    Args:
        config: a `ViTConfig`; or None, with its fields as keywords.
        task: `"single_label"`, one class per image (with `num_classes=1`, one of two classes);
            `"multi_label"`, any number of classes per image; `"regression"`, values. See
            `keras_vit.config.Prediction`.
        classifier_activation: `"softmax"` or `"sigmoid"` for a model that returns probabilities;
            None for logits.
        rescale: whether the model takes pixels in [0, 255], which its first layer rescales to
            the range of its protocol. With False it takes images in that range.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
        dtype: a Keras dtype or policy, such as `"mixed_bfloat16"`. Softmax, norms,
            kernel standardisation and the head stay float32 under mixed policies.
        remat: whether training stores only the input of each block and recomputes the block for
            the gradient (gradient checkpointing), which saves memory and costs a forward pass.
        name: name of the model. None for the name of the variant with these sizes, or `"vit"`; as
            Keras numbers layers, the second model with a name is `"vit_1"`.
        class_names: one name per class, for the predictions of `classify`; or the name of an
            included list, `"imagenet1k"` or `"imagenet21k"`.
        protocol: preprocessing of images for these weights, by name or as a dict of name and
            parameters, see `keras_vit.Preprocessor`; None for `"paper"`.
        provenance: origin of the weights, as plain JSON types.
        thresholds: with `task="multi_label"`, the decision thresholds on the probabilities: one
            for all classes or one per class, see the attribute `thresholds`.
        **fields: fields of `ViTConfig`; they take precedence over `config`, and a dict changes
            only the fields of a part that it names.

    Raises:
        ConfigError: a field is invalid; the message names it and the valid values.

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
        task: Task = "single_label",
        classifier_activation: str | None = None,
        rescale: bool = False,
        data_format: str | None = None,
        dtype: Any = None,
        remat: bool = False,
        name: str | None = None,
        trainable: bool = True,
        class_names: ClassNames | None = None,
        protocol: ProtocolSpec | None = "paper",
        provenance: Mapping[str, Any] | None = None,
        thresholds: Thresholds | None = None,
        **fields: Any,
    ) -> None:
        quantised = fields.pop("quantised", {})  # of a saved model
        if isinstance(config, ViTConfig):
            config = config.replace(**fields)
        elif config is None and fields:
            config = ViTConfig.from_dict(fields)
        else:
            raise ConfigError(answer_no_config(config, list(VARIANTS)))
        data_format = data_format or keras.config.image_data_format()
        choice("channels_last", "channels_first").check("data_format", data_format)
        BOOL.check("rescale", rescale)
        task = config.choose_task(task)
        prediction = Prediction(config.num_classes, task, classifier_activation)
        preprocessor = Preprocessor(
            config.image_size,
            config.channels,
            protocol=protocol or "paper",
            data_format=data_format,
            scaled=not rescale,
            patch_size=config.patch_size if config.stem.is_packed else None,
        )
        policy = read_policy(dtype)
        normalisation = preprocessor.normalisation if rescale else None
        graph = Graph(config, prediction, data_format, policy, remat, normalisation)
        super().__init__(
            inputs=graph.images,
            outputs=graph(graph.images),
            name=name or _count_name(find_variant(config) or "vit"),
            trainable=trainable,
        )
        if config.drops_pixels:
            rest = "pixels at the right and bottom that fill no patch are cropped."
            log.warning("image_size=%s: %s", config.image_size, rest)
        self._graph = graph
        self.config = config
        self.prediction = prediction
        self.rescale = rescale
        self.data_format = data_format
        self.remat = remat
        self.dtype_policy = policy
        self.inference = Inference()
        self._image_checks = ImageChecks(config, preprocessor)
        self.input_spec = None  # `call` checks the shape on every backend, and names the fix
        self.class_names = class_names
        self.thresholds = thresholds
        self.provenance = MappingProxyType(dict(provenance or {}))
        self.title = self.name  # for HTML pages; `from_preset` replaces it by the source
        self.preprocessor = preprocessor
        quantise_parts(self.layers, quantised)

    def __repr__(self) -> str:
        config = self.config
        facts: dict[str, Any] = {"variant": find_variant(config), "image_size": config.image_size}
        source = None if self.title == self.name else self.title
        facts |= {"num_classes": config.num_classes, "source": source}
        return described(self, name=self.name, **facts)

    if not TYPE_CHECKING:  # type checkers know the names

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError; for a name of another library, it names the equivalent.

            Python calls this only for names that neither the model nor its class has.
            """
            if name not in MODEL_HABITS:
                return _read_missing(self, name)
            try:
                return _read_missing(self, name)
            except AttributeError as error:
                message = f"{error}. {MODEL_HABITS[name]}."
                raise AttributeError(message, name=name, obj=self) from error

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name per class, or None.

        The names can be set, as in the constructor. `keras_vit.data` maps the classes of a data set
        to them. A model without names takes those of its training data; set None to discard the
        names, to train the head on other classes. Presets and `.keras` files store them.

        Raises:
            ConfigError: as `VisionTransformer`.
        """
        return None if self._labels is None else expand(self._labels)

    @class_names.setter
    def class_names(self, class_names: ClassNames | None) -> None:
        self._labels = shorten(class_names, self.prediction.num_answers)

    @property
    def task(self) -> Task:
        """The task of the model, such as `"multi_label"`, see `keras_vit.config.Prediction`."""
        return self.prediction.task

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """The decision thresholds of a multi-label model, one per class; None for another task.

        `classify` and the server return all labels whose probability reaches its threshold. The
        default is 0.5. Set a number for all classes, or one per class, such as the result of
        `keras_vit.evaluation.choose_thresholds`. Presets and `.keras` files store them.
        """
        return self._thresholds

    @thresholds.setter
    def thresholds(self, thresholds: Thresholds | None) -> None:
        if self.task == "multi_label":
            thresholds = 0.5 if thresholds is None else thresholds
        elif thresholds is not None:
            raise ConfigError(
                f'thresholds need task="multi_label"; this model has task={self.task!r}.'
            )
        self._thresholds = check_thresholds(thresholds, self.config.num_classes)

    @_ClassProperty
    def presets(cls) -> Mapping[str, dict[str, Any]]:  # noqa: N805
        """All presets of the catalog by name, in the format of keras-hub's `presets`."""
        from keras_vit.presets.source import describe_presets

        return describe_presets()

    def call(
        self,
        inputs: Any,
        training: bool | None = None,
        mask: Any = None,
        stages: "Stages | Sequence[str] | None" = None,
    ) -> Any:
        """Returns the output for a batch of images, or `{stage: tensor}` for names of stages.

        Args:
            inputs: the images, see `VisionTransformer`.
            training: whether dropout and stochastic depth are active.
            mask: not used; Keras passes it.
            stages: names of intermediate results; or a `keras_vit.models.stages.Stages`, which
                contains them after the call.
        """
        images = self._graph.standardise(self._image_checks.check(inputs), mask=mask)
        if stages is None or isinstance(stages, Stages):
            return self._graph(images, training, stages)
        names = (stages,) if isinstance(stages, str) else stages
        self._graph.check_stages(names)
        chosen = Stages(names, ends_call=True)
        self._graph(images, training, chosen)
        return chosen.values

    def symbolic_call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds the model to another model; called by Keras, as in `keras.Sequential([vit])`."""
        self._check_before_call(inputs)
        if self.prediction.returns_logits:
            warn_of_logits()
        return super().symbolic_call(inputs, *args, **kwargs)

    def _check_images(self, images: Any) -> None:
        """Refuses images with a wrong shape, and warns once about pixels in another range.

        Raises:
            ConfigError: the shape does not fit the model; the message names the fix.
        """
        self._image_checks.check(images if hasattr(images, "shape") else np.asarray(images))

    def _check_before_call(self, inputs: Any) -> None:
        """Checks images before `call`, unless a subclass overrides it and may take other images.

        Raises:
            ConfigError: as `ImageChecks.check`.
        """
        if type(self).call is VisionTransformer.call:
            self._image_checks.check(inputs)

    def _agree_on_names(self, data: Any) -> None:
        """Takes the class names of a data set, or refuses classes in another order.

        Raises:
            ConfigError: as `match_classes`; or the order differs.
        """
        names = find_names(data)
        if not names or not self.config.num_classes:
            return
        is_whole = len(names) == self.prediction.num_answers
        if self.class_names is None and is_whole and not are_numbers(names):
            self.class_names = names
        # Keras names each distinct value of a regression, and a single output has no order.
        if self.task == "regression" and not (is_whole and len(names) > 1):
            return
        if self.class_names and match_classes(names, self.class_names) != [*range(len(names))]:
            raise ConfigError(
                f"The data set has the classes of the model in another order, {listed(names)} "
                f"instead of {listed(self.class_names)}: pass the model to keras_vit.data, or use "
                "data.with_class_names(model.class_names), or pass its order to your own reader."
            )

    def _check_stages(self, names: Sequence[str]) -> None:
        """Checks names of stages of this model, see `keras_vit.models.stages.Stages`.

        Raises:
            ConfigError: the model has no stage with this name (the message lists its layers); or a
                subclass overrides `call` without the argument `stages`.
        """
        if names and "stages" not in inspect.signature(self.call).parameters:
            raise ConfigError(
                f"{type(self).__name__}.call overrides VisionTransformer.call without the argument "
                "`stages`, so that its stages cannot be read. Accept `stages` and pass it on."
            )
        self._graph.check_stages(names)

    def _stage_shape(self, name: str) -> tuple[int | None, ...]:
        """Returns the shape of a stage, with None for the batch and for unknown sizes."""
        layer, _, kind = name.partition("/")
        if kind == "attention":
            return (None, None, None, None)
        if (pooling := kind.rpartition("/")[2]) in self.config.poolings:
            return None, self.config.hidden_size * (1 + (pooling == "token_and_mean"))
        shape = tuple(self.get_layer("head" if name == "logits" else layer).output.shape)
        joined = name == "pre_logits" and self.config.has_two_heads and self.config.num_classes
        return (shape[0], shape[-1]) if joined else shape

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **options: Any,
    ) -> None:
        """Configures training, as `keras.Model.compile`.

        Args:
            optimizer: as in Keras.
            loss: as in Keras, or `"auto"` for the loss of the model's task: categorical
                cross-entropy for a single label, as an index or one-hot, and for segmentation;
                binary cross-entropy for multi-label classification, and for binary classification
                with a single logit and labels 0 and 1; mean squared error for regression; the
                scale-invariant log loss for depth. If a cross-entropy of Keras would mistake this
                model's logits for probabilities, it is used with
                `from_logits=True` and a warning.
            loss_weights: as in Keras.
            metrics, weighted_metrics: as in Keras; the accuracy of multi-label and single-logit
                models uses the threshold that fits their outputs. `"auto"` for the metrics of a
                dense head: mean intersection over union; or root mean squared error and the
                fraction of pixels within a factor of 1.25.
            **options: as in Keras.

        Raises:
            ConfigError: `loss="auto"` for a model without a head; a loss or metric of Keras that
                takes probabilities, such as AUC and Precision, for a model that returns logits
                (build or load it with a `classifier_activation`, or pass `from_logits=True` to the
                metric if it has this argument); or one that compares several classes, for a model
                with a single output.
        """
        dense = self.config.dense
        losses = adapt_losses(self.prediction, dense, loss, metrics, weighted_metrics)
        loss, metrics, weighted_metrics = losses
        super().compile(optimizer, loss, loss_weights, metrics, weighted_metrics, **options)
        self.inference.forget_programs()

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model; Keras requires this method if a class overrides `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if getattr(self, "optimizer", None) is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    if keras.backend.backend() == "jax":

        def make_train_function(self, force: bool = False) -> Any:
            """Makes the function of a training step; called by Keras."""
            super().make_train_function(force)
            return trainer.share_weights(self)

    if keras.backend.backend() == "tensorflow":

        @property
        def distribute_strategy(self) -> Any:
            """The `tf.distribute.Strategy` that Keras trains with."""
            return trainer.without_tuning(super().distribute_strategy)

    @trainer.shown_as(keras.Model.fit)
    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit`; a model without class names takes those of the data set."""
        for data in (x, kwargs.get("validation_data")):
            images = data[0] if data is not x and isinstance(data, (list, tuple)) else data
            self._check_before_call(images)
            self._agree_on_names(data)
        return super().fit(x, *args, **kwargs)

    @trainer.shown_as(keras.Model.evaluate)
    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.evaluate`."""
        self._check_before_call(x)
        self._agree_on_names(x)
        with trainer.guard_weights(self):
            return super().evaluate(x, *args, **kwargs)

    @trainer.shown_as(keras.Model.predict)
    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict`."""
        self._check_before_call(x)
        with trainer.guard_weights(self):
            return super().predict(x, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, and the quantised layers, as JSON types."""
        return {
            **self.config.to_dict(),
            "task": self.task,
            "classifier_activation": self.prediction.classifier_activation,
            "rescale": self.rescale,
            "data_format": self.data_format,
            "dtype": write_policy(self.dtype_policy),
            "remat": self.remat,
            "name": self.name,
            "trainable": self.trainable,
            "class_names": self._labels,
            "protocol": self.preprocessor.protocol,
            "provenance": dict(self.provenance),
            **({"thresholds": self._thresholds} if self._thresholds is not None else {}),
            **({"quantised": parts} if (parts := quantised_parts(self.layers)) else {}),
        }

    def classify(
        self, images: Any, top: int | None = None, batch_size: int = 32
    ) -> list[list[tuple[str, float]]]:
        """Returns the most probable labels of each image: `[[(label, probability), ...], ...]`.

        Args:
            images: paths, PIL images or arrays, as for `preprocessor`; an iterator is read
                batch by batch.
            top: number of labels per image. None for 5, or, with a multi-label model, for all
                labels that reach their threshold; the list of an image may then be empty.
            batch_size: images per step.

        Raises:
            ConfigError: the model has no head, returns one prediction per token, or is for
                regression; or an image cannot be read.
        """
        answers = [answer for _, answer in self.classify_each(images, top, batch_size)]
        if not answers:
            raise ConfigError("images is empty, expected at least one image.")
        return answers

    def classify_each(
        self,
        images: Any,
        top: int | None = None,
        batch_size: int = 32,
        on_error: OnError = "raise",
    ) -> Iterator[tuple[Any, list[tuple[str, float]]]]:
        """Classifies a stream of images: yields each image as given, and its most probable labels.

        The next batch is read and resized while the model computes the current batch; at most
        two batches are in memory.

        Args:
            images, top, batch_size: as in `classify`.
            on_error: what to do if an image cannot be read: `"raise"` the error; `"skip"` the image
                with a warning; or a function of the image and the error, to call and skip it.

        Raises:
            ConfigError: as `classify`.
        """
        self._demand_classes("classify")
        COUNT.check("top", 1 if top is None else top)
        for items, batch in self.preprocessor.batches(images, batch_size, on_error):
            shares = self.probabilities(batch, batch_size, prepared=True)
            answers = top_labels(shares, self.class_names, top, self.thresholds)
            yield from zip(items, answers, strict=True)

    def probabilities(
        self, images: Any, batch_size: int | None = None, *, prepared: bool = False
    ) -> np.ndarray:
        """Returns the probability of each class, float32 `(batch, num_classes)`.

        The probabilities are the softmax of the logits, or, for a multi-label model, the sigmoid of
        each logit. A single-label model with one logit returns `(batch, 2)`; the sigmoid is the
        probability of the second class.

        Args:
            images: paths, PIL images or arrays, as for `preprocessor`.
            batch_size: images per step; None for all in one step.
            prepared: whether `images` is a batch that `preprocessor` has made.

        Raises:
            ConfigError: as `classify`; or the images look like a prepared batch, and `prepared` is
                False.
        """
        self._demand_classes("probabilities")
        batch = prepare(self, images, prepared)
        outputs: np.ndarray = per_class(run(self, batch, batch_size=batch_size), self.prediction)
        if self.prediction.returns_logits:
            outputs = compute_probabilities(outputs, self.task)
        return outputs

    def _demand_classes(self, what: str) -> None:
        self.config.demand_prediction(what)
        self.prediction.demand_classes(what)

    @overload
    def tokens(
        self, images: Any, stages: str | None = ..., *, batch_size: int = ..., prepared: bool = ...
    ) -> Tokens: ...

    @overload
    def tokens(
        self, images: Any, stages: Names, *, batch_size: int = ..., prepared: bool = ...
    ) -> dict[str, Tokens]: ...

    def tokens(
        self, images: Any, stages: Any = None, *, batch_size: int = 32, prepared: bool = False
    ) -> Any:
        """Extracts dense features: the patch tokens of one or more blocks, and the class token.

        Args:
            images: paths, PIL images or arrays, as for `preprocessor`.
            stages: name of a stage of tokens, or several names: `"block_3"` is the output of a
                block, `"block_3/norm"` the same after the last norm of the model, and
                `"block_3/input"` the input of the block. The last norm has no effect if the model
                has none, or applies it to the mean. None for the last block, after the last norm.
            batch_size: images per step.
            prepared: whether `images` is a batch that `preprocessor` has made.

        Returns:
            `keras_vit.models.tokens.Tokens`: `patches` `(batch, rows, columns, hidden_size)`, and
            each kind of learned tokens, or None. For several stages `{stage: Tokens}`.

        Raises:
            ConfigError: the model has no such stage of tokens; an image cannot be read; or the
                images look like a prepared batch, and `prepared` is False.
        """
        return compute_tokens(self, prepare(self, images, prepared), stages, batch_size)

    def with_head(
        self,
        head: "keras.layers.Dense | str | os.PathLike[str]",
        class_names: ClassNames | None = None,
        *,
        task: Task = "single_label",
        allow_pickle_weights: bool = False,
    ) -> "VisionTransformer":
        """Returns a copy of this model with a trained head: a `Dense` layer, or one in a file.

        `keras.Model(model.input, head(features))`, where `features` is the output of `pre_logits`,
        is a plain Keras model, which can train and predict, but has no `classify` and no presets.
        `model.with_head(head)` computes the same and has both.

        Args:
            head: a layer on the output of `pre_logits`, `(batch, hidden_size or
                representation_size)`, with the activation `"softmax"`, `"sigmoid"` or linear. Or
                the path of a file with `weight` `(classes, width)` and `bias`, such as the linear
                heads for ImageNet of DINOv2 and DINOv3. These read the class token and the mean of
                the patches: the copy has `pool.kind="token_and_mean"`, and
                `pool.blocks=4` for heads on four blocks (`..._linear4_head.pth`).
            class_names: one name per class, as for `VisionTransformer`.
            task: task of the head, see `VisionTransformer`; `Dense(1)` classifies two
                classes, and several outputs with `"sigmoid"` are multi-label.
            allow_pickle_weights: whether to read a `.pth` file, see `read` of `from_preset`.

        Raises:
            ConfigError: the layer is not a `Dense`, was never called, or has another width or
                activation; or this model's head does not read one vector per image.
            CheckpointError: the file cannot be read, or its head belongs to another encoder.
        """
        if isinstance(head, (str, os.PathLike)):
            from keras_vit.checkpoints.containers import read_arrays

            arrays = read_arrays(head, allow_pickle_weights=allow_pickle_weights)
            return heads.with_stored_head(self, arrays, head, class_names, task)
        return heads.with_head(self, head, class_names, task)

    def with_dense_head(
        self,
        num_outputs: int = 1,
        head: Literal["linear", "dpt"] = "linear",
        stages: Sequence[int] | None = None,
        task: Literal["segmentation", "depth"] = "segmentation",
        class_names: ClassNames | None = None,
        **fields: Any,
    ) -> "VisionTransformer":
        """Returns a copy of this model for semantic segmentation or depth, with an untrained head.

        Train it with `fit` on masks or depth maps, `keras_vit.data.from_folder(images, model,
        targets=...)`; `compile(loss="auto", metrics="auto")` chooses loss and metrics.
        `keras_vit.training.train_head(model)` freezes everything except the head. Layers that are
        frozen in this model stay frozen.

        Args:
            num_outputs: number of classes; 1 for depth.
            head: `"linear"`, a linear layer on the patch tokens; or `"dpt"`, the convolutional
                decoder of arXiv 2103.13413, for finer maps.
            stages: the blocks that the head reads, counted from 0; later blocks are removed. None
                for the last block, or with DPT the last blocks of the four quarters.
            task: `"segmentation"`, logits `(batch, height, width, num_outputs)`; or `"depth"`,
                positive values `(batch, height, width)`.
            class_names: one name per class, as for `VisionTransformer`.
            **fields: other fields of `keras_vit.config.DenseHead`, such as `ignore_label`.

        Raises:
            ConfigError: an argument is invalid, or the model takes packed patches or has LoRA
                weights.
        """
        own = {"stages": stages, "kind": head, **fields}
        return heads.with_dense_head(self, num_outputs, task, class_names, own)

    def head_from_embeddings(
        self,
        embeddings: Any,
        class_names: Sequence[str] | None = None,
        *,
        scale: float | None = None,
        bias: float | None = None,
    ) -> "VisionTransformer":
        """Returns a copy of this model as a zero-shot classifier, from text embeddings.

        The logits are `scale * cos(image, text) + bias`, as in CLIP (arXiv 2103.00020, section
        3.1.2) and, with a bias, SigLIP (arXiv 2303.15343); the image embedding is the output of
        `pre_logits`. Compute the text embeddings with the library of the text tower.

        Args:
            embeddings: an array `(classes, width)`, or `(classes, prompts, width)` for several
                texts per class; a mapping from labels to arrays `(width,)` or `(prompts, width)`;
                or the path of a `.npz` or `.safetensors` file with such a mapping. Texts of one
                class are averaged as in CLIP: unit vectors, mean, unit vector.
            class_names: one name per class; None for the names in the mapping.
            scale: factor of the cosine. None for the temperature, `exp(logit_scale)`, of the
                two-tower file that the model was loaded from.
            bias: value added to all logits; None for `logit_bias` of that file, or 0.

        Raises:
            ConfigError: the embeddings have another width than the `pre_logits`, are zero or not
                finite, or have no labels; the scale is unknown; or the model's head does not read
                one vector per image.
        """
        if isinstance(embeddings, (str, os.PathLike)):
            from keras_vit.checkpoints.containers import read_arrays

            embeddings = read_arrays(embeddings)
        return heads.head_from_embeddings(self, embeddings, class_names, scale, bias)

    @classmethod
    def from_preset(
        cls,
        source: "str | os.PathLike[str] | Source",
        *,
        num_classes: int | None = None,
        image_size: ImageSize = None,
        load_weights: bool = True,
        read: Reading | None = None,
        **arguments: Unpack[Arguments],
    ) -> "VisionTransformer":
        """Loads a model: a preset by name, a Hub repository, or a checkpoint file of any library.

        Names, shapes and types of all arrays are checked before the model is built, and all
        values must be finite. Arrays are read one at a time. All files of a folder are opened
        before any array is read, so that a model never mixes two versions of it.

        Args:
            source: a name of `keras_vit.list_presets()`; `"hf://owner/repo[@revision][/subfolder]"`,
                a repository with a keras_vit preset, a timm, transformers or keras-hub ViT, or
                an official npz (name one of several files: `"hf://owner/repo/ViT-B_16.npz"`);
                a preset folder; or a checkpoint file or folder. Only the necessary files of a
                repository are downloaded, to the cache of huggingface_hub; repository, commit
                and sha256 are recorded in `provenance`.
            num_classes: None keeps the preset's head, another number of classes makes a new head
                with zero weights, and 0 removes the head.
            image_size: pixels, an int or a pair (height, width), to which the stored positions are
                resized. None for the size of the preset, `(None, None)` for a model that
                takes images of any size.
            load_weights: False for the architecture with new, random weights. Weights on the Hub
                are then downloaded only if JSON and headers are not sufficient.
            read: how to read the files, a dict with any of these keys:

                - `family`: name of the checkpoint format, if the names of the arrays are ambiguous.
                - `variant`: name of the variant that the file must contain.
                - `prefix`: prefix of the names of the arrays to read, if a file contains several
                  Vision Transformers. By default it is found; the log names skipped arrays.
                - `ignore`: names of arrays to skip, or patterns such as `"decoder.*"`.
                - `weights`: `"ema"` for the moving average of the weights, `"raw"` for the weights
                  themselves, if a training checkpoint has both; by default the average.
                - `timm`: an architecture of timm, `"vit_small_patch16_224"`, or the arguments of
                  `timm.create_model` by name, as a model card prints them: `{"model_name":
                  "vit_giant_patch14_224", "mlp_layer": "SwiGLUPacked", "reg_tokens": 8}`. They
                  replace or change the `config.json` of the weights. If that file states the
                  architecture, `model_name` may be omitted or name a repository
                  (`"hf-hub:owner/name"`). `mlp_layer` and `act_layer` are classes or their
                  names; `mean`, `std`, `interpolation`, `crop_pct` and `crop_mode` set the
                  preprocessing; `num_classes=0` removes the head. Arguments without effect on
                  inference, such as `pretrained`, are ignored.
                - `checksum`: False to load a preset without comparing its weights with the sha256
                  in its `config.json`.
                - `allow_pickle_weights`: True to read weights from a PyTorch pickle (`.bin`,
                  `.pth`), with `torch.load(weights_only=True)` of torch 2.7 or newer; see
                  SECURITY.md.

            **arguments: fields of the network and other arguments of `VisionTransformer`.

                A dict changes only the fields of a part that it names: `block={"epsilon": 1e-5}`.
                Fields without weights, such as the dropout rates, `position_resize`, epsilon and
                activation of the block, or kind and norm of the pool, may be changed, also with the
                stored head. `representation_size=None` removes that layer; if the file has no layer
                scale, one with the given value is added. All other fields must match the arrays.
                Another `patch_size` resizes the patch embedding as in FlexiViT
                (`adapt.resize_patches`) and, with it, the positions. `position_grid` gives the
                (rows, columns) of the stored positions, if these are not square or fit two grids.

                `class_names`, `protocol`, `provenance` and `thresholds` are those of the preset if
                they are None.

        Raises:
            PresetError: the preset does not exist or is damaged, or the Hub refuses or fails;
                the message states a remedy.
            CheckpointError: arrays do not match; the message names the file and each such array.
            ConfigError: an argument or a key of `read` is unknown or invalid; the message names it
                and the valid ones.
        """
        from keras_vit.checkpoints.transfer import load  # reads all families' tables

        model: VisionTransformer = load(
            cls,
            source,
            num_classes=num_classes,
            image_size=image_size,
            load_weights=load_weights,
            read=read,
            **arguments,
        )
        return model

    def save_to_preset(
        self, path: str | os.PathLike[str], *, card: Mapping[str, Any] | None = None
    ) -> None:
        """Saves the model as a preset folder, which `from_preset` loads.

        The folder contains `config.json`, `model.safetensors` and a model card. If saving fails, no
        file is written.

        Args:
            path: path of the folder; an existing preset is replaced.
            card: additional fields of the model card: `description`, `license`, `datasets`,
                `language`, `base_model`, `tags` and `metrics`, see
                `keras_vit.presets.model_card`.

        Raises:
            PresetError: the folder contains other files than a preset, or `card` has an unknown
                field.
        """
        from keras_vit.checkpoints.saving import save_preset

        save_preset(self, path, card)
