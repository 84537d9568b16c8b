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
from importlib import metadata

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import __version__, cli
from keras_vit.presets.catalog import CATALOG
from tests.forks import Nursery
from tests.golden import FOLDER
from tests.processes import python
from tests.runs import times


def run(capsys, *arguments) -> str:
    """Runs a command that must succeed and returns what it printed."""
    assert cli.main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


def test_info_describes_a_checkpoint_file_or_a_preset(capsys):
    """Variant, family, classes, resolution and representation layer."""
    facts = json.loads(run(capsys, "info", "vit_digits", "--json"))
    assert (facts["classes"], facts["family"]) == (10, "keras_vit preset")
    printed = run(capsys, "info", FOLDER / "vit_rep.npz")
    rows = dict(line.split("\t") for line in printed.splitlines())
    assert rows["family"] == "google"
    assert rows["variant"] == "none of the named ones"
    assert (rows["classes"], rows["resolution"]) == ("11", "16x16")
    assert rows["representation layer"] == "16"
    assert "GFLOPs per image" in rows


def test_info_prints_json_with_the_shape_of_every_array(capsys):
    """Facts that the arrays do not determine say which argument to give."""
    facts = json.loads(run(capsys, "info", FOLDER / "hybrid_r50.npz", "--json"))
    assert (facts["stem"], facts["classes"]) == ("[2, 1, 1]", 7)
    assert facts["array_shapes"]["gn_root/scale"] == [1, 1, 1, 32]
    rectangle = json.loads(run(capsys, "info", FOLDER / "vit_gap.npz", "--json"))
    assert rectangle["resolution"] == "undetermined; give image_size on loading"
    assert "GFLOPs per image" not in rectangle


def test_convert_writes_another_family_and_another_image_size(capsys, tmp_path):
    """From a file of the family google."""
    destination = tmp_path / "x.npz"
    run(capsys, "convert", FOLDER / "vit_rep.npz", destination, "--family", "google_linen")
    assert keras_vit.info(destination).family == "google_linen"
    arguments = ("--family", "google", "--image-size", "24", "32")
    run(capsys, "convert", FOLDER / "vit_rep.npz", destination, *arguments)
    assert keras_vit.info(destination, image_size=(24, 32)).config.grid == (6, 8)


def test_predict_takes_files_and_folders(capsys, tmp_path):
    """The answers are printed as a table or as JSON."""
    digit = np.zeros((8, 8), "uint8")
    digit[1:7, 3:5] = 255
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "one.png", tmp_path / "folder" / "two.png"):
        Image.fromarray(digit).save(path)
    sources = (tmp_path / "one.png", tmp_path / "folder", "--source", "vit_digits", "--top", 2)
    answers = json.loads(run(capsys, "predict", *sources, "--json"))
    assert [len(answer) for answer in answers.values()] == [2, 2]
    best = answers[str(tmp_path / "one.png")][0]
    assert best["label"] in "0123456789"
    assert best["label"] in run(capsys, "predict", *sources)


