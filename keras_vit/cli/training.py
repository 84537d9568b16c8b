"""Commands that train: finetune and demo."""

import argparse
import math
from pathlib import Path
from typing import Any

from keras_vit.cli.console import console
from keras_vit.cli.sources import labelled_images
from keras_vit.errors import ConfigError

_EPOCHS = 20
"""How often a training is validated and keeps its state: an epoch is that part of the steps."""


def add(commands: Any) -> None:
    """Adds finetune and demo."""
    command = commands.add_parser(
        "finetune",
        help="train a preset on images of your own",
        description="The paper's recipe on your images: into the folder OUT go the presets best/ "
        "and last/, log.csv, curves.png, a TensorBoard log and what --resume needs.",
    )
    command.add_argument(
        "data", help="a folder with a folder of images per class; tfds:NAME; or hf:OWNER/NAME"
    )
    command.add_argument("--preset", required=True, help="name, folder, file or hf://owner/repo")
    command.add_argument("--out", type=Path, required=True, help="folder for the results")
    command.add_argument("--resume", action="store_true", help="continue the training in OUT")
    command.add_argument(
        "--steps",
        type=int,
        default=500,
        help="weight updates: 500 for up to 20,000 images, 10,000 for up to 500,000 (the BiT rule)",
    )
    command.add_argument("--batch-size", type=int, default=64)
    command.add_argument("--learning-rate", type=float, default=0.01, help="the peak")
    command.add_argument("--warmup-steps", type=int)
    command.add_argument("--weight-decay", type=float, default=0.0)
    command.add_argument("--accumulate", type=int, default=1, help="batches per weight update")
    command.add_argument("--ema", type=float, help="average the weights, such as 0.999")
    command.add_argument("--image-size", type=int, nargs="+", metavar="PIXELS")
    command.add_argument("--dropout", type=float, help="dropout_rate of the model")
    command.add_argument("--mixed-precision", choices=("mixed_bfloat16", "mixed_float16"))

    learns = command.add_mutually_exclusive_group()
    learns.add_argument("--head-only", action="store_true", help="train nothing but the head")
    learns.add_argument("--trainable-blocks", type=int, metavar="N", help="train the last N blocks")
    learns.add_argument("--lora-rank", type=int, metavar="R", help="train low-rank additions")
    command.add_argument("--layer-decay", type=float, help="of the learning rate, such as 0.75")

    command.add_argument("--split", default="train", help="of a tfds: or hf: data set")
    command.add_argument(
        "--validation",
        default="0.1",
        help="a share of the data, another folder or split, or `none` (default 0.1)",
    )
    command.add_argument(
        "--augmentation",
        metavar="NAME",
        help="of AugReg: `none` (crops and flips), light1, light2, medium1, medium2, strong1, "
        "strong2; without it images are not changed",
    )
    command.add_argument("--label-smoothing", type=float, default=0.0)
    command.add_argument("--skip-unreadable", action="store_true", help="leave bad images out")
    command.add_argument("--seed", type=int, default=0)
    command.set_defaults(run=_finetune)

    command = commands.add_parser("demo", help="predict, fine-tune, save, reload and explain")
    command.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results")
    command.set_defaults(run=_demo)


def _finetune(arguments: argparse.Namespace) -> int:
    import keras

    from keras_vit.finetune import train, transfer_recipe
    from keras_vit.finetune.progress import ProgressBar
    from keras_vit.finetune.training import check_out
    from keras_vit.model import VisionTransformer
    from keras_vit.presets import describe

    check_out(arguments.out, arguments.resume)  # before the images are read
    keras.utils.set_random_seed(arguments.seed)
    fields: dict[str, Any] = {}
    if arguments.image_size:
        fields["image_size"] = _size(arguments.image_size)
    with console.status("Reading the images"):
        data, validation = _data(arguments, fields.get("image_size"))
    if arguments.dropout is not None:
        fields["dropout_rate"] = arguments.dropout
    model = VisionTransformer.from_preset(
        arguments.preset,
        num_classes=data.num_classes,
        labels=data.class_names,
        dtype=arguments.mixed_precision,
        **fields,
    )
    names = "learning_rate warmup_steps weight_decay accumulate ema label_smoothing layer_decay"
    names += " head_only trainable_blocks lora_rank"
    recipe = transfer_recipe(
        model,
        arguments.steps,
        arguments.batch_size,
        # Classes that the preset has already keep their head.
        new_head=getattr(describe(arguments.preset), "labels", None) != data.class_names,
        one_hot=data.one_hot,
        steps_per_epoch=len(data),
        **{name: getattr(arguments, name) for name in names.split()},
    )
    bar = ProgressBar(console)
    try:
        history = train(
            model,
            data,
            validation,
            recipe=recipe,
            out=arguments.out,
            resume=arguments.resume,
            callbacks=[bar],
            verbose=0,
        )
    except KeyboardInterrupt:
        bar.close()
        console.print(f"Interrupted. The same command with --resume continues in {arguments.out}.")
        return 130
    finally:
        bar.close()
    best = arguments.out / ("last" if validation is None else "best")
    if validation is not None:
        console.print(f"Highest validation accuracy: {max(history['val_accuracy']):.1%}")
    console.print(f"keras-vit predict IMAGE --preset {best}", soft_wrap=True)
    return 0


def _data(arguments: argparse.Namespace, image_size: Any) -> tuple[Any, Any]:
    """Training and validation data; None for no validation."""
    from keras_vit.preparation.preprocessor import Preprocessor

    preprocessor = Preprocessor.from_preset(arguments.preset, image_size)
    options: dict[str, Any] = {
        "batch_size": arguments.batch_size // arguments.accumulate or 1,
        "augmentation": arguments.augmentation,
        "one_hot": arguments.label_smoothing > 0,
        "seed": arguments.seed,
        "unreadable": "skip" if arguments.skip_unreadable else "raise",
    }
    per_epoch = max(1, math.ceil(arguments.steps * arguments.accumulate / _EPOCHS))
    is_folder = not arguments.data.startswith(("tfds:", "hf:"))
    data = labelled_images(
        arguments.data,
        preprocessor,
        None if is_folder else arguments.split,
        steps_per_epoch=per_epoch,
        **options,
    )
    if arguments.validation == "none":
        return data, None
    try:
        return data.hold_out(float(arguments.validation))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
    options |= {"augmentation": None, "one_hot": data.one_hot}
    if is_folder:
        options["class_names"] = data.class_names
        return data, labelled_images(arguments.validation, preprocessor, **options)
    return data, labelled_images(arguments.data, preprocessor, arguments.validation, **options)


def _size(sides: list[int]) -> int | tuple[int, int]:
    if len(sides) > 2:
        raise ConfigError(f"--image-size {sides}: expected one number, or height and width.")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _demo(arguments: argparse.Namespace) -> None:
    from keras_vit.demo import run

    run(arguments.out)
