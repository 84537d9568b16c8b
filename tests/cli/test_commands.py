"""The command line, called as a user calls it."""

import gc
import json
import logging
import os
import re
import shlex
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import __version__, cli
from keras_vit.cli import demo
from keras_vit.presets.catalog import CATALOG
from keras_vit.support.text import log, warn
from tests.golden import FOLDER
from tests.processes import python
from tests.runs import THOROUGH

PREDICT = "predict {path} --source vit_digits --top"
TABLES = {
    "--version": __version__,
    f"info {FOLDER}/vit_rep.npz": "variant\tcustom",
    "list --variant vit_s16": "vit_s16.augreg_i21k_ft_i1k_384\ti21k_ft_i1k\t22196584\t384\t1000",
    # Without a terminal long paths are printed in full, as tab-separated lines.
    f"{PREDICT} 1": f"image\tlabel\tprobability\n{{path}}/{'x' * 120}.png\t",
}
"""Command lines, and what they print as text."""
REPRESENTED = {"family": "google", "classes": 11, "resolution": "16x16"}
FACTS = {
    "info vit_digits": {"classes": 10, "family": "keras_vit preset"},
    f"info {FOLDER}/vit_rep.npz": {**REPRESENTED, "representation layer": 16},
    f"info {FOLDER}/hybrid_r50.npz": {"stem": "[2, 1, 1]", "classes": 7},
    # Facts that the arrays do not determine say which argument to give.
    f"info {FOLDER}/vit_gap.npz": {"resolution": "unknown; pass image_size when loading"},
}
"""Command lines, and facts of their JSON."""


@pytest.fixture
def digit(tmp_path):
    """An image with a long name."""
    pixels = np.zeros((8, 8), "uint8")
    pixels[1:7, 3:5] = 255
    path = tmp_path / f"{'x' * 120}.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize("line", TABLES)
def test_a_command_prints_its_answer(line, run, tmp_path, digit):
    assert TABLES[line].format(path=tmp_path) in run(*line.format(path=tmp_path).split()).out


@pytest.mark.parametrize("line", FACTS)
def test_info_prints_json(line, run):
    """With the shape of every array; the arithmetic needs a known resolution."""
    found = json.loads(run(*line.split(), "--json").out)
    assert FACTS[line].items() <= found.items()
    assert ("GFLOPs per image" in found) == ("unknown" not in found["resolution"])
    if "stem" in FACTS[line]:
        assert found["array_shapes"]["gn_root/scale"] == [1, 1, 1, 32]


def test_convert_writes_another_family_and_another_image_size(run, tmp_path):
    convert, file = ("convert", FOLDER / "vit_rep.npz", tmp_path / "x.npz"), tmp_path / "x.npz"
    run(*convert, "--family", "google_linen")
    assert keras_vit.info(file).family == "google_linen"
    run(*convert, "--family", "google", "--image-size", 24, 32)
    assert keras_vit.info(file, image_size=(24, 32)).config.grid == (6, 8)


