"""Table 3 and other published trainings from scratch: the recipes, and a training by one of them.

python examples/paper/pretraining.py imagenet/train plain_s16_i1k run

`PRETRAINING` has the recipes of three papers, `augreg_search` the 28 settings of AugReg.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_vit.config.fields import flatten, nest
from keras_vit.data import AUGREG, ImageData, ImageSource
from keras_vit.errors import ConfigError, nearest
from keras_vit.evaluation import Evaluation
from keras_vit.evaluation.scores import evaluate
from keras_vit.images import Preprocessor
from keras_vit.models import builders
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.support.arguments import check_new
from keras_vit.support.backend import require_training
from keras_vit.training import AugregRecipe, Recipe, train
from keras_vit.training.training import LAST

_PAPER = "arXiv 2010.11929, table 3"
_AUGREG = "arXiv 2106.10270, section 3; big_vision/configs/vit_i21k.py"
_PLAIN = "arXiv 2205.01580; big_vision/configs/vit_s16_i1k.py"


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """A paper's training of a model from scratch, at 224 pixels with Adam (0.9, 0.999).

    Attributes:
        source: paper and file that state the numbers.
        variants: names of the builders of the models that the paper trains by this recipe.
        epochs: the epochs that the paper reports.
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
    augmentation: str = "crop_flip"
    loss: str = "softmax"
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reported: Mapping[int, float] = dataclasses.field(default_factory=dict)
    protocol: str = "paper"

    def steps(self, num_images: int, epochs: int | None = None) -> int:
        """Returns the number of updates for a data set; `epochs=None` is the longest training."""
        return max(1, round(num_images * (epochs or max(self.epochs)) / self.batch_size))


_DROPOUT = {"dropout_rate": 0.1}
_PLAIN_FIELDS = {
    "pool": {"kind": "gap"},
    "tokens": {"class_tokens": 0},
    "position": "sincos2d",
}

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
"""Recipes by name. Dropout, crop and flip are the only augmentations of the paper."""