def test_predict_classifies_the_readable_images_and_names_the_others(capsys, tmp_path, monkeypatch):
    """With a damaged image the exit status is 1; progress is shown on a terminal."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for k in range(40):  # more than a batch
        Image.fromarray(np.zeros((8, 8), "uint8")).save(folder / f"{k:02d}.png")
    (folder / "07.png").write_bytes((folder / "07.png").read_bytes()[:40])
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    arguments = ["predict", str(folder), str(folder / "01.png"), "--source", "vit_digits"]
    assert cli.main([*arguments, "--json", "--top", "1"]) == 1
    printed = capsys.readouterr()
    answers = json.loads(printed.out)
    names = [f"{k:02d}.png" for k in range(40) if k != 7]
    assert list(answers) == [str(folder / name) for name in names]
    assert printed.err.count("not a readable image") == 1
    assert "07.png" in printed.err
    assert "images/s" in printed.err


def test_list_prints_presets_and_version_the_release(capsys):
    """As a table and as JSON; options select presets."""
    assert __version__ in run(capsys, "--version")
    heading, *lines = run(capsys, "list", "--variant", "vit_s16").splitlines()
    assert heading.split("\t")[:4] == ["preset", "data", "parameters", "pixels"]
    assert "vit_s16.augreg_i21k_ft_i1k_384\ti21k_ft_i1k\t22196584\t384\t1000\t83.73" in lines[1]
    rows = json.loads(run(capsys, "list", "--json", "--data", "digits"))
    assert [(row["preset"], row["license"]) for row in rows] == [("vit_digits", "Apache-2.0")]


ANSWER = """
import sys
from keras_vit.support import backend
from keras_vit import cli
start, kept = backend.start, []
backend.start = lambda **options: kept.append(start(**options))
assert cli.main(sys.argv[1:]) == 0
assert "absl::InitializeLog" in kept[0], "TensorFlow no longer logs: remove `backend.start`."
"""


COMMANDS = {
    "tensorflow": "predict data/a/0.png --source vit_digits",
    "torch": "finetune data --source vit_digits --path run --steps 1 --batch-size 2",
}


@pytest.mark.on_backend(*COMMANDS)
def test_no_log_of_tensorflow_stands_above_an_answer(tmp_path):
    """Though TensorFlow writes its lines when it is imported; Keras imports it before it saves."""
    for k, name in enumerate("aabb"):
        (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((8, 8), "uint8")).save(tmp_path / "data" / name / f"{k}.png")
    words = COMMANDS[keras.backend.backend()].split()
    # An import of JAX sets the variable to 1 in this process.
    process = python(ANSWER, *words, cwd=tmp_path, TF_CPP_MIN_LOG_LEVEL=None)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith(("image\tlabel\tprobability\n", "model "))


def test_doctor_names_what_killed_downloads_have_left(capsys, monkeypatch, tmp_path):
    """In both caches, with the size, and the line that removes the file; links are left out."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "my cache"))
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "own"))
    blobs = tmp_path / "my cache" / "models--us--vit" / "blobs"
    bucket = tmp_path / "own" / "storage.googleapis.com" / "vit_models"
    for folder in (blobs, bucket):
        folder.mkdir(parents=True)
    (blobs / "whole").touch()
    (blobs / "loop.incomplete").symlink_to("loop.incomplete")
    left = blobs / "0a.12345678.incomplete", bucket / "tmp1a2b3c4d"
    for path in left:
        path.write_bytes(b"x" * 2000)
    rows = json.loads(run(capsys, "doctor", "--json"))
    rows = [row for row in rows if row["kind"] == "unfinished download"]
    assert [(row["name"], row["version"]) for row in rows] == [
        (p.name, "2,000 bytes") for p in left
    ]
    lines = [f"unless a download runs: rm {shlex.quote(str(path))}" for path in left]
    assert [row["note"] for row in rows] == lines


def test_doctor_lists_backends_extras_and_versions(capsys):
    """The row of the backend that is used says why."""
    rows = {row["name"]: row for row in json.loads(run(capsys, "doctor", "--json"))}
    assert rows["keras"]["version"] == metadata.version("keras")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    assert rows[backend]["note"].startswith("used: ")
    assert {"torch", "jax", "matplotlib", "processor"} <= set(rows)


def test_long_paths_are_printed_in_full(capsys, tmp_path, monkeypatch):
    """Without a terminal as tab-separated lines, and on a terminal too."""
    image = tmp_path / ("x" * 120 + ".png")
    Image.fromarray(np.zeros((8, 8), "uint8")).save(image)
    arguments = ("predict", image, "--source", "vit_digits", "--top", 1)
    heading, line = run(capsys, *arguments).splitlines()
    assert heading == "image\tlabel\tprobability"
    assert line.startswith(f"{image}\t")
    monkeypatch.setattr(cli.console.console, "_force_terminal", True)
    printed = run(capsys, *arguments)
    assert str(image) in re.sub(r"\s|\x1b\[[0-9;]*m", "", printed) or "…" not in printed


