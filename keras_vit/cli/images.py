"""Commands over image files: predict, embed, evaluate."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_vit.cli.console import (
    add_output,
    console,
    image_files,
    images_per_second,
    positive,
    show,
)
from keras_vit.cli.screen import Screen
from keras_vit.environment import backend
from keras_vit.errors import KerasViTError


def add(commands: Any) -> None:
    """Adds predict, embed and evaluate."""
    command = commands.add_parser(
        "predict",
        help="classify images",
        description="Classifies images. One that cannot be read is named on stderr, the others "
        "are answered, and the exit status is 1.",
    )
    command.add_argument("images", nargs="+", help="image files or folders of them")
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument("--top", type=positive, default=5, help="labels per image (default 5)")
    add_output(command, "print one JSON object, image to labels")
    command.set_defaults(run=_predict)

    command = commands.add_parser(
        "embed",
        help="write the features of images to a file",
        description="Writes the features of images to NAME.npy (with their paths in "
        "NAME.npy.json) or NAME.parquet. Interrupted, it goes on where it stopped when it is "
        "called again. An image that cannot be read is named on stderr and left out, and the "
        "exit status is 1.",
    )
    command.add_argument("images", nargs="+", help="image files or folders of them")
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument(
        "--out",
        required=True,
        help="file to write, .npy or .parquet; with --engine ray a folder of Parquet files",
    )
    command.add_argument("--layer", default="pre_logits", help="whose output (default pre_logits)")
    command.add_argument(
        "--batch-size", type=positive, default=32, help="images per step (default 32)"
    )
    ray = command.add_argument_group(
        "ray",
        "Many workers, on this machine or a cluster. Folders may be addresses such as "
        "s3://bucket/photos. The data set has a row for every image; one that cannot be read has "
        "the reason in the column error.",
    )
    ray.add_argument("--engine", choices=["ray"], help="run on Ray Data")
    ray.add_argument("--workers", type=positive, help="processes with the model (default 1)")
    ray.add_argument("--address", help="of a Ray cluster; the default starts Ray here")
    ray.add_argument("--top", type=positive, help="write this number of labels, not features")
    ray.add_argument("--cpus-per-worker", type=positive, help="its threads (default 1)")
    ray.add_argument("--gpus-per-worker", type=float, help="its accelerators (default 0)")
    command.set_defaults(run=_embed, go_on="The same command goes on where it stopped.")

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
    command.add_argument(
        "--batch-size", type=positive, default=32, help="images per step (default 32)"
    )
    command.add_argument(
        "--skip-unreadable", action="store_true", help="leave out images that cannot be read"
    )
    command.add_argument("--classes", action="store_true", help="show the accuracy of each class")
    add_output(command, "print one JSON object")
    command.set_defaults(run=_evaluate)


def _predict(arguments: argparse.Namespace) -> int:
    paths = image_files(arguments.images)
    model = _model(arguments)
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
    rows = [(p, n, f"{q:.4f}") for p, labels in answers.items() for n, q in labels]
    named = {p: [{"label": n, "probability": q} for n, q in a] for p, a in answers.items()}
    if answers or arguments.json:
        show(arguments, ("image", "label", "probability"), rows, named)
    return int(bool(unread))


def _model(arguments: argparse.Namespace) -> Any:
    """Returns the model of the preset; an unknown name is refused before a backend starts."""
    from keras_vit.checkpoints import Source

    source = Source.of(arguments.preset)
    backend.start()
    from keras_vit.model import VisionTransformer

    return VisionTransformer.from_preset(source)


_FOR_RAY = ("workers", "address", "top", "cpus_per_worker", "gpus_per_worker")


def _embed(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in _FOR_RAY}
    given = {name: value for name, value in given.items() if value is not None}
    if arguments.engine == "ray":
        return _embed_on_ray(arguments, given)
    if given:
        option = next(iter(given)).replace("_", "-")
        raise KerasViTError(f"--{option} is an option of --engine ray.")
    paths = image_files(arguments.images)
    model = _model(arguments)
    from keras_vit.evaluation import embed

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


def _embed_on_ray(arguments: argparse.Namespace, options: dict[str, Any]) -> int:
    from keras_vit.checkpoints import Source

    Source.of(arguments.preset)
    from keras_vit.ray import write_dataset

    stderr = Screen(stderr=True)
    written = write_dataset(
        arguments.images,
        arguments.out,
        arguments.preset,
        arguments.layer,
        batch_size=arguments.batch_size,
        unreadable=lambda path, reason: stderr.print(
            f"keras-vit: {reason}", soft_wrap=True, highlight=False
        ),
        **options,
    )
    console.print(
        f"{written.num_images} images, {written.unreadable} of them unreadable: {arguments.out} "
        "written.",
        soft_wrap=True,
    )
    return int(bool(written.unreadable))


def _evaluate(arguments: argparse.Namespace) -> int:
    model = _model(arguments)
    from keras_vit.data import from_name
    from keras_vit.evaluation import evaluate

    data = from_name(
        arguments.data,
        model.preprocessor,
        split=arguments.split,
        batch_size=arguments.batch_size,
        unreadable="skip" if arguments.skip_unreadable else "raise",
    )
    with images_per_second(Screen(stderr=True)) as progress:
        task = progress.add_task("Evaluating", total=data.num_images)
        found = evaluate(model, data, progress=lambda images: progress.advance(task, images))
    bins = found.calibration_bins
    rows: list[Sequence[object]] = [("images", found.count), ("top-1", f"{found.top1:.2%}")]
    if model.config.num_classes > 5:
        rows.append(("top-5", f"{found.top5:.2%}"))
    rows += [
        ("loss", f"{found.loss:.4f}"),
        (f"calibration error ({bins} bins)", f"{found.calibration_error:.4f}"),
    ]
    show(arguments, ("measure", "value"), rows, {**found.to_dict(), "labels": model.labels})
    if arguments.classes and not arguments.json:
        show(arguments, ("class", "images", "right"), _classes(found, model.labels))
    return int(bool(data.unreadable))


def _classes(found: Any, labels: Sequence[str] | None) -> list[tuple[str, int, str]]:
    """Returns the accuracy per class, the worst first; classes without images have no row."""
    rows = [
        (accuracy, labels[k] if labels else str(k), count)
        for k, (accuracy, count) in enumerate(
            zip(found.class_accuracy, found.class_counts, strict=True)
        )
        if accuracy is not None
    ]
    ordered = sorted(rows, key=lambda row: row[0])
    return [(label, count, f"{accuracy:.2%}") for accuracy, label, count in ordered]
