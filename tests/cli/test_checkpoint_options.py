"""Options that choose the arrays of a checkpoint: `--prefix`, `--weights`, `--ignore`."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from tests.checkpoints.files import timm_shapes, write_arrays, write_shapes
from tests.golden import FOLDER

HEADS = ("--num-heads", "3")


@pytest.fixture
def twice(tmp_path):
    """A file of weights and their average, whose student has another class token."""
    arrays = load_file(FOLDER / "timm_token" / "model.safetensors")
    student = {**arrays, "cls_token": arrays["cls_token"] + 1}
    parts = (("student.", student), ("teacher.", arrays), ("", {"odd.weight": (5,)}))
    return write_arrays(tmp_path / "x.safetensors", *parts)


OPTIONS = {"": "teacher", "--weights ema": "teacher", "--weights raw": "student"}
OPTIONS |= {f"--prefix student{dot}": "student" for dot in ("", ".")}


@pytest.mark.parametrize("options", OPTIONS)
def test_info_convert_and_verify_read_the_weights_that_options_name(twice, options, run, tmp_path):
    """The weights equal a file of them alone, and their average does not."""
    prefix, given = f"{OPTIONS[options]}.", (*HEADS, *options.split())
    assert json.loads(run("info", twice, *given, "--json").out)["prefix"] == prefix
    run("convert", twice, tmp_path / "y", "--family", "timm", *given)
    converted, stored = load_file(tmp_path / "y" / "model.safetensors"), load_file(twice)
    np.testing.assert_array_equal(converted["cls_token"], stored[f"{prefix}cls_token"])
    arrays = {name: a for name, a in stored.items() if name.startswith("student.")}
    save_file(arrays, tmp_path / "student.safetensors")
    differs = prefix != "student."
    run("verify", twice, tmp_path / "student.safetensors", *given, status=int(differs))


def test_ignore_takes_names_and_patterns_and_position_grid_a_reading(run, tmp_path):
    arrays = load_file(FOLDER / "timm_token" / "model.safetensors")
    extras = {"blocks.0.gate.weight": (24,), "scale": (24,), "decoder.a.weight": (3,)}
    path = write_arrays(tmp_path / "x.safetensors", ("", arrays), ("", extras))
    assert "unexpected" in run("info", path, *HEADS, status=2).err
    options = ("--ignore", "scale", "--ignore", "blocks.*.gate.*", "--ignore", "decoder.*")
    found = json.loads(run("info", path, *HEADS, *options, "--json").out)
    assert found["ignored"] == dict.fromkeys(extras, "ignored by the caller")
    path = write_shapes(tmp_path / "grid.safetensors", timm_shapes(25))
    found = run("info", path, "--num-heads", 2, "--position-grid", 4, 6, "--json").out
    assert json.loads(found)["resolution"] == "16x24"


COMMANDS = (
    "predict {image} --source {weights}",
    "embed {image} --source {weights} --path x.npy",
    "explain {image} --source {weights} --path x",
    "evaluate {data} --source {weights}",
    "probe {data} --source {weights} --path x",
    "finetune {data} --source {weights} --path x --steps 1 --batch-size 4",
    pytest.param("export {weights} --path x --format torch", marks=pytest.mark.nightly),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_a_file_by_the_options_of_info(
    twice, run, tmp_path, monkeypatch, command
):
    """The file states no number of heads and holds two encoders."""
    monkeypatch.chdir(tmp_path)
    for k in range(14):  # seven classes
        picture = tmp_path / "data" / f"class_{k % 7}" / f"{k}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((16, 16, 3), 16 * k, "uint8")).save(picture)
    words = command.format(image=picture, data=tmp_path / "data", weights=twice).split()
    assert "--num-heads" in run(*words, status=2).err
    run(*words, *HEADS, "--prefix", "student", "--family", "timm")
