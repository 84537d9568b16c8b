"""`keras-vit embed` and `keras-vit evaluate`, called as a user calls them."""

import json
import signal

import numpy as np
import pytest

from keras_vit import VisionTransformer, cli, evaluate
from keras_vit.data import from_folder
from keras_vit.evaluation import features
from tests.digits import digits, write_folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """120 training digits and 80 test digits of 8x8 pixels."""
    root = tmp_path_factory.mktemp("digits")
    write_folders(root, train=120, test=80, size=8)
    return root


def run(capsys, *arguments, status=0):
    """Runs a command; returns its output on stdout and stderr."""
    assert cli.main([str(a) for a in arguments]) == status
    return capsys.readouterr()


def test_a_model_of_numbers_is_refused_where_classes_are_needed(capsys, folder, tmp_path):
    """`embed --stage logits`, which the message names, writes the numbers."""
    model = VisionTransformer.from_preset("vit_digits", num_classes=2, task="regression")
    model.get_layer("head").bias.assign([2.0, 3.0])
    model.save_to_preset(tmp_path / "numbers")
    image = next(folder.rglob("*.png"))
    from_numbers = ("--source", tmp_path / "numbers")
    for command in ("predict", "explain"):
        told = run(capsys, command, image, *from_numbers, status=2).err
        assert f"{command} needs classes" in told
        assert "embed --stage logits" in told
    path = tmp_path / "numbers.npy"
    run(capsys, "embed", image, *from_numbers, "--path", path, "--stage", "logits")
    expected = model.predict(model.preprocessor([image]), verbose=0)
    np.testing.assert_allclose(np.load(path), expected, atol=1e-6)


def test_evaluate_prints_the_scores_of_the_function_evaluate(capsys, folder):
    """As a table, with a row per class by `--classes`, and as JSON."""
    model = VisionTransformer.from_preset("vit_digits")
    images, labels = digits()[1][:80], digits()[3][:80]
    expected = evaluate(model, (images, labels))
    command = ("evaluate", folder / "test", "--source", "vit_digits")
    printed = run(capsys, *command, "--classes").out
    assert f"{expected.top1:.2%}" in printed
    assert all(f"\n{digit}\t" in printed for digit in range(10))
    scores = json.loads(run(capsys, *command, "--json").out)
    assert np.isclose(scores["loss"], expected.loss, rtol=1e-4)
    assert scores["class_counts"] == list(expected.class_counts)
    assert (scores["top1"], scores["class_names"]) == (
        expected.top1,
        [str(k) for k in range(10)],
    )


def test_evaluate_names_unknown_classes_and_unreadable_images(capsys, folder, tmp_path):
    """A split given for a folder is refused too; `--on-error` leaves images out."""
    train, _ = write_folders(tmp_path / "loops", dict.fromkeys(range(10), "loop").get, train=5)
    printed = run(capsys, "evaluate", train, "--source", "vit_digits", status=2).err
    assert "'loop' fits none" in printed
    command = ("evaluate", folder / "test", "--source", "vit_digits", "--split", "test")
    assert "a folder has no split" in run(capsys, *command, status=2).err

    few, _ = write_folders(tmp_path / "few", train=40, test=1, size=8)
    damaged = sorted(few.rglob("*.png"))[3]
    damaged.write_bytes(damaged.read_bytes()[:40])
    assert damaged.name in run(capsys, "evaluate", few, "--source", "vit_digits", status=2).err
    command = ("evaluate", few, "--source", "vit_digits", "--on-error", "skip", "--json")
    printed = run(capsys, *command, status=1)
    assert json.loads(printed.out)["count"] == 39
    assert printed.err.startswith("keras-vit: ")  # a note of one line, with no place in a program
    assert (printed.err.count("\n"), damaged.name in printed.err) == (1, True)


