"""The recipes of the papers, as arguments of `compile` and `fit`."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

from keras_vit.config.rules import COUNT, POSITIVE, POSITIVE_OR_NONE, Values, choice
from keras_vit.errors import ConfigError, expect_model
from keras_vit.finetune.lora import enable_lora
from keras_vit.finetune.muon import LayerwiseMuon
from keras_vit.finetune.optimizers import LayerwiseAdamW, LayerwiseSGD
from keras_vit.finetune.schedules import LinearDecay, PerUpdate
from keras_vit.finetune.trainable import (
    layer_decay_multipliers,
    train_head,
    train_last_blocks,
    zero_head,
)
from keras_vit.fixes.trainer import FreedGradients
from keras_vit.labels import NAMED
from keras_vit.losses import FirstLoss, many_labels_loss, many_labels_metrics

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Arguments of `compile` and `fit`: dicts of ordinary Keras objects, which may be changed.

    They are used as they are::

        model.compile(**recipe.compile_args)
        model.fit(data, **recipe.fit_args)

    Attributes:
        compile_args: optimizer, loss and metrics.
        fit_args: epochs, callbacks, and steps_per_epoch for endless data.
        batch_size: images per batch of the data: the images of a weight update, divided by
            `accumulate`.
        settings: the arguments of the recipe, as plain JSON types.
    """

    compile_args: dict[str, Any]
    fit_args: dict[str, Any]
    batch_size: int
    settings: dict[str, Any]


def transfer_recipe(
    model: "VisionTransformer",
    steps: int,
    batch_size: int = 512,
    *,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    decay: str = "cosine",
    momentum: float = 0.9,
    clip_norm: float | None = 1.0,
    weight_decay: float = 0.0,
    layer_decay: float | None = None,
    label_smoothing: float = 0.0,
    one_hot: bool = False,
    multi_label: bool = False,
    positive_weights: Sequence[float] | None = None,
    new_head: bool = False,
    head_only: bool = False,
    trainable_blocks: int | None = None,
    lora_rank: int | None = None,
    ema: float | None = None,
    accumulate: int = 1,
    steps_per_epoch: int | None = None,
) -> Recipe:
    """Fine-tuning as in the paper (section 4.1, appendix B.1.1, table 4).

    Momentum SGD, linear warm-up and cosine decay to 0, gradients clipped to a global norm
    of 1, no weight decay; defaults of `vit_jax/configs/common.py` and `vit_jax/train.py`.
    The paper tries learning rates of 0.003, 0.01, 0.03 and 0.06 and takes the best on held-out
    images; a batch much smaller than 512 needs a smaller rate.

    Args:
        model: the model, mostly from `from_preset(..., num_classes=n)`, with a zero head.
        steps: number of weight updates, see `steps_for`.
        batch_size: images per weight update.
        optimizer: `"sgd"`, or `"muon"` for `LayerwiseMuon`.
        learning_rate: highest learning rate; None for 0.03 with SGD and 0.001 with Muon.
        warmup_steps: updates before the highest rate; None for 500, or a tenth of `steps` if
            that is less.
        decay: `"cosine"`, or `"linear"` (to 1e-5).
        momentum: decay of the trace of gradients; Muon keeps its own.
        clip_norm: largest norm of all gradients together; None turns clipping off.
        weight_decay: decoupled decay of kernels, multiplied by the learning rate.
        layer_decay: ratio of the learning rates of a block and the next block, such as 0.75;
            see `layer_decay_multipliers`.
        label_smoothing: share of the label that is divided among all classes; needs `one_hot`.
        one_hot: True for labels `(batch, num_classes)`, such as mixup and cutmix make; False
            for ints `(batch,)`.
        multi_label: many labels per image: `(batch, num_classes)` of zeros and ones. The loss is
            binary cross-entropy, the metrics are `pr_auc` (area below precision and recall) and
            `f1`, both means over the classes; a model without `thresholds` gets 0.5.
        positive_weights: with `multi_label`, the factor of each class's loss where the label is 1,
            such as `data.positive_weights`.
        new_head: whether the head is set to zero first, see `zero_head`.
        head_only, trainable_blocks, lora_rank: restrict the training to the head, the last
            blocks, or low-rank additions; see `train_head`, `train_last_blocks`,
            `enable_lora`. They change the model.
        ema: share that the moving average of the weights keeps per update, such as 0.999.
            Validation uses the average, and `fit` leaves it in the model at the end.
        accumulate: batches per update, of `recipe.batch_size` images each, to save memory.
        steps_per_epoch: batches per epoch, `len(data)`. Epochs are complete: the last epoch may
            continue beyond `steps`, at a rate of 0. None for one epoch of `steps` on endless
            data.

    Raises:
        ConfigError: an argument is invalid; the message names it and the valid values.

    >>> import keras_vit
    >>> model = keras_vit.vit_ti16(image_size=32, num_classes=5)
    >>> recipe = transfer_recipe(model, steps=500, batch_size=64, steps_per_epoch=50)
    >>> recipe.fit_args["epochs"], recipe.settings["warmup_steps"]
    (10, 50)
    """
    if learning_rate is None:
        learning_rate = 0.001 if optimizer == "muon" else 0.03
    if positive_weights is not None and not multi_label:
        raise ConfigError("positive_weights are for many labels per image; give multi_label=True.")
    settings = {name: value for name, value in locals().items() if name != "model"}
    kinds = {"sgd": (LayerwiseSGD, {"momentum": float(momentum)}), "muon": _MUON}
    return _recipe("transfer", model, settings, kinds, longest_warmup=500)


