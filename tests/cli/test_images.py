"""`keras-vit embed` and `keras-vit evaluate`, called as a user calls them."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, evaluate
from keras_vit.data import from_folder
from keras_vit.evaluation import features
from tests.digits import digits, write_folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """120 training digits and 80 test digits of 8x8 pixels."""
    root = tmp_path_factory.mktemp("digits")
    write_folders(root, train=120, test=80, size=8)
    return root


def test_a_model_of_numbers_is_refused_where_classes_are_needed(run, folder, tmp_path):
    """`embed --stage logits`, which the message names, writes the numbers."""
    model = VisionTransformer.from_preset("vit_digits", num_classes=2, task="regression")
    model.get_layer("head").bias.assign([2.0, 3.0])
    model.save_to_preset(tmp_path / "numbers")
    image = next(folder.rglob("*.png"))
    from_numbers = ("--source", tmp_path / "numbers")
    for command in ("predict", "explain"):
        told = run(command, image, *from_numbers, status=2).err
        assert f"{command} needs a classifier" in told
        assert "embed --stage logits" in told
    path = tmp_path / "numbers.npy"
    run("embed", image, *from_numbers, "--path", path, "--stage", "logits")
    expected = model.predict(model.preprocessor([image]), verbose=0)
    np.testing.assert_allclose(np.load(path), expected, atol=1e-6)


def test_evaluate_prints_the_scores_of_the_function_evaluate(run, folder):
    """As a table, with a row per class by `--classes`, and as JSON."""
    model = VisionTransformer.from_preset("vit_digits")
    images, labels = digits()[1][:80], digits()[3][:80]
    expected = evaluate(model, (images, labels))
    command = ("evaluate", folder / "test", "--source", "vit_digits")
    printed = run(*command, "--classes").out
    assert f"{expected.top1:.2%}" in printed
    assert all(f"\n{digit}\t" in printed for digit in range(10))
    scores = json.loads(run(*command, "--json").out)
    assert np.isclose(scores["loss"], expected.loss, rtol=1e-4)
    assert scores["class_counts"] == list(expected.class_counts)
    assert (scores["top1"], scores["class_names"]) == (expected.top1, [*"0123456789"])


def test_unknown_classes_and_unreadable_images_are_named(run, tmp_path):
    """`--on-error` leaves images out; embed writes the others, with an exit status of 1."""
    train, _ = write_folders(tmp_path / "loops", dict.fromkeys(range(10), "loop").get, train=5)
    told = run("evaluate", train, "--source", "vit_digits", status=2).err
    assert "'loop' has no match" in told
    few, _ = write_folders(tmp_path / "few", train=40, test=1, size=8)
    damaged = sorted(few.rglob("*.png"))[3]
    damaged.write_bytes(damaged.read_bytes()[:40])
    command = ("evaluate", few, "--source", "vit_digits")
    assert damaged.name in run(*command, status=2).err
    printed = run(*command, "--on-error", "skip", "--json", status=1)
    assert json.loads(printed.out)["count"] == 39
    assert printed.err.startswith("keras-vit: ")  # a note of one line, with no place in a program
    assert (printed.err.count("\n"), damaged.name in printed.err) == (1, True)
    out = tmp_path / "x.npy"
    printed = run("embed", few, "--source", "vit_digits", "--path", out, status=1)
    assert printed.err.count("not a readable image") == 1 and damaged.name in printed.err
    assert "39 images" in printed.out and len(np.load(out)) == 39


def test_embed_writes_the_features_of_a_folder(run, folder, tmp_path, monkeypatch):
    """One row per image, in the order of the sorted paths; progress is shown on a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    out = tmp_path / "out.npy"
    command = ("embed", folder / "test", "--source", "vit_digits", "--path", out)
    printed = run(*command, "--stage", "block_1", "--batch-size", 16)
    assert "images/s" in printed.err
    paths = json.loads((tmp_path / "out.npy.json").read_text())["paths"]
    assert paths == sorted(map(str, folder.glob("test/*/*.png")))
    model = VisionTransformer.from_preset("vit_digits")
    data = from_folder(folder / "test", model, batch_size=16)
    expected = features(model, data, "block_1").values
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-4)
    assert "exists. Remove it" in run(*command, status=2).err


def test_commands_load_the_model_as_their_options_say(run, folder, tmp_path):
    """Type, size, pooling and the type of the numbers."""
    how = ("--source", "vit_digits", "--dtype", "mixed_bfloat16", "--image-size", 12)
    model = VisionTransformer.from_preset("vit_digits", dtype="mixed_bfloat16", image_size=12)
    data, out = from_folder(folder / "test", model), tmp_path / "x.npy"
    written = ("--pooling", "token_and_mean", "--output-dtype", "float16", "--path", out)
    run("embed", folder / "test", *how, *written)
    want = features(model, data, pooling="token_and_mean", output_dtype="float16").values
    assert np.load(out).dtype == np.float16
    np.testing.assert_allclose(np.load(out), want, rtol=0.02, atol=0.02)
    scores = json.loads(run("evaluate", folder / "test", *how, "--json").out)
    assert scores["top1"] == evaluate(model, data).top1
    path = sorted(folder.glob("test/*/*.png"))[0]
    (answer,) = json.loads(run("predict", path, *how, "--json").out).values()
    assert answer[0]["label"] == model.classify([path])[0][0][0]
    run("probe", folder / "test", *how, "--path", tmp_path / "probe")
    assert keras_vit.info(tmp_path / "probe" / "preset").config.image_size == (12, 12)
    page = (tmp_path / "probe" / "index.html").read_text()
    assert "<title>vit_digits on test</title>" in page