def test_embed_writes_the_features_of_a_folder(capsys, folder, tmp_path, monkeypatch):
    """One row per image, in the order of the sorted paths; progress is shown on a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    out = tmp_path / "out.npy"
    command = ("embed", folder / "test", "--source", "vit_digits", "--path", out)
    printed = run(capsys, *command, "--stage", "block_1", "--batch-size", 16)
    assert "images/s" in printed.err
    paths = json.loads((tmp_path / "out.npy.json").read_text())["paths"]
    assert paths == sorted(map(str, folder.glob("test/*/*.png")))
    model = VisionTransformer.from_preset("vit_digits")
    data = from_folder(folder / "test", model, batch_size=16)
    expected = features(model, data, "block_1").values
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-4)
    assert "exists. Remove it" in run(capsys, *command, status=2).err


def test_commands_load_the_model_as_their_options_say(capsys, folder, tmp_path):
    """Type, size, pooling and the type of the numbers; a bad choice loads no model."""
    how = ("--source", "vit_digits", "--dtype", "mixed_bfloat16", "--image-size", 12)
    model = VisionTransformer.from_preset("vit_digits", dtype="mixed_bfloat16", image_size=12)
    data = from_folder(folder / "test", model)
    out = tmp_path / "x.npy"
    written = ("--pooling", "token_and_mean", "--output-dtype", "float16", "--path", out)
    run(capsys, "embed", folder / "test", *how, *written)
    expected = features(model, data, pooling="token_and_mean", output_dtype="float16").values
    assert np.load(out).dtype == np.float16
    np.testing.assert_allclose(np.load(out), expected, rtol=0.02, atol=0.02)
    scores = json.loads(run(capsys, "evaluate", folder / "test", *how, "--json").out)
    assert scores["top1"] == evaluate(model, data).top1
    path = sorted(folder.glob("test/*/*.png"))[0]
    (answer,) = json.loads(run(capsys, "predict", path, *how, "--json").out).values()
    assert answer[0]["label"] == model.classify([path])[0][0][0]
    run(capsys, "probe", folder / "test", *how, "--path", tmp_path / "probe")
    probed = json.loads((tmp_path / "probe" / "preset" / "config.json").read_text())
    assert probed["config"]["image_size"] == [12, 12]
    page = (tmp_path / "probe" / "index.html").read_text()
    assert "<title>vit_digits on test</title>" in page


def test_embed_names_unreadable_images(capsys, tmp_path):
    """The other images are written, and the exit status is 1."""
    few, _ = write_folders(tmp_path / "few", train=20, test=1, size=8)
    damaged = sorted(few.rglob("*.png"))[3]
    damaged.write_bytes(damaged.read_bytes()[:40])
    command = ("embed", few, "--source", "vit_digits", "--path", tmp_path / "x.npy")
    printed = run(capsys, *command, status=1)
    assert printed.err.count("not a readable image") == 1
    assert damaged.name in printed.err
    assert "19 images" in printed.out
    assert len(np.load(tmp_path / "x.npy")) == 19


KILLED = """
import os, signal, sys
from keras_vit.cli import main
from keras_vit.evaluation import parts

def sync(stream):
    stream.truncate(stream.tell() - 9)  # of the rows that no record counts yet
    os.kill(os.getpid(), signal.SIGKILL)

class Killed(parts.Parts):
    def _write(self):
        if self.inputs >= int(sys.argv[1]):
            parts._sync = sync
        super()._write()

parts._SECONDS = 0.0
from keras_vit.evaluation import embedding
embedding.Parts = Killed
main(sys.argv[2:])
"""


def killed(nursery, arguments, out, images):
    """Kills a command while it writes `images` images; returns the number written before."""
    process = nursery.run("-c", KILLED, images, *arguments)
    assert process.returncode == -signal.SIGKILL, process.stderr
    record = out.with_name(out.name + ".part") / "record.json"
    return json.loads(record.read_text())["inputs"]


def test_a_killed_embed_resumes_and_writes_the_same_bytes(capsys, folder, tmp_path, nursery):
    """It is killed twice and resumes each time after the images recorded before."""
    command = ("embed", folder / "train", "--source", "vit_digits", "--batch-size", 2, "--path")
    run(capsys, *command, tmp_path / "whole.npy")
    out, before = tmp_path / "x.npy", 0
    for images in np.random.default_rng(0).integers(2, 50, 2).cumsum().tolist():
        process = killed(nursery, (*command, out), out, images)
        assert before < process < images
        assert not out.exists()
        before = process
    run(capsys, *command, out)
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert not list(tmp_path.glob("*.part*"))
