"""Class names: shipped lists, the labels of a model, and refusals."""

import zipfile
from importlib.metadata import distribution
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.families import formats_named
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.images import class_names
from keras_vit.images.class_names import match_classes
from tests.helpers import tiny

NAMES = {
    "imagenet1k": {
        0: "tench, Tinca tinca",
        207: "golden retriever",
        285: "Egyptian cat",
        999: "toilet tissue, toilet paper, bathroom tissue",
    },
    "imagenet21k": {0: "organism, being", 1: "benthos", 21842: "knothole"},
}
"""Class names by number, as published with ILSVRC 2012 and Google's 21k checkpoints."""


@pytest.mark.parametrize("word", NAMES)
def test_a_shipped_list_has_a_name_for_every_class(word):
    """No name is empty, and the order is that of the heads."""
    names = class_names.expand(word)
    assert len(names) == class_names.NAMED[word]
    assert all(name and name == name.strip() for name in names)
    assert {k: names[k] for k in NAMES[word]} == NAMES[word]


def test_the_shipped_lists_equal_the_output_of_their_script():
    """`weights/make_labels.py` writes the files that are shipped."""
    folder = Path(str(distribution("timm").locate_file("timm/data/_info")))
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text().splitlines()
    name_source = dict(line.split("\t") for line in lines)
    for word, file in (
        ("imagenet1k", "imagenet_synsets.txt"),
        ("imagenet21k", "imagenet21k_goog_synsets.txt"),
    ):
        identifiers = (folder / file).read_text().split()
        assert class_names.expand(word) == tuple(
            name_source[identifier] for identifier in identifiers
        )


def test_configs_presets_and_keras_files_store_the_name_of_a_list(tmp_path):
    """`model.labels` gives the class names; the files hold "imagenet1k"."""
    protocol = {"name": "timm", "crop_pct": 1.0}
    model = tiny(num_classes=1000, class_names="imagenet1k", protocol=protocol)
    assert model.class_names == class_names.expand("imagenet1k")
    assert model.get_config()["class_names"] == "imagenet1k"
    assert VisionTransformer.from_config(model.get_config()).class_names == model.class_names
    model.save_to_preset(tmp_path / "preset")
    preset = keras_vit.info(tmp_path / "preset")
    assert preset.class_names == "imagenet1k"
    assert preset.protocol == protocol
    back = VisionTransformer.from_preset(tmp_path / "preset")
    assert back.class_names == model.class_names
    model.save(tmp_path / "x.keras")
    loaded = keras.saving.load_model(tmp_path / "x.keras")
    assert (loaded.class_names, loaded.preprocessor) == (model.class_names, model.preprocessor)
    with zipfile.ZipFile(tmp_path / "x.keras") as archive:
        assert b"Tinca" not in archive.read("config.json")


def test_classify_returns_the_name_of_the_largest_logit():
    """For each image, with `top` names."""
    model = tiny(num_classes=1000, class_names="imagenet1k")
    bias = np.zeros(1000, "float32")
    bias[285] = 9
    model.get_layer("head").bias.assign(bias)
    answers = model.classify(np.zeros((3, 16, 16, 3), "uint8"), top=2, batch_size=2)
    assert [answer[0][0] for answer in answers] == ["Egyptian cat"] * 3
    assert [len(answer) for answer in answers] == [2] * 3


def test_a_model_that_gives_nan_has_no_most_probable_label():
    """The message names the causes."""
    model = tiny()
    model.get_layer("head").bias.assign(np.full(5, np.nan))
    with pytest.raises(ConfigError, match="gives NaN as a probability"):
        model.classify(np.zeros((16, 16, 3), "uint8"))


def test_classify_each_gives_the_answers_of_classify(tmp_path):
    """For an iterator of images, with a smaller last batch; unreadable images are skipped."""
    model = tiny()
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (16, 16, 3), dtype="uint8") for _ in range(5)]
    model.get_layer("head").kernel.assign(rng.normal(size=(16, 5)))
    expected = model.classify(images, top=1)
    left_out: list = []
    source = iter([images[0], tmp_path / "absent.png", *images[1:]])
    actual = list(model.classify_each(source, 1, 2, lambda image, reason: left_out.append(image)))
    assert [image is value for (image, _), value in zip(actual, images, strict=True)] == [True] * 5
    assert [answer[0][0] for _, answer in actual] == [answer[0][0] for answer in expected]
    np.testing.assert_allclose(
        [answer[0][1] for _, answer in actual], [answer[0][1] for answer in expected], rtol=1e-5
    )
    assert left_out == [tmp_path / "absent.png"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("imagenet", "'imagenet' is no shipped list. Did you mean 'imagenet1k'?"),
        ("imagenet1k", "1000 class_names, expected 5 strings"),
        (["a", "b"], "2 class_names, expected 5 strings, one for each class; found a, b"),
        ([1, 2, 3, 4, 5], "holds 1, expected 5 strings"),
    ],
)
def test_bad_labels_are_refused(given, message):
    """An unknown list, a wrong number of labels, or labels that are no strings."""
    with pytest.raises(ConfigError, match=message):
        tiny(class_names=given)


