"""Commands over image files: predict, explain."""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from keras_vit.cli.console import console, image_files, images_per_second
from keras_vit.errors import KerasViTError


def add(commands: Any) -> None:
    """Adds predict and explain."""
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

    command = commands.add_parser("explain", help="draw what a model looks at (needs matplotlib)")
    command.add_argument("images", nargs="+", type=Path, help="image files or folders of them")
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument("--out", type=Path, default=Path("explained.png"), help="PNG to write")
    command.set_defaults(run=_explain)


def _predict(arguments: argparse.Namespace) -> int:
    from keras_vit.model import VisionTransformer

    paths = list(dict.fromkeys(image_files(arguments.images)))
    model = VisionTransformer.from_preset(arguments.preset)
    stderr = Console(stderr=True)
    unread: list[Path] = []
    answers: dict[str, list[tuple[str, float]]] = {}
    with images_per_second(stderr) as progress:
        task = progress.add_task("Predicting", total=len(paths))

        def leave_out(path: Path, reason: KerasViTError) -> None:
            stderr.print(f"keras-vit: {reason}", soft_wrap=True, markup=False, highlight=False)
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


def _explain(arguments: argparse.Namespace) -> None:
    from keras_vit.figures import draw_explanations
    from keras_vit.model import VisionTransformer

    model = VisionTransformer.from_preset(arguments.preset)
    draw_explanations(model, image_files(arguments.images), arguments.out)
    console.print(f"{arguments.out} written.")