@pytest.mark.parametrize("command", cli._COMMANDS, ids=lambda command: command.__name__)
def test_the_example_of_a_help_can_be_typed(capsys, command):
    """Its options exist, and its presets too; a paragraph of the help is wrapped as one."""
    name = command.__name__.rstrip("_")
    assert cli.main([name, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    (words,) = re.findall("Example: keras-vit (.*)", command.__doc__)
    assert f"Example: keras-vit {words}" in printed
    typed, bound, _ = cli.app.parse_args(words.split(), exit_on_error=False)
    assert typed is command
    presets = [bound.arguments.get(key) for key in ("preset", "source")]
    for preset in presets:
        assert preset in (None, "run/best") or preset in CATALOG


def test_a_table_on_a_narrow_terminal_folds_no_name(capsys, monkeypatch):
    """Nor a number, whose thousands have separators there."""
    monkeypatch.setattr(cli.console.console, "_force_terminal", True)
    monkeypatch.setattr(cli.console.console, "_width", 60)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", run(capsys, "list", "--variant", "vit_s16")).splitlines()
    row = next(line for line in lines if line.startswith("vit_s16.augreg_i21k_ft_i1k_384 "))
    assert row.split()[1:6] == ["i21k_ft_i1k", "22,196,584", "384", "1,000", "83.73"]


def test_notes_are_one_line_and_other_libraries_log_nothing(capsys, monkeypatch):
    """Warnings and log lines; afterwards all is as it was."""
    from keras_vit.support.text import log, warn

    def noisy(*arguments, **named):
        warn("a warning")
        log.warning("a line of %s", "log")
        logging.getLogger("a.stranger").warning("a stranger's line")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("keras_vit.cli.models.show", noisy)
    before = warnings.showwarning, logging.lastResort.level, log.handlers.copy()
    assert cli.main(["list", "--data", "digits"]) == 2
    notes = ["a warning", "a line of log", "list: No space left on device."]
    assert capsys.readouterr().err.splitlines() == [f"keras-vit: {note}" for note in notes]
    assert before == (warnings.showwarning, logging.lastResort.level, log.handlers)


def test_a_line_of_log_is_one_note_beside_a_handler_of_the_root_logger(capsys, monkeypatch):
    """Which absl installs, for JAX and TensorFlow."""
    from keras_vit.support.text import log

    monkeypatch.setattr("keras_vit.cli.models.show", lambda *_: log.warning("a line"))
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler()])
    assert cli.main(["list", "--data", "digits"]) == 0
    assert capsys.readouterr().err == "keras-vit: a line\n"
    assert log.propagate


@pytest.mark.parametrize(
    ("of_python", "of_the_shell"),
    [
        ("Continue with resume=True.", "Continue with --resume."),
        ("It needs image_size=.", "It needs --image-size."),
        ("image_size=(24, 32): too large", "--image-size 24 32: too large"),
        ("pixel_range=(5.0, -5e-1), expected", "--pixel-range 5.0 -5e-1, expected"),
        (
            "labels_file='x y.csv', batch_size=-1: no",
            "--labels-file 'x y.csv', --batch-size -1: no",
        ),
        ("learning_rate=0.1 and one_hot=True", "--learning-rate 0.1 and one_hot=True"),
        ("my_labels=3", "my_labels=3"),
        ('labels_file="a b", image_size=...', '--labels-file "a b", --image-size ...'),
        ("batch_size must be 1", "--batch-size must be 1"),
        ("Choose read={'batch_size': 'a b'}.", "Choose --batch-size 'a b'."),
        ("read={'resume': True} or read={'seed': 1}", "--resume or read={'seed': 1}"),
        ("The labels must be words", "The labels must be words"),
    ],
)
def test_an_error_names_the_options_of_its_command(of_python, of_the_shell):
    """An argument without an option keeps its name."""
    words = "resume image-size pixel-range labels-file batch-size learning-rate"
    options = [f"--{word}" for word in words.split()]
    assert cli.in_words_of_the_shell(of_python, options) == of_the_shell


