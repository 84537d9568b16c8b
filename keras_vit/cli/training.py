"""Commands that train: finetune and demo."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice, mutually_exclusive

from keras_vit.cli.console import console, start_backend, tell
from keras_vit.cli.options import Pixels, Positive, Share, drop_unset, size_of

if TYPE_CHECKING:
    from keras_vit.finetune import Plan

Augmentation = Literal["none", "light1", "light2", "medium1", "medium2", "strong1", "strong2"]

_START = Group("Start, one of", validator=LimitedChoice(1, 1))
_LEARNS = Group("Weights that learn; without an option all", validator=mutually_exclusive)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Recipe:
    """The options of `keras_vit.finetune.recipe`.

    Args:
        optimizer: "muon" for Muon in place of the recipe's SGD, or AdamW from scratch.
        learning_rate: peak of the learning rate, 0.01 by default and 0.001 from scratch or with
            Muon.
        warmup_steps: updates in which the learning rate rises.
        weight_decay: decay of the weights per update, relative to the learning rate.
        ema: factor of the moving average of the weights, such as 0.999.
        layer_decay: factor of the learning rate from block to block, such as 0.75.
        head_only: train nothing but the head.
        trainable_blocks: train this number of last blocks.
        lora_rank: train low-rank additions of this rank.
    """

    optimizer: Literal["muon"] | None = None
    learning_rate: float | None = None
    warmup_steps: int | None = None
    weight_decay: float | None = None
    ema: Share | None = None
    layer_decay: float | None = None
    head_only: Annotated[bool, Parameter(group=_LEARNS)] = False
    trainable_blocks: Annotated[Positive | None, Parameter(group=_LEARNS)] = None
    lora_rank: Annotated[Positive | None, Parameter(group=_LEARNS)] = None


_DEFAULTS = Recipe()


def finetune(
    data: str,
    /,
    *,
    out: Path,
    labels: str | None = None,
    multi_label: bool = False,
    preset: Annotated[str | None, Parameter(group=_START)] = None,
    from_scratch: Annotated[str | None, Parameter(group=_START)] = None,
    resume: bool = False,
    steps: Positive = 500,
    batch_size: Positive = 64,
    accumulate: Positive = 1,
    recipe: Recipe = _DEFAULTS,
    image_size: Pixels | None = None,
    dropout: Share | None = None,
    augmentation: Augmentation | None = None,
    label_smoothing: Share = 0.0,
    mixed_precision: Literal["mixed_bfloat16", "mixed_float16"] | None = None,
    split: str = "train",
    validation: str = "0.1",
    skip_unreadable: bool = False,
    seed: int = 0,
) -> None:
    """Train a preset on images of your own.

    The paper's recipe on your images: into the folder OUT go the presets best/ and last/,
    log.csv and the state for --resume. The head of the preset stays if the images have its
    classes.

    Args:
        data: a folder with a folder of images per class; tfds:NAME; or hf:OWNER/NAME.
        out: folder for the results.
        labels: table of the images' labels, CSV (path,label) or JSON; of tfds: and hf: data the
            name of the feature or column.
        multi_label: images have many labels.
        preset: a name, a file or folder, or hf://owner/repo.
        from_scratch: variant with fresh weights, such as vit_ti16.
        resume: continue the training in OUT.
        steps: weight updates: 500 for up to 20,000 images, 10,000 for up to 500,000 (BiT's rule).
        batch_size: images per step.
        accumulate: batches per weight update.
        image_size: pixels, or height and width, of the model.
        dropout: dropout_rate of the model.
        augmentation: augmentation of AugReg; "none" crops and flips. Without it images are not
            changed.
        label_smoothing: probability that is spread over all classes.
        mixed_precision: policy of the model.
        split: split of a tfds: or hf: data set.
        validation: a share of the data, another folder or split, or "none".
        skip_unreadable: leave out images that cannot be read.
        seed: seed of order, augmentation and fresh weights.
    """
    source: Any
    if preset is not None:  # an unknown name is refused before a backend starts
        from keras_vit.checkpoints import Source

        source = Source.of(preset)
    else:
        from keras_vit.variants import variant

        source = variant(str(from_scratch)).name
    start_backend(saves=True)
    from keras_vit.finetune import finetune_preset

    finished = finetune_preset(
        source,
        data,
        labels=labels,
        multi_label=multi_label,
        out=out,
        resume=resume,
        from_scratch=preset is None,
        split=split,
        validation=_share_or_name(validation),
        image_size=size_of(image_size),
        dtype=mixed_precision,
        dropout_rate=dropout,
        steps=steps,
        batch_size=batch_size,
        accumulate=accumulate,
        augmentation=augmentation,
        label_smoothing=label_smoothing,
        unreadable="skip" if skip_unreadable else "raise",
        seed=seed,
        announce=_announce,
        verbose=1 if console.is_terminal else 2,
        **drop_unset(vars(recipe)),
    )
    if "val_accuracy" in finished.history:
        console.print(f"Highest validation accuracy: {max(finished.history['val_accuracy']):.1%}")
    if "val_pr_auc" in finished.history:
        best = max(finished.history["val_pr_auc"])
        console.print(f"Highest validation area below precision and recall: {best:.3f}")
    console.print("Next commands:")
    tell(f"  keras-vit predict IMAGE --preset {finished.preset}")
    table = f" --labels {labels}" if labels else ""
    tell(f"  keras-vit evaluate {data}{table} --preset {finished.preset}")


def _share_or_name(validation: str) -> float | str | None:
    if validation == "none":
        return None
    try:
        return float(validation)
    except ValueError:
        return validation


def _announce(plan: "Plan") -> None:
    """Prints data, model and settings of the training."""
    data, model, settings = plan.data, plan.model, plan.recipe.settings
    size = model.config.image_size
    counts = sorted(data.class_counts.values())
    held_out = 0 if plan.validation is None else plan.validation.num_images
    learning = sum(math.prod(tuple(weight.shape)) for weight in model.trainable_weights)
    facts = {
        "model": f"{model.name}, {model.count_params():,} parameters, {learning:,} of them learn",
        "images": f"{data.num_images:,} to train on, {held_out:,} to validate",
        "classes": f"{data.num_classes:,}, of {counts[0]:,} to {counts[-1]:,} images each",
        "pixels": "any size" if size is None else f"{size[0]} x {size[1]}",
        "steps": f"{settings['steps']:,} of {settings['batch_size']} images; an epoch has "
        f"{len(data):,} batches",
    }
    if data.unreadable:
        facts["left out"] = f"{len(data.unreadable):,} images that cannot be read"
    facts["head"] = "of the preset, which has these classes" if plan.keeps_head else "new"
    for name, fact in facts.items():
        tell(f"{name:<12} {fact}")


def demo(*, out: Path = Path("demo")) -> None:
    """Predict, fine-tune, save, reload and explain.

    Args:
        out: folder for the results.
    """
    start_backend(saves=True)
    from keras_vit.cli.demo import run

    run(out)
