"""Commands that train: finetune, pretrain and demo."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_vit.cli.console import ImageSize, console, positive, share
from keras_vit.environment import backend

if TYPE_CHECKING:
    from keras_vit.finetune import Plan, PretrainingPlan

_AUGMENTATIONS = ("none", "light1", "light2", "medium1", "medium2", "strong1", "strong2")
_RECIPE = ("learning_rate", "warmup_steps", "weight_decay", "ema", "layer_decay")
_GO_ON = (
    "If its first epoch was over, the same command with --resume continues; else remove the folder "
    "of --out and call it again."
)
_TRANSFER = ("head_only", "trainable_blocks", "lora_rank")


def add(commands: Any) -> None:
    """Adds finetune, pretrain and demo."""
    _add_finetune(commands)
    _add_pretrain(commands)
    command = commands.add_parser("demo", help="predict, fine-tune, save, reload and explain")
    command.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results")
    command.set_defaults(run=_demo, go_on="The same command starts anew.")


def _add_finetune(commands: Any) -> None:
    command = commands.add_parser(
        "finetune",
        help="train a preset on images of your own",
        description="The paper's recipe on your images: into the folder OUT go the presets best/ "
        "and last/, log.csv, curves.png, a TensorBoard log and what --resume needs. The head of "
        "the preset stays if the images have its classes.",
    )
    _add_common(command)
    start = command.add_mutually_exclusive_group(required=True)
    start.add_argument("--preset", help="name, folder, file or hf://owner/repo")
    start.add_argument("--from-scratch", metavar="VARIANT", help="fresh weights, such as vit_ti16")
    command.add_argument(
        "--steps",
        type=positive,
        default=500,
        help="weight updates: 500 for up to 20,000 images, 10,000 for up to 500,000 (the BiT rule)",
    )
    command.add_argument("--batch-size", type=positive, default=64)
    rate = command.add_mutually_exclusive_group()
    rate.add_argument(
        "--learning-rate", type=float, help="the peak (default 0.01; from scratch 0.001)"
    )
    rate.add_argument(
        "--sweep",
        type=float,
        nargs="*",
        metavar="RATE",
        help="try these peaks on a tenth of the training images that is held out, those of the "
        "paper's table 4 if none are given, and train with the best",
    )
    command.add_argument(
        "--image-size", type=positive, nargs="+", action=ImageSize, metavar="PIXELS"
    )
    command.add_argument("--dropout", type=share, help="dropout_rate of the model")
    command.add_argument("--weight-decay", type=float)

    learns = command.add_mutually_exclusive_group()
    learns.add_argument("--head-only", action="store_true", help="train nothing but the head")
    learns.add_argument(
        "--trainable-blocks", type=positive, metavar="N", help="train the last N blocks"
    )
    learns.add_argument("--lora-rank", type=positive, metavar="R", help="train low-rank additions")
    command.add_argument("--layer-decay", type=float, help="of the learning rate, such as 0.75")

    command.add_argument(
        "--augmentation",
        choices=_AUGMENTATIONS,
        help="of AugReg; `none` crops and flips. Without it images are not changed",
    )
    command.add_argument("--label-smoothing", type=share, default=0.0)
    command.set_defaults(run=_finetune, go_on=_GO_ON)


def _add_pretrain(commands: Any) -> None:
    command = commands.add_parser(
        "pretrain",
        help="train fresh weights by a published recipe",
        description="A recipe of the papers on your images, from fresh weights: into the folder "
        "OUT go the presets best/ and last/, log.csv, curves.png, a TensorBoard log and what "
        "--resume needs. At the end the model of last/ is scored on the held-out images.",
    )
    _add_common(command)
    command.add_argument(
        "--recipe",
        required=True,
        help="plain_s16_i1k, vit_b_i21k, vit_i1k and others of keras_vit.finetune.PRETRAINING, or "
        "of AugReg, such as medium1_sd0.1_wd0.03",
    )
    command.add_argument("--variant", help="the model (default: the first of the recipe's)")
    command.add_argument(
        "--epochs", type=positive, help="passes (default: the longest training of the paper)"
    )
    command.add_argument(
        "--batch-size", type=positive, help="images per update (default: the paper's)"
    )
    command.add_argument("--learning-rate", type=float, help="the peak (default: the paper's)")
    command.add_argument(
        "--image-size", type=positive, nargs="+", action=ImageSize, metavar="PIXELS", default=224
    )
    command.add_argument(
        "--patch-size", type=positive, metavar="PIXELS", help="another one than the variant's"
    )
    command.set_defaults(run=_pretrain, go_on=_GO_ON)


def _add_common(command: Any) -> None:
    """Adds the arguments that both trainings share."""
    command.add_argument(
        "data", help="a folder with a folder of images per class; tfds:NAME; or hf:OWNER/NAME"
    )
    command.add_argument("--out", type=Path, required=True, help="folder for the results")
    command.add_argument("--resume", action="store_true", help="continue the training in OUT")
    command.add_argument("--warmup-steps", type=int)
    command.add_argument("--accumulate", type=positive, default=1, help="batches per weight update")
    command.add_argument("--ema", type=share, help="average the weights, such as 0.999")
    command.add_argument("--mixed-precision", choices=("mixed_bfloat16", "mixed_float16"))
    command.add_argument("--split", default="train", help="of a tfds: or hf: data set")
    command.add_argument(
        "--validation",
        type=_validation,
        default=0.1,
        help="a share of the data, another folder or split, or `none` (default 0.1)",
    )
    command.add_argument("--skip-unreadable", action="store_true", help="leave bad images out")
    command.add_argument("--seed", type=int, default=0)


def _validation(text: str) -> float | str | None:
    try:
        return None if text == "none" else share(text)
    except ValueError:
        return text


def _finetune(arguments: argparse.Namespace) -> None:
    if arguments.preset is not None:  # refuses an unknown name before a backend starts
        from keras_vit.checkpoints import Source

        preset: Any = Source.of(arguments.preset)
    else:
        from keras_vit.variants import variant

        preset = variant(arguments.from_scratch).name
    backend.start(saves=True)
    from keras_vit.finetune import finetune_preset
    from keras_vit.finetune.progress import ProgressBar

    names = _RECIPE if arguments.preset is None else (*_RECIPE, *_TRANSFER)
    recipe = {name: getattr(arguments, name) for name in names}
    with ProgressBar(console) as bar:
        done = finetune_preset(
            preset,
            arguments.data,
            out=arguments.out,
            resume=arguments.resume,
            from_scratch=arguments.preset is None,
            split=arguments.split,
            validation=arguments.validation,
            image_size=arguments.image_size,
            dtype=arguments.mixed_precision,
            dropout_rate=arguments.dropout,
            steps=arguments.steps,
            batch_size=arguments.batch_size,
            accumulate=arguments.accumulate,
            augmentation=arguments.augmentation,
            label_smoothing=arguments.label_smoothing,
            unreadable="skip" if arguments.skip_unreadable else "raise",
            seed=arguments.seed,
            sweep_over=_rates(arguments),
            announce=_announce,
            callbacks=[bar],
            **{name: value for name, value in recipe.items() if value not in (None, False)},
        )
    if "val_accuracy" in done.history:
        console.print(f"Highest validation accuracy: {max(done.history['val_accuracy']):.1%}")
    console.print("What to type next:")
    console.print(f"  keras-vit predict IMAGE --preset {done.preset}", soft_wrap=True)
    console.print(f"  keras-vit evaluate {arguments.data} --preset {done.preset}", soft_wrap=True)


def _rates(arguments: argparse.Namespace) -> Sequence[float] | None:
    """Returns the learning rates of --sweep; without values, the rates of table 4."""
    if arguments.sweep != []:
        return arguments.sweep
    from keras_vit.finetune.published import rates_for

    return rates_for(arguments.data)


def _pretrain(arguments: argparse.Namespace) -> None:
    backend.start(saves=True)
    from keras_vit.finetune import pretrain
    from keras_vit.finetune.progress import ProgressBar

    named = ("learning_rate", "warmup_steps", "ema")
    changes = {name: getattr(arguments, name) for name in named}
    with ProgressBar(console, "pre-training") as bar:
        done = pretrain(
            arguments.data,
            arguments.recipe,
            out=arguments.out,
            resume=arguments.resume,
            variant=arguments.variant,
            epochs=arguments.epochs,
            split=arguments.split,
            validation=arguments.validation,
            image_size=arguments.image_size,
            dtype=arguments.mixed_precision,
            batch_size=arguments.batch_size,
            accumulate=arguments.accumulate,
            unreadable="skip" if arguments.skip_unreadable else "raise",
            seed=arguments.seed,
            announce=_announce_pretraining,
            callbacks=[bar],
            fields={"patch_size": arguments.patch_size} if arguments.patch_size else None,
            **{name: value for name, value in changes.items() if value is not None},
        )
    if (found := done.evaluation) is not None:
        console.print(
            f"On {found.count:,} held-out images: top-1 {found.top1:.1%}, loss {found.loss:.4g}."
        )
    console.print("What to type next:")
    console.print(f"  keras-vit predict IMAGE --preset {done.preset}", soft_wrap=True)
    console.print(f"  keras-vit finetune DATA --preset {done.preset} --out OTHER", soft_wrap=True)


def _announce_pretraining(plan: "PretrainingPlan") -> None:
    """Prints data, model and settings of the training, and the results that the paper reports."""
    published = plan.published
    reported = ", ".join(f"{top1:.1%} after {n}" for n, top1 in published.reported.items())
    facts = {"source": published.source}
    if reported:
        facts["reported"] = f"{reported} epochs of the paper's data"
    _print_facts(facts | _found(plan) | {"epochs": f"{plan.epochs:,}"})


def _announce(plan: "Plan") -> None:
    """Prints data, model and settings of the training."""
    facts = _found(plan)
    facts["head"] = "of the preset, which has these classes" if plan.keeps_head else "new"
    if plan.sweep:
        scores = ", ".join(f"{accuracy:.1%} at {rate:g}" for rate, accuracy in plan.sweep.items())
        facts["sweep"] = f"{scores}; the best is taken"
    for name, package in plan.left_out.items():
        facts[name] = f"not written: {package} is not installed"
    _print_facts(facts)


def _found(plan: "Plan | PretrainingPlan") -> dict[str, str]:
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
    return facts


def _print_facts(facts: dict[str, str]) -> None:
    for name, fact in facts.items():
        console.print(f"{name:<12} {fact}", soft_wrap=True, highlight=False)


def _demo(arguments: argparse.Namespace) -> None:
    backend.start(saves=True)
    from keras_vit.demo import run

    run(arguments.out)
