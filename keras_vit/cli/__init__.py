"""The command line: argument parsing and printing; each command calls one public function."""

import argparse
import os
import sys

import shtab

from keras_vit import __version__
from keras_vit.cli import explanations, exporting, images, models, serving, training
from keras_vit.cli.interrupts import interrupts_repeated
from keras_vit.environment import backend
from keras_vit.errors import KerasViTError
from keras_vit.text import visible

INTERRUPTED = 130
"""Exit status after Ctrl-C, the same as a shell's."""

_WITHOUT_BACKEND = ("list", "doctor", "info", "convert", "upload")


def main(argv: list[str] | None = None) -> int:
    """Runs `keras-vit`; returns the exit status.

    The status is 2 after bad input or a failure to read or write a file, 1 if `verify` finds a
    difference or an image could not be read, and 130 after Ctrl-C.
    """
    arguments = parser().parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # silences TensorFlow's first ten lines
    try:
        with interrupts_repeated():
            return _run(arguments)
    except KerasViTError as error:
        _tell(str(error))
        return 2
    except KeyboardInterrupt:
        _tell(f"interrupted. {arguments.go_on}")
        return INTERRUPTED
    except BrokenPipeError:  # `keras-vit list | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _tell(_system_error(error, arguments))
        return 2
    except MemoryError:
        _tell(f"{arguments.command}: not enough memory. A smaller --batch-size may do.")
        return 2


def _run(arguments: argparse.Namespace) -> int:
    """Runs a command; a backend that cannot be imported becomes one sentence."""
    if arguments.command not in _WITHOUT_BACKEND and (note := backend.note()):
        _tell(note)
    try:
        return arguments.run(arguments) or 0
    except ImportError as error:
        if reason := backend.refusal():
            raise reason from error
        raise


def _tell(message: str) -> None:
    print(f"keras-vit: {visible(message, lines=True)}", file=sys.stderr)


def _system_error(error: OSError, arguments: argparse.Namespace) -> str:
    """Returns a message with the command, the system's error and the file."""
    out = getattr(arguments, "out", None) or getattr(arguments, "destination", None)
    where = error.filename2 or error.filename or out
    what = error.strerror or str(error)
    return f"{arguments.command}: {what}" + (f": {where}" if where else "") + "."


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="keras-vit",
        description="Vision Transformers for Keras 3. The backend is that of KERAS_BACKEND.",
    )
    made.add_argument("--version", action="version", version=f"keras-vit {__version__}")
    shtab.add_argument_to(
        made,
        "--print-completion",
        help="print a completion script: source <(keras-vit --print-completion bash)",
    )
    made.set_defaults(go_on="Nothing was written; call the same command again.")
    commands = made.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for group in (models, exporting, serving, images, explanations, training):
        group.add(commands)
    return made
