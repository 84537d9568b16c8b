"""Commands about a preset and images whose words are orders to a terminal."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, cli
from tests.helpers import tiny

ORDER = "[/red][link=https://evil.example]\x1b[2J\u202egpj"
SHOWN = "[/red][link=https://evil.example]\\x1b[2J\\u202egpj"


@pytest.fixture
def preset(tmp_path):
    """One whose labels and provenance come from nobody's friend."""
    model = tiny(labels=(ORDER, *"abcd"), provenance={"source": ORDER, ORDER: [ORDER]})
    model.save_to_preset(tmp_path / "[/bold]")
    return tmp_path / "[/bold]"


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "img[final].png"
    Image.fromarray(np.zeros((16, 16, 3), "uint8")).save(path)
    return path


def printed(capsys, status: int, *arguments) -> str:
    """Standard output and error of a command."""
    assert cli.main([str(argument) for argument in arguments]) == status
    text = "".join(capsys.readouterr())
    assert "\x1b" not in text and "\u202e" not in text
    return "".join(text.split())


def test_predict(capsys, preset, image, monkeypatch):
    """The label and the file are named in full."""
    monkeypatch.setattr(cli.images.console, "_width", 1000)
    text = printed(capsys, 0, "predict", image, "--preset", preset)
    assert SHOWN in text
    assert "img[final].png" in text


def test_info_and_convert(capsys, preset, tmp_path, monkeypatch):
    """So are what the preset says of itself and where a checkpoint goes."""
    monkeypatch.setattr(cli.models.console, "_width", 1000)
    assert printed(capsys, 0, "info", preset).count(SHOWN) >= 2
    target = tmp_path / "[/red].npz"
    text = printed(capsys, 0, "convert", preset, target, "--to", "google")
    assert "[/red].npz" in text
    assert target.is_file()


def test_explain(capsys, preset, image, tmp_path, monkeypatch):
    """A label of dollars and braces is drawn; the picture's name is printed."""
    monkeypatch.setattr(cli.images.console, "_width", 1000)
    VisionTransformer.from_preset(preset, labels=(r"$\frac{$", *"abcd")).save_to_preset(preset)
    target = tmp_path / "[/red].png"
    assert "[/red].png" in printed(capsys, 0, "explain", image, "--preset", preset, "--out", target)


def test_an_error(capsys, tmp_path):
    """Names what does not exist, in letters that can be seen."""
    text = printed(capsys, 2, "info", tmp_path / "\x1b[2J\u202e.npz")
    assert "\\x1b[2J\\u202e.npz" in text
