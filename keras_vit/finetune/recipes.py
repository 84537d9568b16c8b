"""The recipes of the papers, as arguments of `compile` and `fit`."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import keras

from keras_vit.errors import ConfigError
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
from keras_vit.losses import FirstLoss

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer

IMAGENET21K_CLASSES = 21843


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
    settings = {name: value for name, value in locals().items() if name != "model"}
    settings["warmup_steps"] = _check(settings, warmup_steps, longest=500)
    loss = _softmax_loss(label_smoothing, one_hot)
    _choose_what_learns(model, new_head, head_only, trainable_blocks, lora_rank)
    compile_ = {
        "optimizer": _optimizer(model, settings, sgd={"momentum": float(momentum)}),
        "loss": loss,
        "weighted_metrics": [_accuracy(one_hot)],
    }
    return _recipe("transfer", compile_, settings, model.config.num_classes)


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
        loss = "sigmoid" if model.config.num_classes == IMAGENET21K_CLASSES else "softmax"
    settings = {name: value for name, value in locals().items() if name != "model"}
    settings["warmup_steps"] = _check(settings, warmup_steps, longest=10_000)
    _choose_what_learns(model)
    compile_: dict[str, Any] = {
        "optimizer": _optimizer(model, settings, adamw={}),
        "weighted_metrics": [_accuracy(one_hot)],
    }
    if loss == "sigmoid":
        if not one_hot:
            raise ConfigError(
                "loss='sigmoid' needs labels (batch, num_classes); give one_hot=True."
            )
        compile_["loss"] = keras.losses.BinaryCrossentropy(
            from_logits=True, label_smoothing=label_smoothing
        )
        # Keras takes the mean over classes, big_vision the sum; clipping makes them differ.
        compile_["loss_weights"] = float(model.config.num_classes)
    else:
        compile_["loss"] = _softmax_loss(label_smoothing, one_hot)
    return _recipe("augreg", compile_, settings, model.config.num_classes)


def steps_for(num_images: int) -> int:
    """Returns the number of updates for a size of data set, in batches of 512 (BiT-HyperRule).

    500 below 20,000 images, 10,000 below 500,000, 20,000 otherwise (Kolesnikov et al. 2020,
    arXiv 1912.11370, section 3.3).

    >>> [steps_for(n) for n in (1_000, 20_000, 1_281_167)]
    [500, 10000, 20000]
    """
    if num_images < 1:
        raise ConfigError(f"num_images={num_images}: expected at least one image.")
    return 500 if num_images < 20_000 else 10_000 if num_images < 500_000 else 20_000


def _check(settings: dict[str, Any], warmup_steps: int | None, longest: int) -> int:
    """Refuses invalid settings; returns the number of warm-up steps."""
    for name in ("steps", "batch_size", "accumulate"):
        if not isinstance(settings[name], int) or settings[name] < 1:
            raise ConfigError(f"{name}={settings[name]!r}: expected a positive int.")
    per_epoch = settings["steps_per_epoch"]
    if per_epoch is not None and (not isinstance(per_epoch, int) or per_epoch < 1):
        raise ConfigError(f"steps_per_epoch={per_epoch!r}: expected a positive int or None.")
    steps, batch_size, accumulate = (settings[n] for n in ("steps", "batch_size", "accumulate"))
    if batch_size % accumulate:
        raise ConfigError(f"batch_size={batch_size} is not divisible by accumulate={accumulate}.")
    if settings["decay"] not in ("cosine", "linear"):
        raise ConfigError(f"decay={settings['decay']!r} is not one of cosine, linear.")
    if settings.get("loss") not in (None, "softmax", "sigmoid"):
        raise ConfigError(f"loss={settings['loss']!r} is not one of softmax, sigmoid.")
    for name in ("label_smoothing", "ema"):
        value = settings[name]
        if value is not None and not 0 <= value < 1:
            raise ConfigError(f"{name}={value!r}: expected a number in [0, 1).")
    if not settings["learning_rate"] > 0 or settings["weight_decay"] < 0:
        raise ConfigError(
            f"learning_rate={settings['learning_rate']!r} must be positive and "
            f"weight_decay={settings['weight_decay']!r} not negative."
        )
    warmup_steps = min(longest, steps // 10) if warmup_steps is None else warmup_steps
    if not 0 <= warmup_steps < steps:
        raise ConfigError(f"warmup_steps={warmup_steps}: expected 0 to {steps - 1}, below steps.")
    return warmup_steps


def _choose_what_learns(
    model: "VisionTransformer",
    new_head: bool = False,
    head_only: bool = False,
    trainable_blocks: int | None = None,
    lora_rank: int | None = None,
) -> None:
    if model.config.num_classes == 0:
        raise ConfigError(
            "The model has num_classes=0, so nothing to train on labels: "
            "load it with from_preset(..., num_classes=n)."
        )
    if head_only + (trainable_blocks is not None) + (lora_rank is not None) > 1:
        raise ConfigError(
            f"head_only={head_only}, trainable_blocks={trainable_blocks} and lora_rank="
            f"{lora_rank} exclude each other: choose one."
        )
    if head_only:
        train_head(model)
    elif trainable_blocks is not None:
        train_last_blocks(model, trainable_blocks)
    elif lora_rank is not None:
        enable_lora(model, lora_rank)
    if new_head:
        zero_head(model)


def _schedule(settings: dict[str, Any]) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the schedule of the learning rate, in updates, also if an update has batches."""
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


