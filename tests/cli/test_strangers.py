"""Commands print markup and control characters of presets and file names as plain text."""

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from keras_vit import VisionTransformer, cli
from tests.helpers import tiny

pytestmark = pytest.mark.without_backend

ORDER = "[/red][link=https://evil.example]\x1b[2J\u202egpj"
SHOWN = "[/red][link=https://evil.example]\\x1b[2J\\u202egpj"


@pytest.fixture
def preset(tmp_path):
    """A preset whose labels and provenance hold markup and terminal escapes."""
    model = tiny(labels=(ORDER, *"abcd"), provenance={"source": ORDER, ORDER: [ORDER]})
    model.save_to_preset(tmp_path / "[/bold]")
    return tmp_path / "[/bold]"


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "img[final].png"
    Image.fromarray(np.zeros((16, 16, 3), "uint8")).save(path)
    return path


def printed(capsys, status: int, *arguments) -> str:
    """The output of a command, without white space; asserts that it has no control characters."""
    assert cli.main([str(argument) for argument in arguments]) == status
    text = "".join(capsys.readouterr())
    assert "\x1b" not in text and "\u202e" not in text
    return "".join(text.split())


def test_predict_prints_hostile_labels_and_file_names_as_text(capsys, preset, image, monkeypatch):
    """Both are printed in full."""
    monkeypatch.setattr(cli.console.console, "_width", 1000)
    text = printed(capsys, 0, "predict", image, "--preset", preset)
    assert SHOWN in text
    assert "img[final].png" in text


def test_info_and_convert_print_hostile_words_as_text(capsys, preset, tmp_path, monkeypatch):
    """Labels and provenance of the preset, and the path of the target."""
    monkeypatch.setattr(cli.console.console, "_width", 1000)
    assert printed(capsys, 0, "info", preset).count(SHOWN) >= 2
    target = tmp_path / "[/red].npz"
    text = printed(capsys, 0, "convert", preset, target, "--to", "google")
    assert "[/red].npz" in text
    assert target.is_file()


def test_explain_draws_a_label_of_dollars_and_braces(capsys, preset, image, tmp_path, monkeypatch):
    """The name of the picture is printed as text."""
    monkeypatch.setattr(cli.console.console, "_width", 1000)
    VisionTransformer.from_preset(preset, labels=(r"$\frac{$", *"abcd")).save_to_preset(preset)
    target = tmp_path / "[/red].png"
    assert "[/red].png" in printed(capsys, 0, "explain", image, "--preset", preset, "--out", target)
    assert Image.open(target).size[0] > 100


def test_an_error_shows_control_characters_of_a_path_as_escapes(capsys, tmp_path):
    """The path does not exist."""
    text = printed(capsys, 2, "info", tmp_path / "\x1b[2J\u202e.npz")
    assert "\\x1b[2J\\u202e.npz" in text


def test_the_name_of_an_array_is_printed_as_text(capsys, tmp_path):
    """In the message that refuses it."""
    save_file({f"{ORDER}/kernel": np.zeros(2, "float32")}, tmp_path / "x.safetensors")
    assert SHOWN in printed(capsys, 2, "info", tmp_path / "x.safetensors")


def test_finetune_takes_names_of_classes_and_folders_as_text(capsys, tmp_path, monkeypatch):
    """The training ends, and the preset has the names unchanged."""
    monkeypatch.setattr(cli.console.console, "_width", 1000)
    names = ("[bold]b\x1b[2J", "[final]a\u202e")
    for k, name in enumerate(names):
        folder = tmp_path / "data [link=x]" / name
        folder.mkdir(parents=True)
        for j in range(2):
            Image.fromarray(np.full((16, 16, 3), 100 * k + j, "uint8")).save(folder / f"{j}.png")
        (folder / "notes\x1b[2J.txt").touch()
    tiny().save_to_preset(tmp_path / "tiny")
    arguments = ("--batch-size", 2, "--steps", 1, "--validation", 0.5, "--out", tmp_path / "[out]")
    with pytest.warns(UserWarning, match=r"such as .*notes\\x1b\[2J\.txt"):
        text = printed(
            capsys, 0, "finetune", tmp_path / "data [link=x]", "--preset", tmp_path / "tiny",
            *arguments,
        )  # fmt: skip
    assert "[out]" in text
    assert VisionTransformer.from_preset(tmp_path / "[out]" / "best").labels == names
