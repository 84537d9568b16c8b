"""Commands print markup and control characters of presets and file names as plain text."""

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
    tiny(class_names=(r"$\frac{$", ORDER, *"abc"), **fields).save_to_preset("[/bold]")
    for name in CLASSES:
        for k in range(2):
            path = tmp_path / "data [link=x]" / name / f"img[final]{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.zeros((16, 16, 3), "uint8")).save(path)
    path.rename("img[final].png")
    save_file({f"{ORDER}/kernel": np.zeros(2, "float32")}, "x.safetensors")


TRAIN = ["--batch-size", "2", "--steps", "1", "--validation", "0.5", "--path", "[out]"]
IMAGE = ("img[final].png", "--source", "[/bold]")
COMMANDS = (
    (0, ("predict", *IMAGE), (SHOWN, "img[final].png")),
    (0, ("info", "[/bold]"), (SHOWN,)),
    (0, ("explain", *IMAGE, "--path", "[/red]"), ("[/red]",)),
    (0, ("finetune", "data [link=x]", "--source", "[/bold]", *TRAIN), ("[out]",)),
    (2, ("info", "x.safetensors"), (SHOWN,)),
)
"""Exit status, command line, and what is said."""


@pytest.mark.parametrize(("status", "command", "words"), COMMANDS)
def test_commands_print_hostile_words_as_text(run, place, tmp_path, status, command, words):
    """In full, without control characters; what a command writes has its name unchanged."""
    text = "".join(run(*command, status=status))
    assert "\x1b" not in text and "\u202e" not in text
    assert all(word in "".join(text.split()) for word in words)
    if "--path" in command:
        assert (tmp_path / command[-1]).exists()
    if command[0] == "finetune":
        assert VisionTransformer.from_preset("[out]/best").class_names == CLASSES