def augreg_recipe(
    model: "VisionTransformer",
    steps: int,
    batch_size: int = 4096,
    *,
    optimizer: str = "adamw",
    learning_rate: float = 0.001,
    warmup_steps: int | None = None,
    decay: str = "cosine",
    clip_norm: float | None = 1.0,
    weight_decay: float = 0.1,
    layer_decay: float | None = None,
    loss: str | None = None,
    label_smoothing: float = 0.0,
    one_hot: bool = True,
    multi_label: bool = False,
    ema: float | None = None,
    accumulate: int = 1,
    steps_per_epoch: int | None = None,
) -> Recipe:
    """Pre-training as in *How to train your ViT?* (arXiv 2106.10270, section 3).

    Adam with beta 0.9 and 0.999, linear warm-up over 10,000 updates, cosine decay, and gradients
    clipped to a global norm of 1. The weight decay is 0.1 or 0.03 times the learning rate on
    kernels (`wd=0.0001` in big_vision, which does not multiply by the rate of 0.001). Model and
    data have the other settings of the recipe: dropout and stochastic depth of 0 or 0.1 each
    (`vit_s16(dropout_rate=0.1, stochastic_depth_rate=0.1)`), and RandAugment and mixup, by the
    paper's names, `"none"` to `"strong2"`.

    Args:
        optimizer: `"adamw"`, or `"muon"` for `LayerwiseMuon` at the same rate and decay.
        loss: `"softmax"`, or `"sigmoid"`, a binary loss per class, summed over the classes;
            None for sigmoid with ImageNet-21k's 21,843 classes and softmax otherwise. With
            sigmoid, an initial bias of the head of -10 helps (`head_bias_init=-10.0`).
        multi_label: as in `transfer_recipe`; the loss is then sigmoid.
        model, steps, and other arguments: as in `transfer_recipe`; `warmup_steps=None` is
            10,000, or a tenth of `steps` if that is less.

    Raises:
        ConfigError: an argument is invalid; the message names it and the valid values.

    >>> import keras_vit
    >>> recipe = augreg_recipe(keras_vit.vit_s16(image_size=32), steps=93_000, weight_decay=0.03)
    >>> recipe.compile_args["optimizer"].beta_2, recipe.settings["warmup_steps"]
    (0.999, 9300)
    """
    if loss is None:
        many = multi_label or expect_model(model).config.num_classes == NAMED["imagenet21k"]
        loss = "sigmoid" if many else "softmax"
    elif multi_label and loss != "sigmoid":
        raise ConfigError(f"loss={loss!r}: many labels per image need loss='sigmoid'.")
    settings = {k: value for k, value in locals().items() if k not in ("model", "many")}
    kinds = {"adamw": (LayerwiseAdamW, {"epsilon": 1e-8}), "muon": _MUON}
    return _recipe("augreg", model, settings, kinds, longest_warmup=10_000)


