"""The published recipes by name: pre-training of three papers, and the fine-tuning of table 4."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_vit.errors import ConfigError, nearest
from keras_vit.finetune.recipes import Recipe, augreg_recipe

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer

_PAPER = "arXiv 2010.11929, table 3"
_AUGREG = "arXiv 2106.10270, section 3; big_vision/configs/vit_i21k.py"
_PLAIN = "arXiv 2205.01580; big_vision/configs/vit_s16_i1k.py"


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """A paper's training of a model from scratch, at 224 pixels with Adam (0.9, 0.999).

    Attributes:
        source: paper and file that state the numbers.
        variants: names of the builders of the models that the paper trains by this recipe.
        epochs: the numbers of passes over the data set that the paper reports.
        learning_rate: highest learning rate, after a linear warm-up of `warmup_steps` updates.
        decay: `"linear"` or `"cosine"`.
        weight_decay: decoupled decay of kernels, multiplied by the learning rate.
        clip_norm: largest norm of all gradients together; None for no clipping.
        batch_size: images per update.
        warmup_steps: updates before the highest learning rate.
        augmentation: a name in `keras_vit.data.AUGREG`.
        loss: `"softmax"`, or `"sigmoid"` summed over the classes.
        fields: arguments of the builder, such as `dropout_rate`.
        protocol: preparation of images for evaluation, see `keras_vit.Preprocessor`.
        reported: number of epochs -> the top-1 accuracy that the paper reports.
    """

    source: str
    variants: tuple[str, ...]
    epochs: tuple[int, ...]
    learning_rate: float
    decay: str
    weight_decay: float
    clip_norm: float | None = None
    batch_size: int = 4096
    warmup_steps: int = 10_000
    augmentation: str = "none"
    loss: str = "softmax"
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reported: Mapping[int, float] = dataclasses.field(default_factory=dict)
    protocol: str = "paper"

    def steps(self, num_images: int, epochs: int | None = None) -> int:
        """Returns the number of updates for a data set; `epochs=None` is the longest training."""
        return max(1, round(num_images * (epochs or max(self.epochs)) / self.batch_size))


_DROPOUT = {"dropout_rate": 0.1}
_SIGMOID = {"head_bias_init": -10.0}
_PLAIN_FIELDS = {"classifier": "gap", "position": "sincos2d"}

PRETRAINING: dict[str, Pretraining] = {
    "vit_b_i21k": Pretraining(
        _PAPER, ("vit_b16", "vit_b32"), (90,), 1e-3, "linear", 0.03, fields=_DROPOUT
    ),
    "vit_l_i21k": Pretraining(
        _PAPER, ("vit_l16", "vit_l32"), (30, 90), 1e-3, "linear", 0.03, fields=_DROPOUT
    ),
    "vit_i1k": Pretraining(
        _PAPER,
        ("vit_b16", "vit_b32", "vit_l16", "vit_l32"),
        (300,),
        3e-3,
        "cosine",
        0.3,
        clip_norm=1.0,
        fields=_DROPOUT,
    ),
    "plain_s16_i1k": Pretraining(
        _PLAIN,
        ("vit_s16",),
        (90, 150, 300),
        1e-3,
        "cosine",
        0.1,
        clip_norm=1.0,
        batch_size=1024,
        augmentation="light2",
        fields=_PLAIN_FIELDS,
        reported={90: 0.765, 150: 0.785, 300: 0.800},
        protocol="big_vision",
    ),
}
"""Published recipes of pre-training on public data by name: table 3 of the paper (docs/paper.md has
its rows for JFT-300M), and the plain ViT-S/16."""
"""Recipes by name. In the paper, dropout is the only augmentation beside crop and flip."""


def augreg_search(num_classes: int = 21_843) -> dict[str, Pretraining]:
    """Returns AugReg's search space: 28 recipes for every variant.

    The recipes combine seven augmentations, dropout and stochastic depth of 0 or 0.1 each, and a
    weight decay of 0.1 or 0.03; trainings have 300 epochs, on ImageNet-21k also 30.

    Args:
        num_classes: number of classes; 21,843 stands for ImageNet-21k, whose recipes have a
            sigmoid loss and an initial bias of the head of -10.

    >>> recipe = augreg_search()["medium1_sd0.1_wd0.03"]
    >>> recipe.augmentation, recipe.fields["stochastic_depth_rate"], recipe.loss
    ('medium1', 0.1, 'sigmoid')
    """
    from keras_vit.data import AUGREG

    sigmoid = num_classes == 21_843
    variants = "vit_ti16 vit_s32 vit_s16 vit_b32 vit_b16 vit_l16 r_vit_ti16 r26_vit_s32 r50_vit_l32"
    found = {}
    for augmentation, rate, weight_decay in itertools.product(AUGREG, (0.0, 0.1), (0.1, 0.03)):
        rates = {"dropout_rate": rate, "stochastic_depth_rate": rate}
        found[f"{augmentation}_sd{rate:g}_wd{weight_decay:g}"] = Pretraining(
            _AUGREG,
            tuple(variants.split()),
            (30, 300) if sigmoid else (300,),
            1e-3,
            "cosine",
            weight_decay,
            clip_norm=1.0,
            augmentation=augmentation,
            loss="sigmoid" if sigmoid else "softmax",
            fields={**rates, **(_SIGMOID if sigmoid else {})},
            protocol="big_vision",
        )
    return found


def published_recipe(name: str) -> Pretraining:
    """Returns a recipe by its name in `PRETRAINING` or in `augreg_search()`.

    Raises:
        ConfigError: the name is unknown; the message states the nearest name.
    """
    known = PRETRAINING if name in PRETRAINING else PRETRAINING | augreg_search()
    if name not in known:
        raise ConfigError(
            f"{name!r} is not a published recipe.{nearest(name, known)} There are "
            f"{', '.join(PRETRAINING)}, and the recipes of augreg_search()."
        )
    return known[name]


def pretraining_recipe(
    model: "VisionTransformer",
    name: str,
    num_images: int,
    epochs: int | None = None,
    **changes: Any,
) -> Recipe:
    """Returns a published recipe as arguments of `compile` and `fit`.

    The model should be built with the recipe's `fields`, and the data with its `augmentation`::

        published = PRETRAINING["plain_s16_i1k"]
        model = keras_vit.vit_s16(num_classes=1000, **published.fields)
        data = keras_vit.data.from_tfds("imagenet2012", model, published.batch_size,
                                        augmentation=published.augmentation, one_hot=True)
        recipe = pretraining_recipe(model, "plain_s16_i1k", data.num_images, epochs=90)

    Args:
        model: the model to train, with a head.
        name: name of the recipe, in `PRETRAINING` or in `augreg_search()`.
        num_images: images in the data set.
        epochs: passes over the data; None for the longest training that the paper reports.
        **changes: other arguments of `augreg_recipe`, such as a smaller `batch_size`,
            `steps_per_epoch`, `label_smoothing` or `accumulate`.

    Raises:
        ConfigError: the recipe is unknown, or the model differs from the recipe's fields.

    >>> import keras_vit
    >>> from keras_vit.finetune import PRETRAINING, pretraining_recipe
    >>> fields = PRETRAINING["plain_s16_i1k"].fields
    >>> model = keras_vit.vit_s16(image_size=32, num_classes=10, **fields)
    >>> pretraining_recipe(model, "plain_s16_i1k", 1_281_167, 90).settings["steps"]
    112603
    """
    published = published_recipe(name)
    for field, wanted in published.fields.items():
        found = getattr(model.config, field)
        if found != wanted:
            raise ConfigError(
                f"The recipe {name} has {field}={wanted}, the model {field}={found}; build it "
                f"with **PRETRAINING[{name!r}].fields."
            )
    steps = changes.pop("steps", None) or published.steps(num_images, epochs)
    arguments = {
        "batch_size": published.batch_size,
        "learning_rate": published.learning_rate,
        "warmup_steps": published.warmup_steps if published.warmup_steps < steps else None,
        "decay": published.decay,
        "clip_norm": published.clip_norm,
        "weight_decay": published.weight_decay,
        "loss": published.loss,
    }
    return augreg_recipe(model, steps, **{**arguments, **changes})


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """A row of table 4: batches of 512, momentum SGD, cosine decay, no weight decay.

    Attributes:
        steps: weight updates.
        learning_rates: highest learning rates that the paper tries; held-out images decide.
    """

    steps: int
    learning_rates: tuple[float, ...]


RATES = (0.001, 0.003, 0.01, 0.03)
"""The highest learning rates that table 4 tries for data sets other than ImageNet and VTAB."""

FINE_TUNING = {
    "imagenet": FineTuning(20_000, (0.003, 0.01, 0.03, 0.06)),
    "cifar100": FineTuning(10_000, RATES),
    "cifar10": FineTuning(10_000, RATES),
    "oxford_iiit_pet": FineTuning(500, RATES),
    "oxford_flowers102": FineTuning(500, RATES),
    "vtab": FineTuning(2_500, (0.01,)),
}
"""The rows of table 4 of arXiv 2010.11929, by data set."""


def rates_for(data: str) -> tuple[float, ...]:
    """Returns the learning rates that table 4 tries for a data set; for unknown data, `RATES`.

    Args:
        data: name of the data, as for `finetune_preset`.

    >>> rates_for("tfds:imagenet2012")
    (0.003, 0.01, 0.03, 0.06)
    """
    name = str(data).removeprefix("tfds:").partition(":")[0].partition("/")[0]
    row = FINE_TUNING.get({"imagenet2012": "imagenet"}.get(name, name))
    return RATES if row is None or len(row.learning_rates) == 1 else row.learning_rates
