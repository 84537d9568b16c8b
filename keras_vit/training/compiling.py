"""Builds the optimizer, the losses, the metrics and the callbacks of a recipe for a model."""

import math
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit.errors import ConfigError, expect_model, shown
from keras_vit.models.losses import MultiLabelCrossentropy, adapt_losses
from keras_vit.support.fixes.trainer import FreedGradients
from keras_vit.training.first_loss import FirstLoss
from keras_vit.training.optimizers import LayerwiseAdamW, LayerwiseSGD
from keras_vit.training.recipes import PretrainRecipe, Recipe
from keras_vit.training.schedules import LinearDecay, PerUpdate
from keras_vit.training.trainable import layer_decay_multipliers, set_head_bias

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


def compile_args(recipe: Recipe, model: "VisionTransformer") -> dict[str, Any]:
    """Returns the arguments of `compile`, see `Recipe.compile_args`."""
    if expect_model(model).config.num_classes == 0:
        raise ConfigError(
            "The model has num_classes=0, so it has no head to train on labels: "
            "load it with from_preset(..., num_classes=n)."
        )
    arguments = {"optimizer": make_optimizer(recipe, model), **_loss_and_metrics(recipe, model)}
    if model.task == "single_label" and recipe.sums_over_classes(model):
        head = model.get_layer("head").weights
        if not any(keras.ops.any(weight.value) for weight in head):
            # One class is right, so each begins with probability 1 / classes. big_vision has -10
            # for ImageNet-21k's 21,843 classes, and -6.9 for 1,000.
            set_head_bias(model, -round(math.log(model.config.num_classes), 1))
    return arguments


def make_callbacks(recipe: Recipe, model: Any) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of a recipe for `fit`."""
    callbacks: list[keras.callbacks.Callback] = []
    if not isinstance(recipe, PretrainRecipe):
        prediction = expect_model(model).prediction
        if prediction.num_answers > 1 and not prediction.predicts_values:
            callbacks.append(FirstLoss(prediction.num_answers))
    if keras.backend.backend() == "torch":
        callbacks.append(FreedGradients())
    if recipe.ema is not None:
        # Validation uses the averaged weights; Keras leaves them in the model when `fit` ends.
        callbacks.append(keras.callbacks.SwapEMAWeights())
    return callbacks


def _loss_and_metrics(recipe: Recipe, model: "VisionTransformer") -> dict[str, Any]:
    task, is_sum = model.task, recipe.sums_over_classes(model)
    smoothing, one_hot = recipe.label_smoothing, recipe.one_hot
    if recipe.positive_weights is not None and task != "multi_label":
        raise ConfigError('positive_weights need a model with task="multi_label".')
    are_rows = task == "multi_label" or (one_hot and task == "single_label")
    if not are_rows and (smoothing or is_sum):
        name = f"label_smoothing={smoothing}" if smoothing else "loss='sigmoid'"
        raise ConfigError(
            f"{name} needs labels (batch, num_classes) of classes; give one_hot=True here and to "
            "the function of keras_vit.data."
        )
    dense = model.config.dense
    metrics: Any = ["accuracy"] if dense is None else "auto"
    loss, _, accuracy = adapt_losses(model.prediction, dense, "auto", None, metrics)
    judged: dict[str, Any] = {"loss": loss, "weighted_metrics": accuracy}
    if task == "regression":
        judged["weighted_metrics"] = [keras.metrics.MeanAbsoluteError("mean_absolute_error")]
    elif task == "multi_label":
        classes, from_logits = model.config.num_classes, model.prediction.returns_logits
        judged["loss"] = _multi_label_loss(recipe, classes, from_logits)
        area = keras.metrics.AUC(
            curve="PR",
            multi_label=True,
            num_labels=classes,
            from_logits=from_logits,
            name="pr_auc",
        )
        judged["weighted_metrics"] = [area]
    elif one_hot and dense is None:
        losses = keras.losses
        kind = losses.BinaryCrossentropy if is_sum else losses.CategoricalCrossentropy
        judged["loss"] = kind(from_logits=True, label_smoothing=smoothing)
        judged["weighted_metrics"] = [keras.metrics.CategoricalAccuracy("accuracy")]
    if is_sum:
        # Keras takes the mean over classes, big_vision the sum; clipping makes them differ.
        judged["loss_weights"] = float(model.config.num_classes)
    return judged


def make_optimizer(recipe: Recipe, model: "VisionTransformer") -> keras.optimizers.Optimizer:
    """Returns the optimizer of a recipe, for a model or the encoder that it trains."""
    options: dict[str, Any] = {
        "weight_decay": recipe.weight_decay,
        "global_clipnorm": recipe.clip_norm,
        "gradient_accumulation_steps": None if recipe.accumulate == 1 else recipe.accumulate,
    }
    if recipe.layer_decay is not None:
        options["multipliers"] = layer_decay_multipliers(model, recipe.layer_decay)
    if recipe.ema is not None:
        # Keras averages after each batch; `recipe.ema` is for a whole update.
        options |= {"use_ema": True, "ema_momentum": recipe.ema ** (1 / recipe.accumulate)}
    schedule = _schedule(recipe)
    if recipe.optimizer == "sgd":
        return LayerwiseSGD(schedule, momentum=float(recipe.momentum), **options)
    return LayerwiseAdamW(schedule, epsilon=1e-8, **options)  # optax.scale_by_adam's default


def _schedule(recipe: Recipe) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate of each batch; the batches of one update have the same rate."""
    peak, warmup_steps = recipe.rate, recipe.warmup
    decay_steps = recipe.steps - warmup_steps
    if recipe.decay == "linear":
        schedule = LinearDecay(peak, decay_steps, warmup_steps)
    elif warmup_steps:
        schedule = keras.optimizers.schedules.CosineDecay(
            0.0,
            decay_steps,
            alpha=recipe.final_share,
            warmup_target=peak,
            warmup_steps=warmup_steps,
        )
    else:
        schedule = keras.optimizers.schedules.CosineDecay(peak, decay_steps, recipe.final_share)
    return schedule if recipe.accumulate == 1 else PerUpdate(schedule, recipe.accumulate)


def _multi_label_loss(recipe: Recipe, classes: int, from_logits: bool) -> keras.losses.Loss:
    """Returns the loss of a multi-label model for its logits or probabilities.

    Raises:
        ConfigError: the weights are not one positive number per class, or come with smoothing.
    """
    given, smoothing = recipe.positive_weights, recipe.label_smoothing
    if given is None:
        return keras.losses.BinaryCrossentropy(from_logits, label_smoothing=smoothing)
    weights = np.asarray(given)
    are_numbers = weights.shape == (classes,) and weights.dtype.kind in "fiu"
    if not are_numbers or not ((weights > 0) & (weights < np.inf)).all():
        raise ConfigError(
            f"positive_weights={shown(given, quoted=False)}: expected {classes} values above 0, "
            "one per class."
        )
    if smoothing:
        raise ConfigError("label_smoothing and positive_weights exclude each other: choose one.")
    return MultiLabelCrossentropy(given, from_logits)