def augreg_search(num_classes: int = 21_843) -> dict[str, Pretraining]:
    """Returns AugReg's search space: 28 recipes for every variant.

    The recipes combine seven augmentations, dropout and stochastic depth of 0 or 0.1 each, and a
    weight decay of 0.1 or 0.03; trainings have 300 epochs, on ImageNet-21k also 30.

    Args:
        num_classes: number of classes; 21,843 stands for ImageNet-21k, whose recipes have a
            sigmoid loss, for which `AugregRecipe` sets the initial bias of the head.
    """
    sigmoid = num_classes == 21_843
    names = "vit_ti16 vit_s32 vit_s16 vit_b32 vit_b16 vit_l16 r_vit_ti16 r26_vit_s32 r50_vit_l32"
    found = {}
    for augmentation, rate, weight_decay in itertools.product(AUGREG, (0.0, 0.1), (0.1, 0.03)):
        rates = {"dropout_rate": rate, "stochastic_depth_rate": rate}
        found[f"{augmentation}_sd{rate:g}_wd{weight_decay:g}"] = Pretraining(
            _AUGREG,
            tuple(names.split()),
            (30, 300) if sigmoid else (300,),
            1e-3,
            "cosine",
            weight_decay,
            clip_norm=1.0,
            augmentation=augmentation,
            loss="sigmoid" if sigmoid else "softmax",
            fields=rates,
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
    model: VisionTransformer,
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
        **changes: other arguments of `AugregRecipe`, such as a smaller `batch_size`,
            `steps_per_epoch`, `label_smoothing` or `accumulate`.

    Raises:
        ConfigError: the recipe is unknown, or the model differs from the recipe's fields.
    """
    published = published_recipe(name)
    own = flatten(model.config.to_dict())
    for field, wanted in flatten(published.fields).items():
        if own[field] != wanted:
            raise ConfigError(
                f"The recipe {name} has {field}={wanted}, the model {field}={own[field]}; build it "
                f"with **PRETRAINING[{name!r}].fields."
            )
    steps = changes.pop("steps", None) or published.steps(num_images, epochs)
    arguments: dict[str, Any] = {
        "batch_size": published.batch_size,
        "learning_rate": published.learning_rate,
        "warmup_steps": published.warmup_steps if published.warmup_steps < steps else None,
        "decay": published.decay,
        "clip_norm": published.clip_norm,
        "weight_decay": published.weight_decay,
        "loss": published.loss,
        "augmentation": published.augmentation,
    }
    return AugregRecipe(steps, **{**arguments, **changes})


@dataclasses.dataclass(frozen=True)
class PretrainingPlan:
    """The data, model and settings of a pre-training, before its first step.

    Args:
        published: the recipe as its paper states it.
        model: the model, with fresh weights.
        data: the training data.
        validation: held-out data, or None.
        recipe: arguments of `compile` and `fit`.
        epochs: passes over the data.
    """

    published: Pretraining
    model: VisionTransformer
    data: ImageData
    validation: ImageData | None
    recipe: Recipe
    epochs: int


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """The results of a pre-training.

    Args:
        preset: folder of the model after the last update, which papers report.
        history: values of each epoch by name, from the first epoch on.
        evaluation: scores of that model on the held-out data; None without held-out data.
    """

    preset: Path
    history: dict[str, list[float]]
    evaluation: Evaluation | None


def pretrain(
    data: str | os.PathLike[str] | ImageSource,
    recipe: str,
    *,
    out: str | os.PathLike[str],
    resume: bool = False,
    variant: str | None = None,
    epochs: int | None = None,
    validation: float | str | os.PathLike[str] | None = 0.1,
    image_size: int | tuple[int, int] = 224,
    dtype: Any = None,
    batch_size: int | None = None,
    accumulate: int = 1,
    seed: int = 0,
    announce: Callable[[PretrainingPlan], object] = lambda plan: None,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    verbose: Any = 0,
    fields: dict[str, Any] | None = None,
    **changes: Any,
) -> Pretrained:
    """Trains a fresh model by a published recipe, and scores it on held-out images.

    An epoch is one pass over the training data in full batches. `train` lists the files of the
    folder; its preset `last/` is the model that a paper would report.

    Args:
        data: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`;
            or an `ImageSource`, which says more about them.
        recipe: name in `PRETRAINING`, such as `"plain_s16_i1k"`, or in `augreg_search()`.
        out: folder for the results; new, except with `resume`.
        resume: whether to continue the training in `out`, which had the same arguments.
        variant: name of the model's builder; None for the first variant of the recipe.
        epochs: passes over the data; None for the longest training that the paper reports.
        validation: a share of the data, such as 0.1; another folder, or split of the data set;
            or None.
        image_size: pixels, an int or (height, width).
        dtype: a Keras dtype or policy, such as `"mixed_bfloat16"`.
        batch_size: images per weight update; None for the paper's number. The learning rate
            does not change with it: give `learning_rate` for a much smaller batch.
        accumulate: batches per weight update.
        seed: seed of weights, order and augmentation.
        announce: called once, before the first step.
        callbacks, verbose: arguments of `fit`.
        fields: fields of `ViTConfig` in which the model differs from its variant, such as
            `{"patch_size": 4}` for small images.
        **changes: other arguments of `AugregRecipe`, such as `learning_rate` or `ema`.

    Raises:
        BackendError: the backend is OpenVINO, which computes no gradients.
        ConfigError: an argument is invalid; the message names it.
        CheckpointError: `out` holds another training.
    """
    require_training()
    check_new(Path(out), resume)  # before any data are read
    published = published_recipe(recipe)
    builder = builders.variant(variant or published.variants[0])
    fields = nest({**flatten(published.fields), **flatten(fields or {})})
    config = builder.config(image_size, 1, **fields)  # the number of classes is not known yet
    batch_size = batch_size or published.batch_size
    if accumulate < 1 or batch_size % accumulate:
        raise ConfigError(f"batch_size={batch_size} is not divisible by accumulate={accumulate}.")
    source = data if isinstance(data, ImageSource) else ImageSource(data)
    images, held_out = source.read_with_validation(
        Preprocessor.from_description(PresetConfig(config, published.protocol)),
        validation,
        batch_size=batch_size // accumulate,
        augmentation=published.augmentation,
        one_hot=published.loss == "sigmoid" or changes.get("label_smoothing", 0) > 0,
        seed=seed,
    )
    images = images.with_steps_per_epoch(max(1, round(images.num_images / images.batch_size)))
    epochs = epochs or max(published.epochs)
    keras.utils.set_random_seed(seed)
    model = builder(
        image_size,
        images.num_classes,
        class_names=images.class_names,
        protocol=published.protocol,
        dtype=dtype,
        **fields,
    )
    chosen = pretraining_recipe(
        model,
        recipe,
        images.num_images,
        epochs,
        # A whole number of epochs, so that the schedule ends with the last of them.
        steps=max(1, len(images) * epochs // accumulate),
        batch_size=batch_size,
        accumulate=accumulate,
        one_hot=images.one_hot,
        steps_per_epoch=len(images),
        seed=seed,
        **changes,
    )
    announce(PretrainingPlan(published, model, images, held_out, chosen, epochs))
    history = train(
        model,
        images,
        held_out,
        recipe=chosen,
        path=out,
        resume=resume,
        callbacks=callbacks,
        verbose=verbose,
    )
    scores = None if held_out is None else evaluate(model, held_out)
    return Pretrained(Path(out) / LAST, history, scores)


if __name__ == "__main__":
    print(pretrain(sys.argv[1], sys.argv[2], out=sys.argv[3], verbose=2).evaluation)
