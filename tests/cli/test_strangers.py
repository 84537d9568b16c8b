"""Commands print markup and control characters of presets and file names as plain text."""

import itertools

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from keras_vit import VisionTransformer, cli
from tests.helpers import tiny

ORDER = "[/red][link=https://evil.example]\x1b[2J\u202egpj"
CLASSES = ("[bold]b\x1b[2J", "[final]a\u202e")
SHOWN = "[/red][link=https://evil.example]\\x1b[2J\\u202egpj"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A hostile preset, an image, a checkpoint, and folders to train on."""
    monkeypatch.setattr(cli.console.console, "_width", 1000)
    monkeypatch.chdir(tmp_path)
    fields = {"provenance": {"source": ORDER, ORDER: [ORDER]}}
    tiny(class_names=(ORDER, *"abcd"), **fields).save_to_preset("[/bold]")
    tiny(class_names=(r"$\frac{$", *"abcd")).save_to_preset("braces")
    picture = Image.fromarray(np.zeros((16, 16, 3), "uint8"))
    picture.save("img[final].png")
    save_file({f"{ORDER}/kernel": np.zeros(2, "float32")}, "x.safetensors")
    for name in CLASSES:
        folder = tmp_path / "data [link=x]" / name
        folder.mkdir(parents=True)
        for k in range(2):
            picture.save(folder / f"{k}.png")
        (folder / "notes\x1b[2J.txt").touch()
    return tmp_path


TRAIN = ("--batch-size", "2", "--steps", "1", "--validation", "0.5", "--path", "[out]")


COMMANDS = (
    (0, ("predict", "img[final].png", "--source", "[/bold]"), (SHOWN, "img[final].png")),
    (0, ("info", "[/bold]"), (SHOWN,)),
    (0, ("convert", "[/bold]", "[/red].npz", "--family", "google"), ("[/red].npz",)),
    (0, ("explain", "img[final].png", "--source", "braces", "--path", "[/red]"), ("[/red]",)),
    (0, ("finetune", "data [link=x]", "--source", "braces", *TRAIN), ("[out]",)),
    (2, ("info", "\x1b[2J\u202e.npz"), ("\\x1b[2J\\u202e.npz",)),
    (2, ("info", "x.safetensors"), (SHOWN,)),
)
"""Exit status, command line, and what is said."""


@pytest.mark.parametrize(("status", "command", "words"), COMMANDS)
def test_commands_print_hostile_words_as_text(run, place, status, command, words):
    """In full, without control characters; what a command writes has its name unchanged."""
    text = "".join(run(*command, status=status))
    assert "\x1b" not in text and "\u202e" not in text
    assert all(word in "".join(text.split()) for word in words)
    for option, target in itertools.pairwise(command):
        if option == "--path" or (command[0] == "convert" and option == "[/bold]"):
            assert (place / target).exists()
    if command[0] == "finetune":
        assert VisionTransformer.from_preset(place / "[out]" / "best").class_names == CLASSES
