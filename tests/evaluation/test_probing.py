"""A classifier of a folder of images, from frozen features."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, probe
from keras_vit.data import ImageSource, from_arrays, from_folder
from keras_vit.errors import ConfigError
from keras_vit.evaluation import write_page
from tests.helpers import assert_close, random_tiny, to_numpy

CLASSES = {"blue": (30, 60, 200), "green": (40, 180, 60), "red": (200, 40, 30)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight noisy pictures of each colour; one red picture lies among the green ones."""
    rng, photos = np.random.default_rng(0), tmp_path_factory.mktemp("probing") / "photos"
    for name, colour in CLASSES.items():
        (photos / name).mkdir(parents=True)
        for k in range(8):
            pixels = np.clip(colour + 25 * rng.standard_normal((16, 16, 3)), 0, 255)
            Image.fromarray(pixels.astype("uint8")).save(photos / name / f"{k}.png")
    (photos / "green" / "3.png").write_bytes((photos / "red" / "5.png").read_bytes())
    return photos


def make_model(**fields):
    return random_tiny(num_layers=4, num_classes=0, **fields)


@pytest.fixture(scope="module")
def result(folder):
    return probe(make_model(), folder)


def test_a_folder_becomes_a_classifier_that_knows_its_wrong_label(result):
    low, high = result.interval
    assert result.task == "single_label"
    assert low < result.score < high
    assert result.predictions.shape == (24, 3)
    np.testing.assert_allclose(result.predictions.sum(axis=1), 1, rtol=1e-9)
    assert result.score >= 20 / 24
    assert result.suspects[0].image.endswith("green/3.png")
    assert (result.suspects[0].label, result.suspects[0].likely) == ("green", "red")
    first = {image.split("photos/")[1] for image in result.pairs[0].images}
    assert first == {"green/3.png", "red/5.png"}
    assert result.pairs[0].similarity == pytest.approx(1, abs=1e-5)
    assert [count for count, _ in result.curve][-1] == 24
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
def test_the_preset_of_a_probe_computes_its_logits(fields, folder, tmp_path, monkeypatch):
    """For every kind of features: kernel times features are the logits of the new model."""
    from keras_vit.evaluation import probing

    model = make_model(**fields)
    stages, parts = probing._list_features(model.config)
    for name in parts:
        monkeypatch.setattr(probing, "choose", only(name, probing.choose))
        result = probe(model, folder, cache=tmp_path / "cache")
        monkeypatch.undo()
        assert (result.stage, result.pooling) == parts[name][:2]
        classifier = result.build_model(model)
        images = model.preprocessor([folder / "red" / "0.png", folder / "blue" / "1.png"])
        outputs = {k: to_numpy(v) for k, v in model(images, stages=stages).items()}
        features = np.concatenate([*outputs.values()], axis=1)[:, parts[name][2]]
        assert_close(classifier(images), features @ result.kernel + result.bias, 1e-4)
    classifier.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.class_names == tuple(CLASSES)
    assert_close(loaded(images), to_numpy(classifier(images)))


def only(name, choose):
    return lambda features, *rest: choose({name: features[name]}, *rest)


def test_features_are_computed_once(folder, tmp_path, bar):
    """A second probe reads the file; the result is the same."""
    model = make_model()
    first = probe(model, folder, cache=tmp_path / "cache", progress=True)
    assert sum(bar.counts) == 24
    again = probe(model, folder, cache=tmp_path / "cache", progress=True)
    assert sum(bar.counts) == 24
    np.testing.assert_array_equal(first.kernel, again.kernel)


def test_the_page_shows_pictures_scores_by_class_confusions_and_the_curve(result, tmp_path):
    """Numbers of the probe, and strangers' words as text."""
    right = np.diag(result.confusion)
    assert result.confusion.sum() == 24 and right.sum() == round(24 * result.score)
    for k, each in enumerate(result.class_scores):
        low, high = each.interval
        assert (each.name, each.images, each.score) == (list(CLASSES)[k], 8, right[k] / 8)
        assert 0 <= low <= each.score <= high <= 1
    command = "keras-vit probe <b>\u202e"
    write_page(result, tmp_path / "index.html", provenance={"command": command})
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == len(result.suspects) + 2 * len(result.pairs)
    assert "looks like red" in page
    assert page.count('<section class="pair">') == len(result.pairs) > 0
    assert "http" not in page.replace("http-equiv", "")
    worst = min(result.class_scores, key=lambda each: each.score)
    between = "{:.0%} to {:.0%}".format(*worst.interval)
    assert f"{worst.name}</th><td>8</td><td>{worst.score:.0%}</td><td>{between}</td>" in page
    assert f"{result.curve[0][1]:.1%} of {result.curve[0][0]} images" in page
    assert page.count('<td style="--share:') == 9
    assert f'<td style="--share:{right[0] / 8:.2f}">{right[0]}</td>' in page
    assert "keras-vit probe &lt;b&gt;" in page and "\u202e" not in page