def test_predict_takes_files_and_folders_and_names_what_it_cannot_read(
    run, tmp_path, digit, monkeypatch
):
    """With a damaged image the exit status is 1; progress is shown on a terminal."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for k in range(40):  # more than a batch
        (folder / f"{k:02d}.png").write_bytes(digit.read_bytes())
    (folder / "07.png").write_bytes(digit.read_bytes()[:40])
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    command = ("predict", digit, folder, folder / "01.png", "--source", "vit_digits")
    printed = run(*command, "--json", "--top", 2, status=1)
    answers = json.loads(printed.out)
    names = [f"{k:02d}.png" for k in range(40) if k != 7]
    assert list(answers) == [str(digit), *(str(folder / name) for name in names)]
    for answer in answers.values():
        assert len(answer) == 2 and answer[0]["label"] in "0123456789"
    assert printed.err.count("not a readable image") == 1
    assert "07.png" in printed.err and "images/s" in printed.err


def test_list_prints_what_options_select(run, monkeypatch):
    """As JSON, and on a narrow terminal, where neither a name nor a number is folded."""
    rows = json.loads(run("list", "--json", "--data", "digits").out)
    assert [(row["preset"], row["license"]) for row in rows] == [("vit_digits", "Apache-2.0")]
    monkeypatch.setattr(cli.console.console, "_force_terminal", True)
    monkeypatch.setattr(cli.console.console, "_width", 60)
    text = re.sub(r"\x1b\[[0-9;]*m", "", run("list", "--variant", "vit_s16").out)
    (row,) = re.findall(r"^vit_s16.augreg_i21k_ft_i1k_384 (.*)$", text, re.MULTILINE)
    assert row.split()[:5] == ["i21k_ft_i1k", "22,196,584", "384", "1,000", "83.73"]


def test_doctor_lists_versions_and_what_killed_downloads_have_left(run, monkeypatch, tmp_path):
    """Backends and extras; and in both caches files with the line that removes them, but links."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "my cache"))
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "own"))
    blobs = tmp_path / "my cache" / "models--us--vit" / "blobs"
    bucket = tmp_path / "own" / "storage.googleapis.com" / "vit_models"
    for folder in (blobs, bucket):
        folder.mkdir(parents=True)
    (blobs / "loop.incomplete").symlink_to("loop.incomplete")
    left = blobs / "0a.12345678.incomplete", bucket / "tmp1a2b3c4d"
    for path in left:
        path.write_bytes(b"x" * 2000)
    rows = {row["name"]: row for row in json.loads(run("doctor", "--json").out)}
    assert rows[os.environ.get("KERAS_BACKEND", "tensorflow")]["note"].startswith("used: ")
    assert {"keras", "torch", "jax", "matplotlib", "processor"} <= set(rows)
    unfinished = [row for row in rows.values() if row["kind"] == "unfinished download"]
    assert [(row["name"], row["version"], row["note"]) for row in unfinished] == [
        (path.name, "2,000 bytes", f"unless a download runs: rm {shlex.quote(str(path))}")
        for path in left
    ]


REINSTALL = "pip install --force-reinstall --no-deps keras-vit-zoo"


def test_doctor_names_the_other_project_that_is_imported_as_keras_vit(tmp_path):
    """It runs where `keras_vit/__init__.py` is the other project's, and starts no backend."""
    mixed, metadata = tmp_path / "keras_vit", tmp_path / "keras_vit-1.0.1.dist-info" / "METADATA"
    for folder in (mixed, metadata.parent):
        folder.mkdir()
    metadata.write_text("Name: keras-vit\nVersion: 1.0.1\n")
    for path in Path(keras_vit.__file__).parent.iterdir():
        if path.name != "__init__.py":
            (mixed / path.name).symlink_to(path)
    (mixed / "__init__.py").write_text('__version__ = "1.0.0"\n')
    code = "from keras_vit import cli; cli.main(['doctor'])"
    found = python(code, cwd=tmp_path, PYTHONPATH=str(tmp_path), KERAS_BACKEND="jax")
    (row,) = re.findall("^conflict.*", found.stdout, re.MULTILINE)
    assert row.split("\t")[1:3] == ["keras-vit", "1.0.1"]
    assert row.endswith(f"; pip uninstall keras-vit, then {REINSTALL}")


def test_doctor_says_what_to_install_after_the_other_project_was_removed(run, monkeypatch):
    """With the file `keras_vit/__init__.py`; the namespace that is left has no names."""
    assert "conflict" not in run("doctor").out
    monkeypatch.delattr(keras_vit, "__all__")
    (row,) = re.findall("^conflict.*", run("doctor").out, re.MULTILINE)
    assert row.endswith(f"not installed\tit took keras_vit/__init__.py with it; {REINSTALL}")


@pytest.mark.parametrize("command", cli._COMMANDS, ids=lambda command: command.__name__)
def test_the_example_of_a_help_can_be_typed(run, command):
    """Its options exist, and its presets too."""
    (words,) = re.findall("Example: keras-vit (.*)", command.__doc__)
    printed = " ".join(run(command.__name__.rstrip("_"), "--help").out.split())
    assert f"Example: keras-vit {words}" in printed
    typed, bound, _ = cli.app.parse_args(words.split(), exit_on_error=False)
    assert typed is command
    for preset in (bound.arguments.get(key) for key in ("preset", "source")):
        assert preset in (None, "run/best") or preset in CATALOG


