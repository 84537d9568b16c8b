"""A classifier of a folder of images, from frozen features."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, probe
from keras_vit.cli import main
from keras_vit.data import ImageSource, from_arrays
from keras_vit.evaluation import probing, write_page
from tests.helpers import assert_close, random_tiny, to_numpy

CLASSES = ("blue", "grey", "red")


def picture(rng, names):
    """Grey noise; the upper half is red and the lower half blue if the names say so."""
    pixels = 128 + 20 * rng.standard_normal((16, 16, 3))
    pixels[:8] += np.multiply("red" in names, (100, -100, -100))
    pixels[8:] += np.multiply("blue" in names, (-100, -100, 100))
    return Image.fromarray(np.clip(pixels, 0, 255).astype("uint8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight pictures of each class; one red picture lies among the grey ones too."""
    rng, photos = np.random.default_rng(0), tmp_path_factory.mktemp("probing") / "photos"
    for name in CLASSES:
        (photos / name).mkdir(parents=True)
        for k in range(8):
            picture(rng, [name]).save(photos / name / f"{k}.png")
    shutil.copy(photos / "red" / "5.png", photos / "grey" / "3.png")
    return photos


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Pictures with a table of labels, of which two are wrong."""
    rng, shapes = np.random.default_rng(0), tmp_path_factory.mktemp("shapes")
    lines = {}
    for k in range(40):
        names = [name for name, share in (("red", 0.5), ("blue", 0.3)) if rng.random() < share]
        picture(rng, names).save(shapes / f"{k:02}.png")
        lines[f"{k:02}.png"] = names
    forgotten = next(path for path, names in lines.items() if len(names) == 2)
    wrong = next(path for path, names in lines.items() if not names)
    lines |= {forgotten: ["blue"], wrong: ["red"]}
    rows = (f"{path},{'blue' in names:d},{'red' in names:d}" for path, names in lines.items())
    (shapes / "labels.csv").write_text("\n".join(["path,blue,red", *rows]))
    return shapes, forgotten, wrong


def make_model(num_layers=4, **fields):
    return random_tiny(num_layers=num_layers, num_classes=0, **fields)


@pytest.fixture(scope="module")
def result(folder):
    return probe(make_model(), folder)


def test_a_folder_becomes_a_classifier_that_knows_its_wrong_label(result):
    low, high = result.interval
    assert (result.task, result.predictions.shape) == ("single_label", (24, 3))
    assert low < result.score < high and result.score >= 20 / 24
    np.testing.assert_allclose(result.predictions.sum(axis=1), 1, rtol=1e-9)
    (suspect, *_), (pair, *_) = result.suspects, result.pairs
    assert suspect.image.endswith("grey/3.png")
    assert (suspect.label, suspect.likely) == ("grey", "red")
    assert {image.split("photos/")[1] for image in pair.images} == {"grey/3.png", "red/5.png"}
    assert pair.similarity == pytest.approx(1, abs=1e-5)
    assert result.curve[-1][0] == 24
    assert 0 <= result.gain(100) < 1
    assert json.loads(json.dumps(result.to_dict()))["class_names"] == list(CLASSES)


KINDS = [
    {"pool": {"kind": "token"}},
    {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0, "registers": 2}},
    {"pool": {"kind": "map"}, "tokens": {"class_tokens": 0}},
    {"pool": {"kind": "gap", "norm": "after"}},
    {"pool": {"kind": "tokens"}, "tokens": {"class_tokens": 2}},
    {"pool": {"kind": "token_and_distillation"}, "tokens": {"distillation": True}},
    {"pool": {"kind": "token"}, "representation_size": 12},
]


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: str(list(fields.values())))
def test_the_preset_of_a_probe_computes_its_logits(fields, folder, tmp_path, monkeypatch, bar):
    """For every kind of features, which are computed once: kernel times features are the logits of
    the new model."""
    model, choose = make_model(2, **fields), probing.choose
    stages, parts = probing._list_features(model.config)
    images = model.preprocessor([folder / "red" / "0.png", folder / "blue" / "1.png"])
    outputs = np.concatenate([to_numpy(v) for v in model(images, stages=stages).values()], axis=1)
    for name, (*place, columns) in parts.items():
        only = lambda given, *rest, name=name: choose({name: given[name]}, *rest)  # noqa: E731
        monkeypatch.setattr(probing, "choose", only)
        result = probe(model, folder, cache=tmp_path / "cache", progress=True)
        assert [result.stage, result.pooling] == place
        classifier = result.build_model(model)
        expected = outputs[:, columns] @ result.kernel + result.bias
        assert_close(classifier(images), expected, 1e-4)
    assert sum(bar.counts) == 24
    classifier.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.class_names == CLASSES
    assert_close(loaded(images), to_numpy(classifier(images)))


def test_the_page_shows_pictures_and_the_words_of_strangers_as_text(result, tmp_path):
    """The confusions have the scores of the classes."""
    right = np.diag(result.confusion)
    assert result.confusion.sum() == 24 and right.sum() == round(24 * result.score)
    for k, each in enumerate(result.class_scores):
        low, high = each.interval
        assert (each.name, each.images, each.score) == (CLASSES[k], 8, right[k] / 8)
        assert 0 <= low <= each.score <= high <= 1
    facts = {"command": "keras-vit probe <b>\u202e", "history": {"<a>": [2, 1.23456]}}
    write_page(result, tmp_path / "index.html", provenance=facts)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == len(result.suspects) + 2 * len(result.pairs)
    assert "looks like red" in page and "keras-vit probe &lt;b&gt;" in page
    assert "&lt;a&gt;</th>" in page and ">2</th><td>1.235</td>" in page
    assert "http" not in page.replace("http-equiv", "") and "\u202e" not in page


def run(folder, tmp_path, *options):
    """`keras-vit probe`; returns its folder and the loaded preset."""
    make_model().save_to_preset(tmp_path / "encoder")
    places = ("--source", str(tmp_path / "encoder"), "--path", str(tmp_path / "run"))
    assert main(["probe", str(folder), *places, *options]) == 0
    return tmp_path / "run", VisionTransformer.from_preset(tmp_path / "run" / "preset")


def test_the_command_writes_a_preset_and_a_page(folder, tmp_path, capsys):
    out, loaded = run(folder, tmp_path)
    assert "Accuracy" in capsys.readouterr().out
    assert (out / "index.html").exists()
    results = json.loads((out / "probe.json").read_text())
    assert (results["task"], results["score"] > 0.8) == ("single_label", True)
    assert loaded.classify(folder / "blue" / "0.png")[0][0][0] == "blue"
    assert loaded.provenance["command"].startswith(f"keras-vit probe {folder} --source")
    assert loaded.provenance["probe"]["score"] == results["score"]
    assert loaded.provenance["encoder"] == str(tmp_path / "encoder")


def test_multi_label_images_become_a_classifier_with_thresholds(table, tmp_path, capsys):
    """Wrong labels are found; the preset answers as the leave-one-out scores say."""
    folder, forgotten, wrong = table
    result = probe(make_model(), ImageSource(folder, labels_file="labels.csv"))
    low, high = result.interval
    assert 0.7 < low < result.score < high
    assert result.class_names == ("blue", "red")
    marks = {(s.image[-6:], s.label, s.likely) for s in result.suspects[:2]}
    assert marks == {(forgotten, "not red", "red"), (wrong, "red", "not red")}
    out, loaded = run(folder, tmp_path, "--labels-file", "labels.csv")
    assert "Mean average precision" in capsys.readouterr().out
    assert "not red, looks like red" in (out / "index.html").read_text(encoding="utf-8")
    assert loaded.thresholds == pytest.approx(result.thresholds)
    assert {name for name, _ in loaded.classify(folder / forgotten)[0]} == {"red", "blue"}
    assert loaded.classify(folder / wrong)[0] == []


def test_the_page_shows_images_in_memory(tmp_path):
    """Arrays and PIL images by the names in the probe. Of two images per class, the least of every
    part of them, a curve has one point and promises no gain."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 200, 180, 3), "uint8")
    pixels[4] = pixels[0]
    result = probe(make_model(), from_arrays(pixels, [0, 1, 2] * 2, make_model()))
    assert np.isnan(result.gain(100))
    assert not any("more images" in line for line in result.summary())
    images = {f"image {k}": pixels[k] for k in range(6)} | {"image 0": Image.fromarray(pixels[0])}
    write_page(result, tmp_path / "page.html", images)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "image 0: 0</figcaption>" in page and "<p>Similarity 100%</p>" in page
