"""`pretrain`: trains an encoder on images without labels, as `keras-vit pretrain` does."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints import Source
from keras_vit.config.variants import VARIANTS
from keras_vit.config.views import Views
from keras_vit.data import ImageData, ImageSource
from keras_vit.errors import ConfigError
from keras_vit.evaluation import effective_rank, features, knn_accuracy
from keras_vit.models.builders import Builder, variant
from keras_vit.models.building import Reading
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import check_training
from keras_vit.support.backend import require_training
from keras_vit.support.text import counted, warn
from keras_vit.training.finetuning import (
    as_source,
    build_start,
    choose_output,
    divide_into_epochs,
    open_start,
    show_plan,
)
from keras_vit.training.recipes import PretrainRecipe
from keras_vit.training.self_supervised import SelfSupervised
from keras_vit.training.training import (
    LAST,
    TrainingResult,
    describe_origin,
    fit_in,
    save_trained,
    state_origin,
)

_METERED = 1024
"""Largest number of images without labels that are embedded after each epoch."""
_LEAST_RANK = 2.0
"""Effective rank below which the embeddings have collapsed."""
_AT_ONE_POINT = 0.4
"""SIGReg of projections that are all zero, per image of a batch."""


def pretrain(
    data: str | os.PathLike[str] | ImageSource,
    *,
    source: str | os.PathLike[str] | Source | Builder,
    path: str | os.PathLike[str],
    steps: int | None = None,
    recipe: PretrainRecipe | None = None,
    labels: str | os.PathLike[str] | ImageSource | None = None,
    resume: bool = False,
    pixel_range: tuple[float, float] | None = None,
    progress: bool = False,
    read: Reading | None = None,
    **fields: Any,
) -> TrainingResult:
    """Trains an encoder on images without labels (self-supervised, LeJEPA), and saves a preset.

    The folder `path` gets `log.csv` (one row per epoch), the preset `last/`, which every epoch
    replaces, and `resume/`, from which an interrupted training resumes. The preset is the encoder
    without a head; its provenance has data, recipe, metrics of all epochs and, as `base`, the
    provenance and the license of the initial weights. Use it with `keras_vit.probe` and
    `keras_vit.finetune`. `keras_vit.training.SelfSupervised` is the model, for your own programs.

    After each epoch the log has the loss and its two parts; `rank`, the
    `keras_vit.evaluation.effective_rank` of the embeddings of up to 1,024 images; and with
    `labels` the `knn_accuracy`. A warning is issued if the embeddings have collapsed.

    Args:
        data: a folder, whose images may be in folders of any depth; `"tfds:NAME"` or
            `"hf:OWNER/NAME"`, whose labels are not used; or an `ImageSource`.
        source: a source of `VisionTransformer.from_preset`, to continue its training; or a variant
            such as `"vit_ti16"`, or its builder, to train from random weights.
        path: folder for the results; new, except with `resume`.
        steps: number of weight updates; None for 1,000, or those of the recipe.
        recipe: a `PretrainRecipe`; None for the authors' settings. Without
            `steps_per_epoch` the steps are divided into equal epochs, at most 20.
        labels: images with labels, which are only used for the k-NN accuracy: a folder with a
            folder of images per class, or an `ImageSource`. They must not be in the folder of the
            training images.
        resume: whether to continue the training in `path`, which had the same arguments.
        pixel_range: values of black and white in images of more than 8 bits, see `Preprocessor`.
        progress: whether the plan, an estimate of the time after ten batches, and each epoch are
            printed.
        read: as for `VisionTransformer.from_preset`.
        **fields: its other arguments, such as `image_size`, the size of the preset, and `dtype`;
            None for the values of the source.

    Raises:
        BackendError: the backend is OpenVINO, which computes no gradients.
        ConfigError: an argument is invalid; there are fewer images than in a batch, or all are the
            same; or the loss is not finite. The message names the fix.
        PresetError: the preset does not exist.
        CheckpointError: the weights do not fit, or `path` holds another training.
    """
    require_training()
    place = Path(path)
    pictures = as_source(data, fields, PretrainRecipe)
    labelled = labels if isinstance(labels, ImageSource | None) else ImageSource(labels)
    check_training(
        pictures.name,
        place,
        resume=resume,
        validation=labelled and labelled.name,
        is_labelled=False,
        **pictures.labels,
    )
    if steps is not None and recipe is not None:
        raise ConfigError(f"steps={steps}: give it in recipe=PretrainRecipe({steps}, ...).")
    if not isinstance(recipe, PretrainRecipe | None):
        raise ConfigError(f"recipe: expected a PretrainRecipe, found {type(recipe).__name__}.")
    if isinstance(source, str) and source in VARIANTS:
        source = variant(source)
    fields = {k: v for k, v in {**fields, "read": read or None}.items() if v is not None}
    found, description = open_start(source, fields)
    description.config.refuse_map("pretrain")
    recipe = recipe or PretrainRecipe(1000 if steps is None else steps)
    keras.utils.set_random_seed(recipe.seed % 2**32)  # Keras takes no larger one
    fields |= {"num_classes": 0, "class_names": None}
    result = build_start(found, description, fields)
    recipe = divide_into_epochs(recipe.replace(views=recipe.views.fit(result.config)))
    encoder = _take_views(result, recipe.views)
    model = SelfSupervised(encoder, recipe.views, **recipe.loss_args)
    preprocessor = dataclasses.replace(
        result.preprocessor, image_size=recipe.views.global_size, pixel_range=pixel_range
    )
    images = pictures.for_training().read(preprocessor, **recipe.data_args)
    seen = labelled.read(preprocessor) if labelled else _sample(images)
    meter = _Meter(place, result, encoder, seen, labelled is not None, images.batch_size)
    meter.check()
    meter.origin = describe_origin(result, images, recipe)
    if progress:
        show_plan(_describe_plan(result, images, recipe, found))
    output = choose_output(progress)
    output["callbacks"] = [meter, *output["callbacks"]]
    history = fit_in(place, model, images, recipe, **output)
    meter.save(history)
    return TrainingResult(place / LAST, history)


def _take_views(model: VisionTransformer, views: Views) -> VisionTransformer:
    """Returns a model with the same weights for images of the views' sizes."""
    config, sizes = model.config, {(size, size) for _, size, _ in views.groups.values()}
    if config.image_size is None or sizes == {config.image_size}:
        return model
    of_any_size: dict[str, Any] = {"image_size": (None, None)}
    if config.has_learned_positions:
        of_any_size["position_grid"] = config.source_grid
    encoder = type(model).from_config({**model.get_config(), **of_any_size})
    _copy_weights(model, encoder)
    return encoder