def stated(**config):
    """The names of the classes that a config.json of timm states."""
    library = formats_named("timm")[0].library
    return library.class_names({"config.json": config}, config["num_classes"])


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"pretrained_cfg": {"tag": "augreg_in21k_ft_in1k"}, "num_classes": 1000}, "imagenet1k"),
        ({"pretrained_cfg": {"tag": "augreg_in21k"}, "num_classes": 21843}, "imagenet21k"),
        ({"pretrained_cfg": {"tag": "augreg_in21k"}, "num_classes": 21841}, None),
        ({"pretrained_cfg": {"tag": "augreg_in21k_ft_in1k"}, "num_classes": 10}, None),
        ({"pretrained_cfg": {"tag": "mine"}, "num_classes": 1000}, None),
        ({"num_classes": 1000}, None),
    ],
)
def test_imagenet_labels_are_recognised_by_timms_tag(config, word):
    """The tag and the number of classes must agree; the number alone is not enough."""
    assert stated(**config) == word


def test_label_names_of_a_file_take_precedence_over_its_tag():
    """`label_names` stands in timm's config.json."""
    config = {"pretrained_cfg": {"tag": "x_in1k"}, "num_classes": 1000, "label_names": ["a"]}
    assert stated(**config) == ("a",)


def test_a_list_is_exported_as_its_names(tmp_path):
    """A timm folder holds the names; loading it gives the name of the list again."""
    model = tiny(num_classes=1000, class_names="imagenet1k", block={"activation": "gelu"})
    checkpoints.save(model, tmp_path / "timm", "timm", lossy=True)
    back = VisionTransformer.from_preset(tmp_path / "timm")
    assert back.class_names == model.class_names
    assert back.get_config()["class_names"] == "imagenet1k"
    with pytest.raises((CheckpointError, ConfigError), match="2 class_names, expected 1000"):
        keras_vit.convert(tmp_path / "timm", tmp_path / "x", "transformers", class_names=["a", "b"])


def test_names_match_whole_names_before_parts_of_names():
    """Capitals, underscores and Unicode's spelling make no difference, unless two names do."""
    names = ["tench, Tinca tinca", "great white shark, man-eater", "crane", "crane, bird", "ox"]
    assert match_classes(["Great_White_Shark", "tench", "OX"], names) == [1, 0, 4]
    assert match_classes(["crane"], names) == [2]  # not 3, "crane, bird"
    assert match_classes(["u\u0308ber", "a"], ["a", "\u00fcber"]) == [1, 0]
    assert match_classes(["Ox", "ox"], ["ox", "Ox"]) == [1, 0]


def test_sorted_wordnet_ids_of_all_classes_match_the_head_in_order():
    """Ids in another order, of only some classes, or of other classes are refused."""
    ids = [f"n{k:08d}" for k in range(1000)]
    names = class_names.expand("imagenet1k")
    assert match_classes(ids, names) == list(range(1000))
    for some, others in ((ids[::-1], names), (ids[:10], names), (ids[:2], ["cat", "dog"])):
        with pytest.raises(ConfigError, match="fits none"):
            match_classes(some, others)


def test_names_that_number_the_classes_stand_for_their_places():
    """Unless the model has such names, in whatever order."""
    assert match_classes(["0", "1"], ["dog", "cat", "bird"]) == [0, 1]
    assert match_classes(["0", "1", "2"], ["2", "0", "1"]) == [1, 2, 0]
    numbers = [*map(str, range(12))]
    assert match_classes(sorted(numbers), list("abcdefghijkl")) == [*map(int, sorted(numbers))]
    with pytest.raises(ConfigError, match="'1' fits none"):
        match_classes(["1", "2"], ["dog", "cat", "bird"])
    with pytest.raises(ConfigError, match="'0' fits none"):  # 1 and 2 are names of the model
        match_classes(["0", "1", "2"], ["1", "2", "3"])


def test_one_message_lists_what_differs_on_both_sides():
    """A name that fits no class, a name that fits two, and two names for one class."""
    with pytest.raises(ConfigError) as error:
        match_classes(
            ["dgo", "crane", "dog", "dog, hound"], ["dog, hound", "crane, a", "crane, b", "ox"]
        )
    message = str(error.value)
    assert message.startswith("3 of the data's 4 classes do not fit the 4 class_names")
    for part in (
        "'dgo' fits none",
        "'crane' fits crane, a, crane, b",
        "'dog, hound' and 'dog' fit dog, hound",
        "Not in the data: crane, a",
        "takes other classes after model.class_names = None",
    ):
        assert part in message
    assert match_classes(["sun"], ["sun, Sun", "moon"]) == [0]


def test_the_names_of_a_model_may_be_set():
    """They are checked as in the constructor, and stored."""
    model = tiny(num_classes=3, class_names=list("abc"))
    model.class_names = ["x", "y", "z"]
    assert VisionTransformer.from_config(model.get_config()).class_names == ("x", "y", "z")
    with pytest.raises(ConfigError, match="2 class_names, expected 3"):
        model.class_names = ["x", "y"]
    model.class_names = None
    assert model.class_names is None