def test_the_command_writes_a_preset_and_a_page(folder, tmp_path, capsys):
    from keras_vit.cli import main

    model = make_model()
    model.save_to_preset(tmp_path / "encoder")
    out = tmp_path / "run"
    assert (
        main(["probe", str(folder), "--source", str(tmp_path / "encoder"), "--path", str(out)]) == 0
    )
    assert "Accuracy" in capsys.readouterr().out
    assert (out / "index.html").exists()
    results = json.loads((out / "probe.json").read_text())
    assert (results["task"], results["score"] > 0.8) == ("single_label", True)
    loaded = VisionTransformer.from_preset(out / "preset")
    assert loaded.classify(folder / "blue" / "0.png")[0][0][0] == "blue"
    assert loaded.provenance["command"].startswith(f"keras-vit probe {folder} --source")
    assert loaded.provenance["probe"]["score"] == results["score"]
    assert loaded.provenance["encoder"] == str(tmp_path / "encoder")


def write_labels(folder, lines):
    rows = (f"{path},{int('blue' in names)},{int('red' in names)}" for path, names in lines.items())
    (folder / "labels.csv").write_text("\n".join(["path,blue,red", *rows]))


@pytest.fixture
def table(tmp_path):
    """Pictures whose upper half may be red and whose lower half may be blue; two rows are wrong."""
    rng = np.random.default_rng(0)
    (tmp_path / "shapes").mkdir()
    lines = {}
    for k in range(40):
        pixels = np.full((16, 16, 3), 128) + 20 * rng.standard_normal((16, 16, 3))
        names = [name for name, share in (("red", 0.5), ("blue", 0.3)) if rng.random() < share]
        if "red" in names:
            pixels[:8] += (100, -100, -100)
        if "blue" in names:
            pixels[8:] += (-100, -100, 100)
        Image.fromarray(np.clip(pixels, 0, 255).astype("uint8")).save(
            tmp_path / "shapes" / f"{k:02}.png"
        )
        lines[f"{k:02}.png"] = names
    forgotten = next(name for name, labels in lines.items() if labels == ["red", "blue"])
    wrong = next(name for name, labels in lines.items() if not labels)
    lines[forgotten], lines[wrong] = ["blue"], ["red"]
    write_labels(tmp_path / "shapes", lines)
    return tmp_path / "shapes", forgotten, wrong


def test_multi_label_images_become_a_classifier_with_thresholds(table, tmp_path, capsys):
    """The command finds both wrong labels; the preset answers as the leave-one-out scores say."""
    from keras_vit.cli import main

    folder, forgotten, wrong = table
    model = make_model()
    result = probe(model, ImageSource(folder, labels_file="labels.csv"))
    low, high = result.interval
    assert 0.7 < low < result.score < high
    assert result.class_names == ("blue", "red")
    marks = {(s.image[-6:], s.label, s.likely) for s in result.suspects[:2]}
    assert marks == {(forgotten, "not red", "red"), (wrong, "red", "not red")}
    model.save_to_preset(tmp_path / "encoder")
    out = tmp_path / "run"
    arguments = ["--source", str(tmp_path / "encoder"), "--path", str(out)]
    assert main(["probe", str(folder), *arguments, "--labels-file", "labels.csv"]) == 0
    assert "Mean average precision" in capsys.readouterr().out
    assert "not red, looks like red" in (out / "index.html").read_text(encoding="utf-8")
    loaded = VisionTransformer.from_preset(out / "preset")
    assert loaded.thresholds == pytest.approx(result.thresholds)
    assert {name for name, _ in loaded.classify(folder / forgotten)[0]} == {"red", "blue"}
    assert loaded.classify(folder / wrong)[0] == []