def _copy_weights(model: VisionTransformer, copy: VisionTransformer) -> None:
    if copy is not model:
        for variable, value in zip(copy.weights, model.weights, strict=True):
            variable.assign(value)


def _sample(images: ImageData) -> ImageData:
    """Returns up to 1,024 of the images, as they are prepared for evaluation."""
    count = images.num_images
    return images.hold_out(min(_METERED, count - 1) / count)[1]


class _Meter(keras.callbacks.Callback):
    """Measures the embeddings after each epoch, and saves the encoder.

    Args:
        path: folder of the training.
        result: the model that is saved.
        encoder: the model that is trained.
        images: images prepared for evaluation.
        has_labels: whether they have labels, for the k-NN accuracy.
        batch_size: number of images of a training batch.
    """

    def __init__(
        self,
        path: Path,
        result: VisionTransformer,
        encoder: VisionTransformer,
        images: ImageData,
        has_labels: bool,
        batch_size: int,
    ) -> None:
        super().__init__()
        self.path, self.result, self.encoder = path, result, encoder
        self.images, self.has_labels, self.batch_size = images, has_labels, batch_size
        self.origin: dict[str, Any] = {}

    def check(self) -> None:
        """Refuses images that all have the same embedding."""
        if not effective_rank(features(self.encoder, self.images).values):
            raise ConfigError(
                f"{self.images.name}: all {self.images.num_images} images have the same embedding. "
                "Training compares different images: are these copies of one image?"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stops a training whose loss is not finite."""
        if not np.isfinite(loss := logs["loss"]):
            raise self._describe_fault(
                f"The loss is {loss} in step {batch + 1} of epoch {self._epoch + 1}."
            )

    def _describe_fault(self, fault: object) -> ConfigError:
        saved = f"{self.path / LAST} has the encoder of epoch {self._epoch}. "
        return ConfigError(
            f"{fault} {saved if self._epoch else ''}Try a lower learning_rate, or train without "
            "mixed_float16, in another folder."
        )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds rank and accuracy to the log, and saves the encoder."""
        try:
            values, labels = features(self.encoder, self.images)
        except ConfigError as error:  # the last step has spoilt the encoder, not the images
            raise self._describe_fault(f"After epoch {epoch + 1}: {error}") from error
        logs["rank"] = rank = effective_rank(values)
        if self.has_labels:
            logs["knn_accuracy"] = knn_accuracy(values, labels)
        at_one_point = _AT_ONE_POINT * self.batch_size
        if rank < _LEAST_RANK or logs["sigreg"] > 0.9 * at_one_point:  # a deviation below 0.2
            warn(
                f"The embeddings have collapsed: their rank is {rank:.1f} of {values.shape[1]}, "
                f"and sigreg is {logs['sigreg']:.3g}, compared with {at_one_point:.3g} if all "
                "projections are equal. Try a larger sigreg_weight or batch_size, or a lower "
                "learning_rate."
            )
        history = self.model.history.history
        self.save({name: [*history.get(name, ()), value] for name, value in logs.items()})

    def save(self, history: dict[str, list[float]]) -> None:
        """Writes the preset, with the metrics of each epoch in its provenance."""
        _copy_weights(self.encoder, self.result)
        rounded = {k: [float(f"{v:.5g}") for v in values] for k, values in history.items()}
        state_origin(self.result, {**self.origin, "history": rounded})
        save_trained(self.result, self.path / LAST)


def _describe_plan(
    model: VisionTransformer, images: ImageData, recipe: PretrainRecipe, found: Source | None
) -> dict[str, str]:
    groups = recipe.views.groups.values()
    facts = {
        "model": f"{model.title}, {model.count_params():,} parameters",
        "start": "random weights" if found is None else "the weights of the source",
        "images": f"{images.num_images:,}, without labels",
        "views": ", ".join(f"{count} of {size} x {size} pixels" for count, size, _ in groups),
        "steps": f"{recipe.steps:,} of {counted(recipe.batch_size, 'image')}; "
        f"{recipe.steps * recipe.batch_size / images.num_images:.3g} passes over the images",
    }
    if images.unreadable:
        facts["skipped"] = f"{counted(len(images.unreadable), 'image')} that cannot be read"
    return facts
