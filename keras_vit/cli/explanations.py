"""The command that shows what a model sees: explain."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from keras_vit.cli.console import ImageSize, console, image_files, positive
from keras_vit.environment import backend

METHODS = (
    "relevance",
    "integrated_gradients",
    "gradcam",
    "occlusion",
    "rollout",
    "attention",
)


def add(commands: Any) -> None:
    """Adds explain."""
    command = commands.add_parser(
        "explain",
        help="show what in images speaks for their classes (needs matplotlib)",
        description="Writes a web page that opens from disk: attention of every block and head, "
        "maps of several methods for two classes, and how far to believe them. With --out FILE.png "
        "it writes one picture of all images instead.",
    )
    command.add_argument("images", nargs="+", help="image files or folders of them")
    _add_model(command)
    command.add_argument(
        "--method",
        choices=METHODS,
        help="what comes first (default relevance; of a FILE.png rollout)",
    )
    command.add_argument(
        "--target",
        nargs="+",
        default=[],
        metavar="CLASS",
        help="labels or indices (default the two most probable classes of each image)",
    )
    command.set_defaults(run=_explain)


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("--preset", required=True, help="name, folder or checkpoint file")
    command.add_argument(
        "--out", type=Path, default=Path("report"), help="folder to write (default report)"
    )
    command.add_argument(
        "--image-size",
        type=positive,
        nargs="+",
        action=ImageSize,
        metavar="PIXELS",
        help="other than the stored one; a model of any size needs it",
    )


def _explain(arguments: argparse.Namespace) -> None:
    paths = image_files(arguments.images)
    model = _model(arguments)
    if arguments.out.suffix.lower() == ".png":
        from keras_vit.explanation.drawing import draw_explanations

        draw_explanations(model, paths, arguments.out, method=arguments.method or "rollout")
        console.print(f"{arguments.out} written.", soft_wrap=True)
        return
    from keras_vit.explanation.report import write_report

    written = write_report(
        model,
        arguments.out,
        paths,
        method=arguments.method or "relevance",
        targets=arguments.target,
        command=_command(arguments),
    )
    console.print(f"{written} written.", soft_wrap=True)


def _model(arguments: argparse.Namespace) -> Any:
    """The preset; a name that is none is told before a backend starts."""
    from keras_vit.checkpoints import Source

    source = Source.of(arguments.preset)
    backend.start()
    from keras_vit.model import VisionTransformer

    size: Any = "stored" if arguments.image_size is None else arguments.image_size
    return VisionTransformer.from_preset(source, image_size=size)


def _command(arguments: argparse.Namespace) -> str:
    """The command line that writes the same report again."""
    words = ["keras-vit", "explain", *map(str, arguments.images)]
    words += ["--preset", arguments.preset, "--method", arguments.method or "relevance"]
    if arguments.target:
        words += ["--target", *arguments.target]
    if arguments.image_size is not None:
        sizes = arguments.image_size
        words += ["--image-size", *map(str, (sizes,) if isinstance(sizes, int) else sizes)]
    return shlex.join([*words, "--out", str(arguments.out)])
