"""The command `keras-vit`: its subcommands parse options, call one public function and print."""

import inspect
import os
import re
import sys
from collections.abc import Sequence
from inspect import BoundArguments

from cyclopts import App, CycloptsError, Parameter

from keras_vit.cli import images, models, options, products, training
from keras_vit.cli.console import WORDS
from keras_vit.cli.interrupts import interrupts_repeated
from keras_vit.cli.notes import in_words_of_the_shell, notes_alone, suggest
from keras_vit.errors import KerasViTError
from keras_vit.serving.settings import Settings
from keras_vit.support import __version__
from keras_vit.support.text import visible

INTERRUPTED = 130
"""Exit status after Ctrl-C, the same as a shell's."""

app = App(
    name="keras-vit",
    help="Vision Transformers for Keras 3. The variable KERAS_BACKEND chooses the backend.",
    help_format="plaintext",
    version=f"keras-vit {__version__}",
    default_parameter=Parameter(negative=(), show_default=options.shown_default),
    sort_key=0,
)
_COMMANDS = (
    models.list_,
    models.doctor,
    models.info,
    models.convert,
    models.verify,
    images.predict,
    images.embed,
    images.evaluate,
    images.probe,
    products.export,
    products.serve,
    products.explain,
    training.finetune,
    training.pretrain,
    training.demo,
)
_SHARED = (
    options.Fields,
    options.Reading,
    options.Loading,
    options.Labelled,
    training.Options,
    training.PretrainOptions,
    Settings,
)
for _part in (*_COMMANDS, *_SHARED):
    # The help keeps line breaks, so a paragraph, or the text of an argument, becomes one line.
    _text = inspect.cleandoc(_part.__doc__ or "").replace("`", "")
    _part.__doc__ = re.sub(r"(?<=\S)\n(?=\S)|\n {8}(?=\S)", " ", _text)
_BY_NAME = {command.__name__.rstrip("_"): command for command in _COMMANDS}
for _name, _command in _BY_NAME.items():
    app.command(_command, name=_name)
app["verify"].usage = "Usage: keras-vit verify [OPTIONS] SOURCE [OTHER]"
app.register_install_completion_command()

_AFTER_TRAINING = (
    "After the first epoch the same command with --resume continues; before that, "
    "remove the folder of --path and run the command again."
)
_AFTER_CTRL_C = {
    "predict": "Nothing was written, except for finished maps in the folder of --path.",
    "embed": "Run the same command again to resume.",
    "probe": "Run the same command again to resume.",
    "serve": "All accepted requests have been answered.",
    "demo": "Run the same command again to start over.",
    "finetune": _AFTER_TRAINING,
    "pretrain": _AFTER_TRAINING,
}


def main(argv: list[str] | None = None) -> int:
    """Runs `keras-vit`; returns the exit status.

    The status is 2 for invalid input or a file that cannot be read or written, 1 if `verify` finds
    a difference or an image could not be read, and 130 after Ctrl-C.
    """
    words = sys.argv[1:] if argv is None else argv
    WORDS[:] = words
    try:
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    except (CycloptsError, KerasViTError) as error:
        return _fail(_refusal(error, words))
    name = getattr(command, "__name__", "").rstrip("_")
    try:
        with notes_alone(), interrupts_repeated():
            return int(command(*bound.args, **bound.kwargs) or 0)
    except BrokenPipeError:  # `keras-vit list | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        next_step = _AFTER_CTRL_C.get(name, "Nothing was written; run the command again.")
        return _fail(f"interrupted. {next_step}", INTERRUPTED)
    except (KerasViTError, OSError, MemoryError) as error:
        return _fail(_sentence(error, name, bound))


def _names(command: str) -> list[str]:
    """Returns the options of a command, such as `--source`, and its arguments, such as `IMAGES`."""
    return [name for each in app[command].assemble_argument_collection() for name in each.names]


def _refusal(error: CycloptsError | KerasViTError, words: Sequence[str]) -> str:
    """Returns a message about invalid words, an unknown name first, with a valid example."""
    command = words[0]
    if command not in _BY_NAME:
        return f"unknown command {command}.{suggest(command, _BY_NAME)} See keras-vit --help."
    text, names = str(error), _names(command)
    for option in re.findall(r"^--?[a-zA-Z][\w-]*", "\n".join(words[1:]), re.MULTILINE):
        if option.replace("_", "-") not in names:
            text = f"unknown option {option}.{suggest(option, names)}"
            break
    (example,) = re.findall("Example: (.*)", _BY_NAME[command].__doc__ or "")
    return f"{text} Example: {example}. See keras-vit {command} --help."


def _sentence(error: BaseException, command: str, bound: BoundArguments) -> str:
    """Returns the message of an error that the user can fix, with the file if there is one."""
    if isinstance(error, KerasViTError):
        options = [name for name in _names(command) if name.startswith("--")]
        return in_words_of_the_shell(str(error), options)
    if isinstance(error, OSError):
        out = bound.arguments.get("path")
        place = error.filename2 or error.filename or out
        return f"{command}: {error.strerror or error}{f': {place}' if place else ''}."
    return f"{command}: not enough memory. Try a smaller --batch-size."


def _fail(message: str, status: int = 2) -> int:
    print(f"keras-vit: {visible(message, lines=True)}", file=sys.stderr)
    return status