QUICK = """
import sys
def refuse(event, arguments):
    assert event not in ("socket.connect", "socket.getaddrinfo"), arguments
sys.addaudithook(refuse)
from keras_vit.cli import main
status = main(sys.argv[1:])
assert status == 2, status
assert not {"keras", "jax", "torch", "tensorflow"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def without_keras():
    """Runs programs in forks of a process that has imported the command line alone."""
    process = Nursery("keras_vit.cli keras_vit.checkpoints")
    yield process
    process.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("predict {image} --source vit_b16", "is an architecture, not a preset. Its presets: vit"),
        ("predict x.png --source vit_digits --top 0", '"0" for --top. Must be >= 1.'),
        ("predict https://a.b/c.jpg --source x", "Fetch it: curl -LO 'https://a.b/c.jpg'"),
        ("list --resolution 225", "--resolution 225: no preset has it."),
        ("predict photos/ d.png --source vit_b16.augreg_i21k_224", "photos, d.png: no such file"),
        ("predict {image} --source vit_b61", "Did you mean 'vit_b16'? Its presets: vit_b"),
        ("predict {image} --source vit_s14.dinov2", "embed writes its features; probe fits"),
        ("explain {image} --source vit_s14.dinov2", "embed writes its features; probe fits"),
        ("explain {image} --source vit_digits --path {image}", "expected a folder for the results"),
        ("embed {image} --source vit_digits --path x.txt", "expected a name that ends in .npy"),
        ("embed {image} --source vit_digits --path {image}", "expected a name that ends in .npy"),
        ("embed {image} --source vit_digits --path x.npy --pooling mean", "token_and_mean"),
        ("embed {image} --source vit_digits --path x.npy --dtype int8", "mixed_bfloat16"),
        ("embed {image} --source vit_digits --path x.npy --output-dtype int8", "float16"),
        ("evaluate nowhere --source vit_digits", "nowhere: expected a folder with a folder of"),
        ("evaluate {here} --source vit_digits --labels-file x.csv", "'x.csv': no such table"),
        ("evaluate {here} --source vit_digits --split test", "a folder has no split 'test'"),
        ("probe nowhere --source vit_digits --path y", "nowhere: expected a folder with a folder"),
        ("probe {here} --source vit_digits --path {here}/y", "lies in the folder of the images"),
        ("probe {here} --source vit_digits --path {here}", "lies in the folder of the images"),
        ("finetune {here} --source vit_digits --path {here}/y", "y' lies in the folder of"),
        ("export vit_digits --path {image}", "expected a folder for the results, found a file"),
        ("export vit_digits --path y --calibration nowhere", "nowhere: no such file or folder"),
        ("serve no_such", "no_such' is no preset"),
        ("serve vit_digits --port 70000", "--port 70000: the server cannot listen"),
        ("verify no_such", "no_such' is no preset"),
        ("verify vit_digits no_such", "no_such' is no preset"),
        ("finetune nowhere --source vit_digits --path y", "nowhere: expected a folder with a"),
        ("finetune {here} --source vit_digits --path {here}", "training in it with --resume."),
        ("finetune {here} --source vit_digits --path ../y --validation nowhere", "nowhere: "),
        ("demo --path {image}", "expected a folder for the results, found a file"),
        ("finetune x --source x --path y --image-size 1 2 3", "--image-size accepts at most 2"),
        ("finetune x --source x --path y --augmentation ligt1", 'Did you mean "light1"'),
        (
            "finetune {here} --source vit_digits --path ../y --label-smoothing 1",
            "smoothing must be",
        ),
        ("finetune {here}/.. --from-scratch vit_ti61 --path ../../y", "Did you mean 'vit_ti16'"),
        ("finetune x --path y", "Exactly 1 of {--source, --from-scratch} must be specified"),
        ("finetune {here}/cat --source vit_digits --path y", "found no folder. Labels in a table"),
        ("evaluate {here}/cat --source vit_digits", "are given by --labels-file."),
        ("finetune {here} --source vit_digits --path {image}/y", "written (Not a directory)"),
        ("probe {here} --source vit_digits --path {image}/y", "written (Not a directory)"),
        ("embed {image} --source vit_digits --path {image}/y.npy", "written (Not a directory)"),
        ("explain {image} --source vit_digits --path {image}/y", "written (Not a directory)"),
        ("export vit_digits --path {image}/y", "written (Not a directory)"),
        ("convert vit_digits {image}/y --family timm", "written (Not a directory)"),
        (
            "predict {image}",
            '"predict" parameter --source requires an argument. Example: keras-vit',
        ),
        ("predict {image} --preset x", "Did you mean --source? Example: keras-vit predict photos/"),
        ("export --source x", "Did you mean SOURCE?"),
        ("finetune x --lr 0.1", "unknown option --lr. Did you mean --learning-rate?"),
        ("finetune x --wieght_decay=1", "Did you mean --weight-decay?"),
        ("finetune x --label-smooth 1", "Did you mean --label-smoothing?"),
        ("finetune x --epochs 3", "Did you mean --steps?"),
        ("train x", "unknown command train. Did you mean finetune?"),
        ("embed {image} --source no_such --path y.npy", "no_such' is no preset"),
        ("convert vit_digits x.npz --family gogle", "Did you mean 'google'"),
    ],
)
def test_bad_arguments_are_refused_before_a_backend_is_imported(
    arguments, message, tmp_path, without_keras
):
    """The process ends with status 2, has opened no connection, and imported no Keras."""
    image = tmp_path / "cat" / "digit.png"
    image.parent.mkdir()
    Image.fromarray(np.zeros((8, 8), "uint8")).save(image)
    words = arguments.format(image=image, here=tmp_path)
    process = without_keras.run("-c", QUICK, *words.split(), cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert message in " ".join(process.stderr.split())
    assert sorted(tmp_path.rglob("*")) == [image.parent, image]


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted. The same command goes on where it stopped."),
        (OSError(28, "No space left on device"), 2, "embed: No space left on device: y.npy."),
        (PermissionError(13, "Permission denied", "/x"), 2, "embed: Permission denied: /x."),
        (MemoryError(), 2, "embed: not enough memory"),
    ],
    ids=["interrupt", "space", "permission", "memory"],
)
def test_system_errors_are_printed_in_one_line(capsys, monkeypatch, raised, status, message):
    """The line names the command and the file, or how to continue."""

    def fail(*arguments, **named):
        raise raised

    monkeypatch.setattr("keras_vit.cli.images.image_files", fail)
    arguments = ["embed", "x.png", "--source", "vit_digits", "--path", "y.npy"]
    assert cli.main(arguments) == status
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_ctrl_c_in_a_callback_of_the_garbage_collector_ends_the_command(capsys, monkeypatch):
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
    arguments = ["predict", "x.png", "--source", "vit_digits"]
    # A shell starts programs in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(arguments) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    printed = capsys.readouterr().err
    assert "interrupted." in printed
    assert printed.count("\n") == 1
    assert sys.unraisablehook is hook


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "absent.npz"), "is no preset, and no existing file or folder"),
        (("info", str(FOLDER / "README.md")), "no npz (zip)"),
        (("predict", str(FOLDER), "--source", "vit_digits"), "no image in this folder"),
        (("predict", "", "--source", "vit_digits"), "expected the path of an image or of a folder"),
        (("evaluate", "hf:", "--source", "vit_digits"), "hf:: expected a folder"),
        (("info", ""), "'' is no preset, and no existing file or folder"),
    ],
)
def test_user_errors_print_one_line_and_exit_with_status_2(capsys, arguments, message):
    """An error that a user can correct has no traceback."""
    assert cli.main(list(arguments)) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


DEMO = f"""
import sys
from keras_vit import cli
from keras_vit.cli import demo
digits, count = demo._digits, {times(700, 2000)}
demo._digits = lambda: tuple(part[:count] for part in digits())
sys.exit(cli.main(sys.argv[1:]))
"""
"""The demo, in `make test` with half of the training images."""


def test_demo_predicts_fine_tunes_saves_reloads_and_explains(tmp_path, nursery):
    """Accuracy rises by over 30 points, and the reloaded preset gives the same answers."""
    process = nursery.run("-c", DEMO, "demo", "--path", tmp_path)
    assert process.returncode == 0, process.stderr
    printed = process.stdout
    before, after = printed.split("% right before")[0].split()[-1], printed.split("% after")[0]
    assert float(after.split()[-1]) > float(before) + 30
    assert float(printed.split("largest difference of a probability: ")[1].split()[0]) < 1e-4
    assert "What the model sees" in (tmp_path / "index.html").read_text()
    assert keras_vit.info(tmp_path / "vit_digits_odd_even").config.num_classes == 2
