"""Commands over image files: predict, embed, evaluate, explain."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from keras_vit.cli.console import console, image_files, images_per_second
from keras_vit.cli.sources import labelled_images
from keras_vit.errors import KerasViTError
from keras_vit.terminal.screen import Screen


def add(commands: Any) -> None:
    """Adds predict, embed, evaluate and explain."""
    command = commands.add_parser(
        "predict",
        help="classify images",
        description="Classifies images. One that cannot be read is named on stderr, the others "
        "are answered, and the exit status is 1.",
    )
    command.add_argument("images", nargs="+", type=Path, help="image files or folders of them")
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument("--top", type=int, default=5, help="labels per image (default 5)")
    command.add_argument(
        "--json", action="store_true", help="print one JSON object, image to labels"
    )
    command.set_defaults(run=_predict)

    command = commands.add_parser(
        "embed",
        help="write the features of images to a file",
        description="Writes the features of images to NAME.npy (with their paths in "
        "NAME.npy.json) or NAME.parquet. Interrupted, it goes on where it stopped when it is "
        "called again. An image that cannot be read is named on stderr and left out, and the "
        "exit status is 1.",
    )
    command.add_argument("images", nargs="+", type=Path, help="image files or folders of them")
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument("--out", required=True, type=Path, help="file to write, .npy or .parquet")
    command.add_argument("--layer", default="pre_logits", help="whose output (default pre_logits)")
    command.add_argument("--batch-size", type=int, default=32, help="images per step (default 32)")
    command.set_defaults(run=_embed)

    command = commands.add_parser(
        "evaluate",
        help="score a classifier on labelled images",
        description="Prints accuracy, loss and calibration error on labelled images, whose "
        "classes are matched to the model's labels by name. The exit status is 1 if images were "
        "left out.",
    )
    command.add_argument(
        "data", help="a folder with a folder of images per class, tfds:NAME or hf:NAME"
    )
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument("--split", help="of tfds: or hf: data (default test)")
    command.add_argument("--batch-size", type=int, default=32, help="images per step (default 32)")
    command.add_argument(
        "--skip-unreadable", action="store_true", help="leave out images that cannot be read"
    )
    command.add_argument("--classes", action="store_true", help="show the accuracy of each class")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_evaluate)

    command = commands.add_parser("explain", help="draw what a model looks at (needs matplotlib)")
    command.add_argument("images", nargs="+", type=Path, help="image files or folders of them")
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument("--out", type=Path, default=Path("explained.png"), help="PNG to write")
    command.set_defaults(run=_explain)


def _predict(arguments: argparse.Namespace) -> int:
    from keras_vit.model import VisionTransformer

    paths = list(dict.fromkeys(image_files(arguments.images)))
    model = VisionTransformer.from_preset(arguments.preset)
    stderr = Screen(stderr=True)
    unread: list[Path] = []
    answers: dict[str, list[tuple[str, float]]] = {}
    with images_per_second(stderr) as progress:
        task = progress.add_task("Predicting", total=len(paths))

        def leave_out(path: Path, reason: KerasViTError) -> None:
            stderr.print(f"keras-vit: {reason}", soft_wrap=True, highlight=False)
            unread.append(path)
            progress.advance(task)

        answered = model.classify_each(paths, arguments.top, unreadable=leave_out)
        for path, labels in answered:
            answers[str(path)] = labels
            progress.advance(task)
    if arguments.json:
        named = {p: [{"label": n, "probability": q} for n, q in a] for p, a in answers.items()}
        print(json.dumps(named, indent=2))
        return int(bool(unread))
    table = Table("image", "label", "probability")
    for name, labels in answers.items():
        for rank, (label, probability) in enumerate(labels):
            table.add_row(name if rank == 0 else "", label, f"{probability:.4f}")
    if answers:
        console.print(table)
    return int(bool(unread))


def _embed(arguments: argparse.Namespace) -> int:
    from keras_vit.evaluation import embed
    from keras_vit.model import VisionTransformer

    paths = list(dict.fromkeys(image_files(arguments.images)))
    model = VisionTransformer.from_preset(arguments.preset)
    stderr = Screen(stderr=True)
    with images_per_second(stderr) as progress:
        task = progress.add_task("Embedding", total=len(paths))

        def leave_out(path: str, reason: KerasViTError) -> None:
            stderr.print(f"keras-vit: {reason}", soft_wrap=True, highlight=False)

        written = embed(
            model,
            paths,
            arguments.out,
            arguments.layer,
            batch_size=arguments.batch_size,
            unreadable=leave_out,
            progress=lambda images: progress.advance(task, images),
        )
    console.print(f"{written.num_images} images: {arguments.out} written.", soft_wrap=True)
    return int(bool(written.unreadable))


def _evaluate(arguments: argparse.Namespace) -> int:
    from keras_vit.evaluation import evaluate
    from keras_vit.model import VisionTransformer

    model = VisionTransformer.from_preset(arguments.preset)
    data = labelled_images(
        arguments.data,
        model.preprocessor,
        arguments.split,
        batch_size=arguments.batch_size,
        unreadable="skip" if arguments.skip_unreadable else "raise",
    )
    with images_per_second(Screen(stderr=True)) as progress:
        task = progress.add_task("Evaluating", total=data.num_images)
        found = evaluate(model, data, progress=lambda images: progress.advance(task, images))
    if arguments.json:
        print(json.dumps({**found.to_dict(), "labels": model.labels}, indent=2))
        return int(bool(data.unreadable))
    table = Table("measure", "value")
    table.add_row("images", str(found.count))
    table.add_row("top-1", f"{found.top1:.2%}")
    if model.config.num_classes > 5:
        table.add_row("top-5", f"{found.top5:.2%}")
    table.add_row("loss", f"{found.loss:.4f}")
    bins = found.calibration_bins
    table.add_row(f"calibration error ({bins} bins)", f"{found.calibration_error:.4f}")
    console.print(table)
    if arguments.classes:
        console.print(_classes(found, model.labels))
    return int(bool(data.unreadable))


def _classes(found: Any, labels: Sequence[str] | None) -> Table:
    """Accuracy per class, the worst first; classes without images have no row."""
    rows = [
        (accuracy, labels[k] if labels else str(k), count)
        for k, (accuracy, count) in enumerate(
            zip(found.class_accuracy, found.class_counts, strict=True)
        )
        if accuracy is not None
    ]
    table = Table("class", "images", "right")
    for accuracy, label, count in sorted(rows, key=lambda row: row[0]):
        table.add_row(label, str(count), f"{accuracy:.2%}")
    return table


def _explain(arguments: argparse.Namespace) -> None:
    from keras_vit.figures import draw_explanations
    from keras_vit.model import VisionTransformer

    model = VisionTransformer.from_preset(arguments.preset)
    draw_explanations(model, image_files(arguments.images), arguments.out)
    console.print(f"{arguments.out} written.")
