"""Commands that train: demo."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Adds demo."""
    command = commands.add_parser("demo", help="predict, fine-tune, save, reload and explain")
    command.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results")
    command.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    from keras_vit.demo import run

    run(arguments.out)