def test_notes_are_one_line_and_other_libraries_log_nothing(run, monkeypatch):
    """Also beside a handler of the root logger, as absl's; afterwards all is as it was."""

    def noisy(*arguments, **named):
        warn("a warning")
        log.warning("a line of %s", "log")
        logging.getLogger("a.stranger").warning("a stranger's line")

    monkeypatch.setattr("keras_vit.cli.models.show", noisy)
    notes = "keras-vit: a warning\nkeras-vit: a line of log\n"
    before = warnings.showwarning, log.handlers.copy(), log.propagate
    for handlers in ([], [logging.StreamHandler()]):
        monkeypatch.setattr(logging.root, "handlers", handlers)
        monkeypatch.setattr(logging.getLogger("a.stranger"), "disabled", bool(handlers))
        assert run("list", "--data", "digits").err == notes
    assert before == (warnings.showwarning, log.handlers, log.propagate)


WORDS = {
    "Continue with resume=True.": "Continue with --resume.",
    "pixel_range=(5.0, -5e-1), expected": "--pixel-range 5.0 -5e-1, expected",
    "learning_rate=0.1 and one_hot=True": "--learning-rate 0.1 and one_hot=True",
    "read={'resume': True} or read={'seed': 1}": "--resume or read={'seed': 1}",
}


@pytest.mark.parametrize("of_python", WORDS)
def test_an_error_names_the_options_of_its_command(of_python):
    """An argument without an option keeps its name."""
    options = ("--resume", "--pixel-range", "--learning-rate")
    assert cli.in_words_of_the_shell(of_python, options) == WORDS[of_python]


def test_ctrl_c_in_a_callback_of_the_garbage_collector_ends_the_command(run, monkeypatch):
    """Python prints and ignores an exception there; the command is interrupted a moment later."""

    def interrupt(phase, info):
        gc.callbacks.remove(interrupt)
        raise KeyboardInterrupt

    def collect(*arguments, **named):
        gc.callbacks.append(interrupt)
        gc.collect()
        time.sleep(5)

    monkeypatch.setattr("keras_vit.cli.images.image_files", collect)
    hook = sys.unraisablehook
    # A shell starts programs in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        said = run("predict", "x.png", "--source", "vit_digits", status=130).err
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted." in said and said.count("\n") == 1
    assert sys.unraisablehook is hook


def test_demo_predicts_fine_tunes_saves_reloads_and_explains(run, tmp_path, monkeypatch):
    """Accuracy rises by over 30 points, and the reloaded preset gives the same answers."""
    digits, count = demo.load_digits, None if THOROUGH else 128
    monkeypatch.setattr(demo, "load_digits", lambda: tuple(part[:count] for part in digits()))
    printed = run("demo", "--path", tmp_path).out
    before, after = printed.split("% right before")[0].split()[-1], printed.split("% after")[0]
    rise = float(after.split()[-1]) - float(before)
    assert rise > 30 or not THOROUGH
    assert float(printed.split("largest difference of a probability: ")[1].split()[0]) < 1e-4
    assert "What the model sees" in (tmp_path / "index.html").read_text()
    assert keras_vit.info(tmp_path / "vit_digits_odd_even").config.num_classes == 2


def test_demo_writes_images_to_practise_on(run, tmp_path):
    """A folder of each class and part; vit_digits, which has seen those of train, reads them."""
    images = tmp_path / "digits"
    assert "1437 images in train, 360 in test" in run("demo", "--images", images).out
    files = sorted(images.rglob("*.png"))
    assert {path.parent.relative_to(images).as_posix() for path in files} == {
        "train/even", "train/odd", "test/even", "test/odd"
    }  # fmt: skip
    assert len(files) == 1797
    few = files[:20]
    model = keras_vit.VisionTransformer.from_preset("vit_digits")
    pairs = zip(model.classify(few, top=1), few, strict=True)
    assert all(int(label) % 2 == ("odd" in str(path)) for [(label, _)], path in pairs)
    refused = run("demo", "--images", images, status=2).err
    assert "not overwritten: it contains test, train" in refused