def steps_for(num_images: int) -> int:
    """Returns the number of updates for a size of data set, in batches of 512 (BiT-HyperRule).

    500 below 20,000 images, 10,000 below 500,000, 20,000 otherwise (Kolesnikov et al. 2020,
    arXiv 1912.11370, section 3.3).

    >>> [steps_for(n) for n in (1_000, 20_000, 1_281_167)]
    [500, 10000, 20000]
    """
    COUNT.check("num_images", num_images)
    return 500 if num_images < 20_000 else 10_000 if num_images < 500_000 else 20_000


_Kinds = dict[str, tuple[type[Any], dict[str, Any]]]
"""The optimizers of a recipe by name: class, and arguments of its own."""

_MUON = LayerwiseMuon, {"epsilon": 1e-8}  # the default of optax.scale_by_adam


def _recipe(
    name: str,
    model: "VisionTransformer",
    settings: dict[str, Any],
    kinds: _Kinds,
    longest_warmup: int,
) -> Recipe:
    """Returns the recipe of settings; checks all of them before it changes the model."""
    settings["one_hot"] = settings["one_hot"] or settings["multi_label"]
    if settings["warmup_steps"] is None and isinstance(settings["steps"], int):
        settings["warmup_steps"] = min(longest_warmup, settings["steps"] // 10)
    _check(settings)
    optimizer = _optimizer(expect_model(model), settings, kinds)
    compile_args = {"optimizer": optimizer, **_loss_and_metrics(model, settings)}
    _choose_what_learns(model, settings)
    if settings["multi_label"] and model.thresholds is None:
        model.thresholds = 0.5

    accumulate, per_epoch = settings["accumulate"], settings["steps_per_epoch"]
    batches = settings["steps"] * accumulate
    callbacks: list[keras.callbacks.Callback] = []
    if model.config.num_classes > 1:
        callbacks.append(FirstLoss(model.config.num_classes))
    if keras.backend.backend() == "torch":
        callbacks.append(FreedGradients())
    if settings["ema"] is not None:
        # Validation sees the averaged weights; Keras leaves them in the model when `fit` ends.
        callbacks.append(keras.callbacks.SwapEMAWeights())
    fit_args: dict[str, Any] = {"epochs": 1, "steps_per_epoch": batches}
    if per_epoch is not None:
        fit_args = {"epochs": math.ceil(batches / per_epoch)}
    fit_args["callbacks"] = callbacks
    batch_size = settings["batch_size"] // accumulate
    return Recipe(compile_args, fit_args, batch_size, {"recipe": name, **settings})


_VALID = {
    "steps": POSITIVE,
    "batch_size": POSITIVE,
    "accumulate": POSITIVE,
    "steps_per_epoch": POSITIVE_OR_NONE,
    "decay": choice("cosine", "linear"),
    "loss": choice("softmax", "sigmoid"),
    "label_smoothing": Values(lambda value: 0 <= value < 1, "a number in [0, 1)"),
    "ema": Values(lambda value: value is None or 0 <= value < 1, "a number in [0, 1) or None"),
    "learning_rate": Values(lambda value: value > 0, "a positive number"),
    "weight_decay": Values(lambda value: value >= 0, "0 or more"),
}


def _check(settings: dict[str, Any]) -> None:
    for name, valid in _VALID.items():
        if name in settings:
            valid.check(name, settings[name])
    steps, batch_size, accumulate = (settings[n] for n in ("steps", "batch_size", "accumulate"))
    if batch_size % accumulate:
        raise ConfigError(f"batch_size={batch_size} is not divisible by accumulate={accumulate}.")
    if not 0 <= settings["warmup_steps"] < steps:
        raise ConfigError(
            f"warmup_steps={settings['warmup_steps']}: expected 0 to {steps - 1}, below steps."
        )


def _loss_and_metrics(model: "VisionTransformer", settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `compile` that follow from the labels."""
    names = ("multi_label", "one_hot", "label_smoothing")
    multi_label, one_hot, smoothing = (settings[name] for name in names)
    is_sigmoid = settings.get("loss") == "sigmoid"
    if model.thresholds is not None and not multi_label:
        raise ConfigError(
            "The model has thresholds, as every model of one class has, for many labels per image: "
            "give multi_label=True, or two classes and model.thresholds = None."
        )
    if not one_hot and (smoothing or is_sigmoid):
        name = "loss='sigmoid'" if is_sigmoid else f"label_smoothing={smoothing}"
        raise ConfigError(
            f"{name} needs labels (batch, num_classes); give one_hot=True here and to the function "
            "of keras_vit.data."
        )
    judged: dict[str, Any] = {}
    if multi_label:
        judged["loss"] = many_labels_loss(model.config, settings.get("positive_weights"), smoothing)
        judged["weighted_metrics"] = many_labels_metrics(model.config)
    elif one_hot:
        losses = keras.losses
        kind = losses.BinaryCrossentropy if is_sigmoid else losses.CategoricalCrossentropy
        judged["loss"] = kind(from_logits=True, label_smoothing=smoothing)
        judged["weighted_metrics"] = [keras.metrics.CategoricalAccuracy("accuracy")]
    else:
        judged["loss"] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        judged["weighted_metrics"] = [keras.metrics.SparseCategoricalAccuracy("accuracy")]
    if is_sigmoid:
        # Keras takes the mean over classes, big_vision the sum; clipping makes them differ.
        judged["loss_weights"] = float(model.config.num_classes)
    return judged


def _choose_what_learns(model: "VisionTransformer", settings: dict[str, Any]) -> None:
    if model.config.num_classes == 0:
        raise ConfigError(
            "The model has num_classes=0, so nothing to train on labels: "
            "load it with from_preset(..., num_classes=n)."
        )
    chosen = {k: settings.get(k) for k in ("head_only", "trainable_blocks", "lora_rank")}
    head_only, blocks, rank = chosen.values()
    if bool(head_only) + (blocks is not None) + (rank is not None) > 1:
        values = ", ".join(f"{name}={value}" for name, value in chosen.items())
        raise ConfigError(f"{values} exclude each other: choose one.")
    if head_only:
        train_head(model)
    elif blocks is not None:
        train_last_blocks(model, blocks)
    elif rank is not None:
        enable_lora(model, rank)
    if settings.get("new_head"):
        zero_head(model)


def _optimizer(
    model: "VisionTransformer", settings: dict[str, Any], kinds: _Kinds
) -> keras.optimizers.Optimizer:
    name = settings["optimizer"]
    if name not in kinds:
        raise ConfigError(f"optimizer={name!r} is not one of {', '.join(kinds)}.")
    kind, own = kinds[name]
    layer_decay, ema, accumulate = (settings[n] for n in ("layer_decay", "ema", "accumulate"))
    options: dict[str, Any] = {
        "weight_decay": float(settings["weight_decay"]),
        "global_clipnorm": settings["clip_norm"],
        "gradient_accumulation_steps": None if accumulate == 1 else accumulate,
    }
    if layer_decay is not None:
        options["multipliers"] = layer_decay_multipliers(model, layer_decay)
    if ema is not None:
        options |= {"use_ema": True, "ema_momentum": ema}
    return kind(_schedule(settings), **own, **options)


def _schedule(settings: dict[str, Any]) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate of each batch; the batches of one update have the same rate."""
    peak, warmup_steps = settings["learning_rate"], settings["warmup_steps"]
    decay_steps = settings["steps"] - warmup_steps
    if settings["decay"] == "linear":
        schedule = LinearDecay(peak, decay_steps, warmup_steps)
    elif warmup_steps:
        schedule = keras.optimizers.schedules.CosineDecay(
            0.0, decay_steps, warmup_target=peak, warmup_steps=warmup_steps
        )
    else:
        schedule = keras.optimizers.schedules.CosineDecay(peak, decay_steps)
    accumulate = settings["accumulate"]
    return schedule if accumulate == 1 else PerUpdate(schedule, accumulate)