def test_multi_label_pairs_differ_in_a_label(table):
    """A copy of a picture with other labels is found, a copy with the same is not."""
    folder, *_ = table
    rows = list(csv.reader((folder / "labels.csv").open()))[1:]
    lines = {
        name: [n for n, flag in zip(("blue", "red"), row, strict=True) if flag == "1"]
        for name, *row in rows
    }
    first, second = [name for name, labels in lines.items() if labels == ["blue"]][:2]
    for source, copy, labels in ((first, "x.png", []), (second, "y.png", ["blue"])):
        (folder / copy).write_bytes((folder / source).read_bytes())
        lines[copy] = labels
    write_labels(folder, lines)
    data = ImageSource(folder, labels_file="labels.csv")
    result = probe(make_model(), data, similarity=0.99999)
    assert any(image.endswith("x.png") for image in result.pairs[0].images)
    assert set(result.pairs[0].labels) == {"blue", "no label"}
    assert len(result.pairs) == 1


def arrays(labels, pixels=None):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (len(labels), 16, 16, 3), "uint8") if pixels is None else pixels
    return from_arrays(images, np.array(labels), make_model(), class_names=("a", "b", "c"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: arrays([0, 0, 1, 1, 2]), "class 'c' has 1 of 5 images"),
        (lambda: arrays([0, 0, 0, 0]), "class 'a' has 4 of 4 images"),
        (lambda: arrays(np.eye(6, 3)), "class 'a' has 1 of 6 images; expected two or more of each"),
        (lambda: arrays(np.tri(6, 3, 2)), "class 'a' has 6 of 6 images; .* two or more without"),
        (lambda: arrays([0, 0, 1, 1, 2, 2], np.zeros((6, 16, 16, 3), "uint8")), "the same for all"),
        (
            lambda: from_arrays(
                np.zeros((20, 16, 16, 3), "uint8"), np.arange(20) % 2, make_model(), shuffle=True
            ),
            "shuffle=False",
        ),
    ],
    ids=["one image", "one class", "one multi-label image", "a label of all", "constant", "order"],
)
def test_images_that_allow_no_probe_are_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        probe(make_model(), data())


def test_a_probe_is_refused_by_another_model_and_for_changed_images(folder, result):
    """Narrower, or with fewer blocks; augmented images, or a pair of arrays."""
    for other in (make_model(hidden_size=32), random_tiny(num_layers=1, num_classes=0)):
        with pytest.raises(ConfigError, match="Give the model whose pre_logits the head reads"):
            dataclasses.replace(result, stage="block_3/norm", pooling="token").build_model(other)
    augmented = from_folder(folder, make_model(), augmentation="crop_flip", shuffle=False)
    with pytest.raises(ConfigError, match="augmentation=None"):
        probe(make_model(), augmented)
    with pytest.raises(ConfigError, match="found tuple.*from_arrays"):
        probe(make_model(), (np.zeros((4, 16, 16, 3)), np.arange(4) % 2))
    broken = make_model()
    broken.set_weights([weight * np.nan for weight in broken.get_weights()])
    with pytest.raises(ConfigError, match="not finite"):
        probe(broken, folder)


def test_a_curve_at_one_number_of_images_promises_no_gain():
    """Two images per class are the least of every part of them."""
    result = probe(make_model(), arrays([0, 1, 2] * 2))
    assert np.isnan(result.gain(100))
    assert not any("more images" in line for line in result.summary())


def test_a_single_class_is_probed_as_multi_label():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), "uint8")
    has = np.arange(20) % 3 == 0
    pixels[has, :8] = 250
    result = probe(
        make_model(), from_arrays(pixels, has[:, None], make_model(), class_names=["sky"])
    )
    assert result.score > 0.8
    assert result.predictions.shape == (20, 1)


def test_the_page_shows_images_in_memory_and_leaves_them_as_they_are(tmp_path):
    """Arrays and PIL images by the names in the probe."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 200, 180, 3), "uint8")
    pixels[3] = pixels[0]
    picture = Image.fromarray(pixels[0])
    result = probe(make_model(), from_arrays(pixels, [0, 1] * 3, make_model()))
    images = {f"image {k}": pixels[k] for k in range(6)} | {"image 0": picture}
    write_page(result, tmp_path / "page.html", images)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "image 0: 0</figcaption>" in page and "<p>100% alike</p>" in page
    assert picture.size == (180, 200)
