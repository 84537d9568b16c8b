"""Options that choose the arrays of a checkpoint: `--prefix`, `--weights`, `--ignore`."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from keras_vit import cli
from tests.checkpoints.files import timm_shapes, write_arrays, write_shapes
from tests.golden import FOLDER

HEADS = ("--num-heads", "3")


@pytest.fixture
def twice(tmp_path):
    """A file of weights and their average, whose student has another first bias."""
    arrays = load_file(FOLDER / "timm_token" / "model.safetensors")
    student = {**arrays, "cls_token": arrays["cls_token"] + 1}
    parts = (("student.", student), ("teacher.", arrays), ("", {"odd.weight": (5,)}))
    return write_arrays(tmp_path / "x.safetensors", *parts)


def facts(capsys, *arguments):
    """What `keras-vit info` answers."""
    assert cli.main(["info", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *arguments):
    """The line of an error that a user can mend."""
    assert cli.main([*map(str, arguments)]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ((), "teacher."),
        (("--weights", "ema"), "teacher."),
        (("--weights", "raw"), "student."),
        (("--prefix", "student"), "student."),
        (("--prefix", "student."), "student."),
    ],
)
def test_info_and_convert_read_the_weights_that_options_name(
    twice, options, prefix, capsys, tmp_path
):
    assert facts(capsys, twice, *HEADS, *options)["prefix"] == prefix
    arguments = ("convert", twice, tmp_path / "y", "--family", "timm", *HEADS, *options)
    assert cli.main([*map(str, arguments)]) == 0
    converted = load_file(tmp_path / "y" / "model.safetensors")
    stored = load_file(twice)
    np.testing.assert_array_equal(converted["cls_token"], stored[f"{prefix}cls_token"])


def test_ignore_takes_names_and_patterns(capsys, tmp_path):
    arrays = load_file(FOLDER / "timm_token" / "model.safetensors")
    extras = {"blocks.0.gate.weight": (24,), "scale": (24,), "decoder.a.weight": (3,)}
    path = write_arrays(tmp_path / "x.safetensors", ("", arrays), ("", extras))
    assert "unexpected" in refusal(capsys, "info", path, *HEADS)
    options = ("--ignore", "scale", "--ignore", "blocks.*.gate.*", "--ignore", "decoder.*")
    found = facts(capsys, path, *HEADS, *options)
    assert found["ignored"] == dict.fromkeys(extras, "ignored by the caller")
    message = refusal(capsys, "info", path, *HEADS, *options, "--ignore", "neck.*")
    assert "--ignore 'neck.*' fits no array" in message


@pytest.mark.parametrize(
    "command",
    [
        "predict {image} --source {weights}",
        "embed {image} --source {weights} --path x.npy",
        "explain {image} --source {weights} --path x",
        "evaluate {data} --source {weights}",
        "probe {data} --source {weights} --path x",
        "finetune {data} --source {weights} --path x --steps 1 --batch-size 4",
        "export {weights} --path x --format torch",
    ],
)
def test_every_command_reads_a_file_by_the_options_of_info(
    twice, capsys, tmp_path, monkeypatch, command
):
    """The file states no number of heads and holds two encoders."""
    monkeypatch.chdir(tmp_path)
    for k in range(14):  # seven classes
        picture = tmp_path / "data" / f"class_{k % 7}" / f"{k}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((16, 16, 3), 16 * k, "uint8")).save(picture)
    words = command.format(image=picture, data=tmp_path / "data", weights=twice).split()
    assert "--num-heads" in refusal(capsys, *words)
    assert cli.main([*words, *HEADS, "--prefix", "student", "--family", "timm"]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--weights", "mean"), "ema"),
        (("--prefix", "net"), "no array is below --prefix 'net'"),
        (("--prefix", "student", "--weights", "raw"), "--prefix ... or --weights ..., one"),
    ],
)
def test_options_that_fit_nothing_are_named(twice, options, words, capsys):
    assert words in refusal(capsys, "info", twice, *HEADS, *options)


def test_verify_chooses_in_the_first_file_as_the_options_say(twice, capsys, tmp_path):
    """The weights equal a file of them alone, and their average does not."""
    stored = {n: a for n, a in load_file(twice).items() if n.startswith("student.")}
    save_file(stored, tmp_path / "student.safetensors")
    for options, status in ((("--weights", "raw"), 0), (("--weights", "ema"), 1)):
        arguments = ("verify", twice, tmp_path / "student.safetensors", *HEADS, *options)
        assert cli.main([*map(str, arguments)]) == status
        capsys.readouterr()


def test_position_grid_chooses_one_of_two_readings(capsys, tmp_path):
    path = write_shapes(tmp_path / "x.safetensors", timm_shapes(25))
    assert "Choose by --position-grid, the rows" in refusal(capsys, "info", path, "--num-heads", 2)
    grid = ("--position-grid", 4, 6)
    assert facts(capsys, path, "--num-heads", 2, *grid)["resolution"] == "16x24"
    assert "30 cells" in refusal(capsys, "info", path, "--num-heads", 2, "--position-grid", 5, 6)
