"""The training recipes of the papers, as data that gives the arguments of `compile` and `fit`.

Keras is only imported where an optimizer is made, so that the command line can read the fields.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import COUNT, SHARE, Values, choice, is_int, is_number, is_positive_int
from keras_vit.config.views import Views
from keras_vit.errors import ConfigError
from keras_vit.images.class_names import NAMED
from keras_vit.support.arguments import AugmentationName

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer
    from keras_vit.training.self_supervised import SelfSupervised

_POSITIVE_OR_NONE = Values(
    lambda value: value is None or (is_number(value) and value > 0), "a positive number or None"
)
_NOT_NEGATIVE = Values(lambda value: is_number(value) and value >= 0, "0 or more")
_SEED = Values(lambda value: is_int(value) and value >= 0, "an int of at least 0")
_EMA = Values(
    lambda value: value is None or (is_number(value) and 0 <= value < 1),
    "a number in [0, 1) or None",
)
_WIDTHS = Values(
    lambda widths: len(widths) > 0 and all(map(is_positive_int, widths)),
    "one or more positive ints",
)
_VIEWS = Views()
_OF_LABELS = ("label_smoothing", "augmentation", "one_hot", "positive_weights")
_WARMUP = Values(
    lambda value: value is None or (is_int(value) and value >= 0), "0 or more, or None"
)


@dataclasses.dataclass(frozen=True)
class Recipe(Fields):
    """The settings of a training: steps, optimizer, schedule, augmentation and regularisation.

    A recipe gives the arguments of the data, `compile` and `fit`. It changes neither model nor
    data, except for the bias that `AugregRecipe` describes. `to_dict` and `from_dict` convert the
    settings to plain JSON types and back::

        data = keras_vit.data.from_folder("flowers", model, **recipe.data_args)
        model.compile(**recipe.compile_args(model))
        model.fit(data, **recipe.fit_args(model), shuffle=False)

    The model's task decides the loss and the metrics. Trainable and frozen weights are the model's
    state, see `train_head`, `train_last_blocks`, `train_only` and `enable_lora`.

    If None, `learning_rate` is 0.03 with SGD and 0.001 with AdamW, `clip_norm` turns clipping off,
    and `steps_per_epoch` makes one epoch of all batches.

    Args:
        steps: number of weight updates, see `steps_for`.
        batch_size: number of images for one weight update.
        optimizer: momentum SGD or AdamW, each with layer-wise rates and decay.
        learning_rate: peak learning rate; smaller batches need a smaller one.
        warmup_steps: number of weight updates in which the learning rate rises; by default a
            tenth of all, and at most as many as in the paper.
        decay: curve of the learning rate after the warm-up: cosine, or linear to 1e-5.
        momentum: momentum of SGD.
        clip_norm: largest global norm of the gradients, which are clipped to it.
        weight_decay: fraction of each kernel, times the learning rate, that an update subtracts.
        layer_decay: learning rate of a block relative to the next block, such as 0.75.
        label_smoothing: probability that the targets spread over all classes.
        ema: decay of the moving average of the weights per update, such as 0.999. Validation uses
            the average, and the training ends with it.
        accumulate: number of batches for one weight update (gradient accumulation), to save memory.
        augmentation: random changes of the images. none, the default, leaves them unchanged;
            crop_flip is a random crop and flip (which AugReg calls none); AugReg's light1 to
            strong2 add RandAugment and mixup.
        seed: seed of the order and the augmentation of the images.
        steps_per_epoch: number of batches in an epoch. Epochs are complete: the last one may
            continue beyond the last update, at a rate of 0.
        one_hot: True for labels `(batch, num_classes)`, such as those of mixup and cutmix; False
            for ints `(batch,)`. Smoothed labels need it.
        positive_weights: multi-label, the factor of each class's loss where the label is 1, such as
            `data.positive_weights`.

    Raises:
        ConfigError: a setting is invalid; the message names it and the valid values.
    """

    _prefix = ""

    steps: int
    batch_size: int = 512
    _: dataclasses.KW_ONLY
    optimizer: Literal["sgd", "adamw"] = field("sgd", choice("sgd", "adamw"))
    learning_rate: float | None = field(None, _POSITIVE_OR_NONE)
    warmup_steps: int | None = field(None, _WARMUP)
    decay: Literal["cosine", "linear"] = field("cosine", choice("cosine", "linear"))
    momentum: float = field(0.9, SHARE)
    clip_norm: float | None = field(1.0, _POSITIVE_OR_NONE)
    weight_decay: float = field(0.0, _NOT_NEGATIVE)
    layer_decay: float | None = field(None, _POSITIVE_OR_NONE)
    label_smoothing: float = field(0.0, SHARE)
    ema: float | None = field(None, _EMA)
    accumulate: int = 1
    augmentation: AugmentationName | None = None
    seed: int = field(0, _SEED)
    steps_per_epoch: int | None = None
    one_hot: bool = False
    positive_weights: Sequence[float] | None = None

    name: ClassVar[str] = "recipe"
    _longest_warmup: ClassVar[int] = 500
    final_share: ClassVar[float] = 0.0
    """Fraction of the peak learning rate at the end of a cosine."""

    def _validate(self) -> None:
        super()._validate()
        weights: Any = self.positive_weights
        if hasattr(weights, "tolist"):  # an array of NumPy, as of the data
            self._set("positive_weights", tuple(weights.tolist()))

    def _faults(self) -> Any:
        if self.batch_size % self.accumulate:
            yield (
                f"batch_size={self.batch_size} is not divisible by accumulate={self.accumulate}."
            )
        if self.warmup >= self.steps:
            last = self.steps - 1
            yield f"warmup_steps={self.warmup}: expected 0 to {last}, below steps."

    @property
    def rate(self) -> float:
        """The peak learning rate: `learning_rate`, or the default of the optimizer."""
        usual = 0.03 if self.optimizer == "sgd" else 0.001
        return usual if self.learning_rate is None else float(self.learning_rate)

    @property
    def warmup(self) -> int:
        """The number of warm-up updates: `warmup_steps`, or the paper's."""
        usual = min(self._longest_warmup, self.steps // 10)
        return usual if self.warmup_steps is None else self.warmup_steps

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as plain JSON types, with the values of defaults."""
        resolved = {"learning_rate": self.rate, "warmup_steps": self.warmup}
        return {"recipe": self.name, **self.to_dict(), **resolved}

    @property
    def data_args(self) -> dict[str, Any]:
        """Arguments of `from_folder` and its siblings in `keras_vit.data`.

        Each update takes `accumulate` batches of the data.
        """
        names = ("augmentation", "seed", "steps_per_epoch", "one_hot")
        batch_size = self.batch_size // self.accumulate
        return {"batch_size": batch_size, **{name: getattr(self, name) for name in names}}

    def compile_args(self, model: "VisionTransformer") -> dict[str, Any]:
        """Returns the arguments of `compile`: optimizer, loss and metrics.

        They are new Keras objects, which may be changed. A multi-label model gets binary
        cross-entropy and `pr_auc` (area under the precision-recall curve), a mean over the classes.

        Raises:
            ConfigError: the model has no head, or the recipe does not fit its task.
        """
        from keras_vit.training.compiling import compile_args  # imports Keras

        return compile_args(self, model)

    def fit_args(self, model: "VisionTransformer") -> dict[str, Any]:
        """Returns the arguments of `fit`: epochs, callbacks, and steps_per_epoch if needed."""
        from keras_vit.training.compiling import make_callbacks  # imports Keras

        batches, per_epoch = self.steps * self.accumulate, self.steps_per_epoch
        length: dict[str, Any] = {"epochs": 1, "steps_per_epoch": batches}
        if per_epoch is not None:
            length = {"epochs": math.ceil(batches / per_epoch)}
        return {**length, "callbacks": make_callbacks(self, model)}

    def sums_over_classes(self, model: "VisionTransformer") -> bool:
        """Whether the loss is a sum of binary cross-entropies over the classes."""
        return False


@dataclasses.dataclass(frozen=True)
class TransferRecipe(Recipe):
    """Fine-tuning as in the paper (section 4.1, appendix B.1.1, table 4).

    Momentum SGD, linear warm-up over 500 updates and cosine decay to 0, gradients clipped to a
    global norm of 1, no weight decay; defaults of `vit_jax/configs/common.py` and
    `vit_jax/train.py`. The paper tries learning rates of 0.003, 0.01, 0.03 and 0.06 and chooses the
    best on held-out images; a batch much smaller than 512 needs a smaller rate.

    Args:
        steps: number of weight updates, see `steps_for`.
        batch_size: number of images for one weight update.
        optimizer, learning_rate, and other arguments: as in `Recipe`.

    >>> import keras_vit
    >>> model = keras_vit.vit_ti16(image_size=32, num_classes=5)
    >>> recipe = TransferRecipe(steps=500, batch_size=64, steps_per_epoch=50)
    >>> recipe.fit_args(model)["epochs"], recipe.warmup
    (10, 50)
    """

    name: ClassVar[str] = "transfer"


@dataclasses.dataclass(frozen=True)
class AugregRecipe(Recipe):
    """Pre-training as in *How to train your ViT?* (arXiv 2106.10270, section 3).

    Adam with beta 0.9 and 0.999, linear warm-up over 10,000 updates, cosine decay, and gradients
    clipped to a global norm of 1. The weight decay is 0.1 or 0.03 times the learning rate on
    kernels (`wd=0.0001` in big_vision, which does not multiply by the rate of 0.001). The model
    has the other settings of the recipe: dropout and stochastic depth of 0 or 0.1 each
    (`vit_s16(dropout_rate=0.1, stochastic_depth_rate=0.1)`). `augmentation` takes the paper's
    names for RandAugment and mixup, `"light1"` to `"strong2"`; the paper's none, which crops and
    flips, is `"crop_flip"`.

    Args:
        loss: `"softmax"`, or `"sigmoid"`, the sum of a binary cross-entropy for each class. None
            takes sigmoid with ImageNet-21k's 21,843 classes or a multi-label model, and softmax
            otherwise. With sigmoid and one class per image, `compile_args` sets the bias of a head
            of zeros to -ln(classes), as big_vision does: -10 for ImageNet-21k, so that the first
            loss is near 11, not 15,000.
        steps, batch_size, and other arguments: as in `Recipe`.

    >>> import keras_vit
    >>> recipe = AugregRecipe(93_000, weight_decay=0.03)
    >>> model = keras_vit.vit_s16(image_size=32)
    >>> recipe.compile_args(model)["optimizer"].beta_2, recipe.warmup
    (0.999, 9300)
    """

    batch_size: int = 4096
    _: dataclasses.KW_ONLY
    optimizer: Literal["sgd", "adamw"] = field("adamw", choice("sgd", "adamw"))
    weight_decay: float = field(0.1, _NOT_NEGATIVE)
    one_hot: bool = True
    loss: Literal["softmax", "sigmoid"] | None = field(None, choice("softmax", "sigmoid", None))

    name: ClassVar[str] = "augreg"
    _longest_warmup: ClassVar[int] = 10_000

    def sums_over_classes(self, model: "VisionTransformer") -> bool:
        """Whether the loss is a sum of binary cross-entropies over the classes."""
        is_multi_label = model.task == "multi_label"
        if is_multi_label and self.loss == "softmax":
            raise ConfigError("loss='softmax': a multi-label model needs loss='sigmoid'.")
        if self.loss is None:
            return is_multi_label or model.config.num_classes == NAMED["imagenet21k"]
        return self.loss == "sigmoid"


@dataclasses.dataclass(frozen=True)
class PretrainRecipe(Recipe):
    """Self-supervised pre-training by LeJEPA (arXiv 2511.08544), with the authors' settings.

    AdamW, a weight decay of 0.05 on kernels, a linear warm-up over a tenth of the training but at
    most 5,000 updates (an epoch of ImageNet), and a cosine decay to a thousandth. The authors'
    learning rate of 0.0005 is for 256 images; the default scales with the square root of
    `batch_size`. A hundred passes over the images are usual: the authors' 100 epochs of ImageNet
    are 500,000 updates. Model and data are those of `SelfSupervised`::

        model = keras_vit.training.SelfSupervised(encoder, recipe.views, **recipe.loss_args)
        data = keras_vit.data.from_folder("photos", encoder, **recipe.data_args)
        model.compile(**recipe.compile_args(model))
        model.fit(data, **recipe.fit_args(model), shuffle=False)

    Args:
        views: `keras_vit.data.Views`, or their fields as a dict; sizes that are not given fit the
            model.
        projector, sigreg_weight, directions: as in `keras_vit.training.SelfSupervised`.
        steps, batch_size, and other arguments: as in `Recipe`, except for those about labels.

    >>> recipe = PretrainRecipe(1000, batch_size=64, views={"flip": False})
    >>> recipe.rate, recipe.warmup, recipe.data_args["augmentation"].flip
    (0.00025, 100, False)
    """

    batch_size: int = 256
    _: dataclasses.KW_ONLY
    optimizer: Literal["sgd", "adamw"] = field("adamw", choice("sgd", "adamw"))
    clip_norm: float | None = field(None, _POSITIVE_OR_NONE)
    weight_decay: float = field(0.05, _NOT_NEGATIVE)
    views: Views = _VIEWS
    projector: Sequence[int] = field((2048, 2048, 128), _WIDTHS)
    sigreg_weight: float = field(0.05, SHARE)
    directions: int = 1024

    name: ClassVar[str] = "pretrain"
    _longest_warmup: ClassVar[int] = 5_000
    final_share: ClassVar[float] = 0.001

    def _validate(self) -> None:
        super()._validate()
        self._set("projector", tuple(self.projector))  # a list of JSON

    def _faults(self) -> Any:
        yield from super()._faults()
        if self.batch_size < 2 * self.accumulate:
            yield f"batch_size={self.batch_size}: a batch needs two images or more to compare."
        for name in _OF_LABELS:
            if value := getattr(self, name):
                yield f"{name}={value} is for training with labels. views= sets the augmentation."

    @property
    def rate(self) -> float:
        """The peak learning rate: `learning_rate`, or 0.0005 * sqrt(batch_size / 256)."""
        usual = 0.0005 * math.sqrt(self.batch_size / 256)
        return usual if self.learning_rate is None else float(self.learning_rate)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings except for those about labels, as plain JSON types."""
        return {k: v for k, v in super().settings.items() if k not in _OF_LABELS}

    @property
    def data_args(self) -> dict[str, Any]:
        """Arguments of `from_folder` and its siblings in `keras_vit.data`."""
        arguments = {**super().data_args, "augmentation": self.views}
        del arguments["one_hot"]
        return arguments

    @property
    def loss_args(self) -> dict[str, Any]:
        """Arguments of `SelfSupervised` besides the model and the views, as plain JSON types."""
        names = ("projector", "sigreg_weight", "directions", "seed")
        return {name: value for name, value in self.to_dict().items() if name in names}

    def compile_args(self, model: "SelfSupervised") -> dict[str, Any]:
        """Returns the arguments of `compile`: a new optimizer; the model has its loss."""
        from keras_vit.training.compiling import make_optimizer  # imports Keras

        return {"optimizer": make_optimizer(self, model.encoder)}


def steps_for(num_images: int) -> int:
    """Recommends the number of updates for a data set, in batches of 512 (BiT-HyperRule).

    500 below 20,000 images, 10,000 below 500,000, 20,000 otherwise (Kolesnikov et al. 2020,
    arXiv 1912.11370, section 3.3).

    >>> [steps_for(n) for n in (1_000, 20_000, 1_281_167)]
    [500, 10000, 20000]
    """
    COUNT.check("num_images", num_images)
    return 500 if num_images < 20_000 else 10_000 if num_images < 500_000 else 20_000
