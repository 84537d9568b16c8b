"""Commands that train: finetune and demo."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice, mutually_exclusive

from keras_vit.arguments import check_results, check_training
from keras_vit.cli.console import console, start_backend, tell
from keras_vit.cli.options import Pixels, Positive, Share, drop_unset, size_of
from keras_vit.text import counted

if TYPE_CHECKING:
    from keras_vit.finetune import Plan

Augmentation = Literal["none", "light1", "light2", "medium1", "medium2", "strong1", "strong2"]

_START = Group("Start, one of", validator=LimitedChoice(1, 1))
_LEARNS = Group("Weights that learn; without an option all", validator=mutually_exclusive)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Recipe:
    """Options of the recipe: steps, optimizer, learning rate, and the weights to train.

    Args:
        steps: number of weight updates. BiT's rule: 500 below 20,000 images, 10,000 below 500,000.
        batch_size: number of images for one weight update.
        accumulate: number of batches for one weight update.
        label_smoothing: probability that the targets spread over all classes.
        seed: number from which the order, the augmentation and fresh weights are drawn.
        optimizer: muon trains by Muon; by default SGD, and AdamW from scratch.
        learning_rate: highest learning rate; by default 0.01, and 0.001 from scratch or with Muon.
        warmup_steps: number of weight updates in which the learning rate rises.
        weight_decay: share of each weight, times the learning rate, that an update subtracts.
        ema: factor of the moving average of the weights, such as 0.999.
        layer_decay: learning rate of a block relative to the next block, such as 0.75.
        head_only: train the head alone.
        trainable_blocks: train this number of last blocks, and the head.
        lora_rank: train low-rank additions (LoRA) of this rank, and the head.
    """

    steps: Positive = 500
    batch_size: Positive = 64
    accumulate: Positive = 1
    label_smoothing: Share = 0.0
    seed: int = 0
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
    recipe: Recipe = _DEFAULTS,
    image_size: Pixels | None = None,
    dropout: Share | None = None,
    augmentation: Augmentation | None = None,
    mixed_precision: Literal["mixed_bfloat16", "mixed_float16"] | None = None,
    split: str = "train",
    validation: str = "0.1",
    skip_unreadable: bool = False,
) -> None:
    """Train a preset on images of your own, by the paper's recipe.

    The folder OUT gets the presets best/ and last/, log.csv and the state for --resume. The head
    of the preset is kept if the images have its classes.

    Example: keras-vit finetune photos/ --preset vit_s14.dinov2 --out run

    Args:
        data: folder with a folder of images per class, tfds:NAME, or hf:OWNER/NAME.
        out: path of the folder for the results.
        labels: table of labels in the folder, CSV (path,label) or JSON; for tfds: and hf: data the
            name of the feature or column.
        multi_label: an image may have several labels, or none.
        preset: name of a preset, path of a file or folder, or hf://owner/repo.
        from_scratch: architecture to train with fresh weights, such as vit_ti16.
        resume: continue the training in the folder OUT.
        image_size: pixels of the model's images, or height and width.
        dropout: share of activations that training drops (dropout_rate).
        augmentation: random changes of the images, by the names of AugReg; none crops and flips.
            Without this option images stay unchanged.
        mixed_precision: dtype policy of the model, for 16-bit arithmetic.
        split: part of a tfds: or hf: data set to train on.
        validation: share of the data that is held out, another folder or split, or none.
        skip_unreadable: leave out images that cannot be read.
    """
    check_training(
        data,
        out,
        resume=resume,
        split=split,
        validation=_share_or_name(validation),
        labels=labels,
    )
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
        augmentation=augmentation,
        unreadable="skip" if skip_unreadable else "raise",
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
        "steps": f"{settings['steps']:,} of {counted(settings['batch_size'], 'image')}; "
        f"batches in an epoch: {len(data):,}",
    }
    if data.unreadable:
        facts["left out"] = f"{counted(len(data.unreadable), 'image')} that cannot be read"
    facts["head"] = "of the preset, which has these classes" if plan.keeps_head else "new"
    for name, fact in facts.items():
        tell(f"{name:<12} {fact}")


def demo(*, out: Path = Path("demo")) -> None:
    """Show what keras_vit does: predict, fine-tune, save, reload and explain.

    Example: keras-vit demo --out demo

    Args:
        out: path of the folder for the results.
    """
    check_results(out)
    start_backend(saves=True)
    from keras_vit.cli.demo import run

    run(out)
