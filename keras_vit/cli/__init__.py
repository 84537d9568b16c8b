"""The command line: argument parsing and printing; each command calls one public function."""

import argparse
import sys

from keras_vit import __version__
from keras_vit.cli import images, models, training
from keras_vit.errors import KerasViTError


def main(argv: list[str] | None = None) -> int:
    """Runs `keras-vit`; returns the exit status.

    2 after bad input; 1 if `verify` finds a difference or an image could not be read.
    """
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments) or 0
    except KerasViTError as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keras-vit",
        description="Vision Transformers for Keras 3. The backend is that of KERAS_BACKEND.",
    )
    parser.add_argument("--version", action="version", version=f"keras-vit {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in (models, images, training):
        group.add(commands)
    return parser