def _update_options(model: "VisionTransformer", settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that both optimizers share."""
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
    return options


_OPTIMIZERS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "sgd": (LayerwiseSGD, {}),
    "adamw": (LayerwiseAdamW, {"epsilon": 1e-8}),  # default of optax.scale_by_adam
    "muon": (LayerwiseMuon, {"epsilon": 1e-8}),
}


def _optimizer(
    model: "VisionTransformer", settings: dict[str, Any], **own: dict[str, Any]
) -> keras.optimizers.Optimizer:
    """Returns the chosen optimizer; `own` has the arguments of the recipe's usual optimizer."""
    name = settings["optimizer"]
    choices = {**own, "muon": {}}
    if name not in choices:
        raise ConfigError(f"optimizer={name!r} is not one of {', '.join(choices)}.")
    kind, options = _OPTIMIZERS[name]
    options = {**options, **choices[name], **_update_options(model, settings)}
    return kind(_schedule(settings), **options)


def _softmax_loss(label_smoothing: float, one_hot: bool) -> keras.losses.Loss:
    if one_hot:
        return keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=label_smoothing
        )
    if label_smoothing:
        raise ConfigError(
            f"label_smoothing={label_smoothing} needs labels (batch, num_classes); give "
            "one_hot=True here and to the function of keras_vit.data."
        )
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _accuracy(one_hot: bool) -> keras.metrics.Metric:
    metrics = keras.metrics
    metric = metrics.CategoricalAccuracy if one_hot else metrics.SparseCategoricalAccuracy
    return metric(name="accuracy")


def callbacks_of(num_classes: int) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of every recipe: a check of the first loss; on torch, less memory."""
    callbacks: list[keras.callbacks.Callback] = []
    if num_classes > 1:
        callbacks.append(FirstLoss(num_classes))
    if keras.backend.backend() == "torch":
        callbacks.append(FreedGradients())
    return callbacks


def _recipe(
    name: str, compile_: dict[str, Any], settings: dict[str, Any], num_classes: int
) -> Recipe:
    accumulate, per_epoch = settings["accumulate"], settings["steps_per_epoch"]
    batches = settings["steps"] * accumulate
    fit: dict[str, Any] = {"epochs": 1, "steps_per_epoch": batches}
    if per_epoch is not None:
        fit = {"epochs": math.ceil(batches / per_epoch)}
    fit["callbacks"] = callbacks_of(num_classes)
    if settings["ema"] is not None:
        # Validation sees the averaged weights; Keras leaves them in the model when `fit` ends.
        fit["callbacks"].append(keras.callbacks.SwapEMAWeights())
    batch_size = settings["batch_size"] // accumulate
    return Recipe(compile_, fit, batch_size, {"recipe": name, **settings})
