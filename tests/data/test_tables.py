"""`from_folder` with a table of labels: CSV and JSON, many labels per image or one."""

import json

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.data import from_arrays, from_folder
from keras_vit.errors import ConfigError
from tests.helpers import tiny

pytestmark = pytest.mark.without_backend

PLAIN = Preprocessor(8)
LABELS = {"a.png": ["cat", "dog"], "b.png": ["dog"], "more/c.png": [], "d.png": ["eel"]}

WORDS = "path,labels\na.png,cat dog\nb.png,dog\nmore/c.png,\nd.png,eel\n"
PIPES = "path,labels\na.png,dog|cat\nb.png,dog\nmore/c.png,\nd.png,eel\n"
COLUMNS = "path,cat,dog,eel\na.png,1,1,0\nb.png,0,1,0\nmore/c.png,0,0,0.0\nd.png,0,0,1.0\n"


def read(photos, text, name="labels.csv", **options):
    (photos / name).write_text(text)
    return from_folder(photos, PLAIN, labels_file=name, multi_label=True, **options)


def labels_by_path(photos, data) -> dict[str, list[str]]:
    """The labels of every image, by its path in the folder."""
    names = np.array(data.class_names)
    paths = [path.removeprefix(f"{photos}/") for path in data.paths]
    return {path: names[row].tolist() for path, row in zip(paths, data.labels, strict=True)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", WORDS),
        ("labels.csv", "\ufeff" + PIPES),
        ("labels.csv", COLUMNS),
        ("labels.json", json.dumps(LABELS)),
    ],
    ids=["words", "pipes", "columns", "json"],
)
def test_every_form_of_a_table_gives_the_same_labels(photos, name, text):
    """Batches have float32 zeros and ones, of images without labels too."""
    data = read(photos, text, name)
    assert data.class_names == ("cat", "dog", "eel")
    assert labels_by_path(photos, data) == LABELS
    assert data.multi_label
    assert data.one_hot
    _, labels = data[0]
    assert (labels.dtype, labels.shape) == ("float32", (4, 3))
    np.testing.assert_array_equal(labels, data.labels)
    assert data.class_counts == {"cat": 1, "dog": 2, "eel": 1}
    np.testing.assert_allclose(data.positive_weights, (3, 1, 3))
    with pytest.raises(ConfigError, match="positive_weights"):
        data.class_weight  # noqa: B018


def test_names_with_spaces_are_kept_where_other_signs_separate_labels(photos):
    """A column with `;` or `|` is divided there alone."""
    data = read(photos, "path,labels\na.png,fire truck; red\nb.png,red\nmore/c.png,\nd.png,red\n")
    assert data.class_names == ("fire truck", "red")


SPREADSHEET = "\ufeff" + COLUMNS.replace("cat,dog", " cat, dog").replace("\n", "\r\n") + ",,,\r\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("labels.csv", SPREADSHEET), ("labels.JSON", json.dumps(LABELS).replace('"dog', '" dog'))],
    ids=["spreadsheet", "json"],
)
def test_spaces_and_empty_rows_around_labels_do_not_count(photos, name, text):
    """A spreadsheet writes them, and Windows its line ends and byte order mark."""
    data = read(photos, text, name)
    assert data.class_names == ("cat", "dog", "eel")
    assert labels_by_path(photos, data) == LABELS


def test_an_umlaut_of_two_letters_is_the_same_path(photos):
    """macOS writes file names so; a table made elsewhere has the umlaut as one letter."""
    (photos / "d.png").rename(photos / "u\u0308.png")
    data = read(photos, WORDS.replace("d.png", "\u00fc.png"))
    assert labels_by_path(photos, data)["u\u0308.png"] == ["eel"]


def test_a_link_to_nothing_is_left_out_with_a_warning(photos):
    (photos / "old.png").symlink_to(photos / "gone.png")
    with pytest.warns(UserWarning, match="left out 1 file without an image.*old.png"):
        assert read(photos, WORDS).num_images == 4


def test_a_table_of_one_label_per_image_gives_class_numbers(photos):
    """Without multi_label; an image with two labels is then refused by name."""
    (photos / "one.csv").write_text("path,label\na.png,x\nb.png,y\nmore/c.png,x\nd.png,x\n")
    data = from_folder(photos, PLAIN, labels_file="one.csv")
    assert data.labels.tolist() == [0, 1, 0, 0]
    (photos / "labels.csv").write_text(WORDS)
    with pytest.raises(
        ConfigError, match=r"a.png has 2 labels \(cat, dog\), expected one.*multi_label=True.*;"
    ):
        from_folder(photos, PLAIN, labels_file="labels.csv")


def test_class_names_and_labels_of_a_model_order_the_columns(photos):
    """Classes without images are allowed then; a class that is not named is refused."""
    named = read(photos, COLUMNS, class_names=["fox", "eel", "dog", "cat"])
    assert named.class_counts == {"fox": 0, "eel": 1, "dog": 2, "cat": 1}
    model = tiny(num_classes=4, class_names=("fox", "eel", "dog", "cat"), thresholds=0.5)
    data = from_folder(photos, model, labels_file="labels.csv", multi_label=True)
    assert data.class_names == model.class_names
    with pytest.raises(ConfigError, match="'dog' is in class_names twice"):
        read(photos, WORDS, class_names=["cat", "dog", "dog", "eel"])
    with pytest.raises(ConfigError, match="'eel' is not in class_names. Did you mean 'eels'"):
        read(photos, WORDS, class_names=["cat", "dog", "eels"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WORDS + "e.png,cat\n", "1 of 5 images are not in .*photos: e.png"),
        (WORDS.replace("b.png,dog\n", ""), "1 of the 4 images .* not in the table: b.png"),
        (COLUMNS.replace("0,0,1.0", "0,0,2"), "d.png has '2' in the column eel, expected 0 or 1"),
        (COLUMNS.replace("0,0,1.0", "0,0,0"), "no image has the class eel; remove it, or give"),
        (WORDS + "a.png,cat\n", "a.png has a second row, expected one row per image"),
        (COLUMNS + "x.png,1\n", "x.png has 2 columns, expected one row of 4 columns"),
        (WORDS.removeprefix("path,labels\n"), "the first line is 'a.png,cat dog', expected the"),
        ("path\na.png\n", "the first line is 'path', expected the names of the columns"),
        ("", "the first line is '', expected the names"),
        ("path,labels\n", "expected a row per image, found none"),
        ('["a.png"]', 'expected {"path"'),
        ('{"a.png": "cat"}', "a.png has 'cat', expected a list of labels"),
        ("{", "cannot be read"),
        (WORDS.replace("cat dog", '"cat, dog"'), "a.png has 'cat, dog'; expected labels that"),
        (WORDS + "./a.png,cat\n", "a.png has a second row, expected one row per image"),
        ("path,cat\na.png,1\nb.png,0\nmore/c.png,0\nd.png,1\n", "image has either 0 or 1"),
        ("path,labels\na.png,\nb.png,\nmore/c.png,\nd.png,\n", "no image has a label"),
        ('{"a.png": [], "a.png": ["cat"]}', "a.png has a second row"),
        ('{"a.png": [], "./a.png": ["cat"]}', "a.png has a second row"),
        ('{"a.png": [" "]}', "a.png has .*, expected a list of labels, each a string"),
        ('{"a.png": {"cat": 1}}', "expected a list of labels, each a string"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_name(photos, text, message):
    """One sentence with the file, what it holds and what is expected."""
    name = "labels.json" if text[:1] in ("[", "{") else "labels.csv"
    with pytest.raises(ConfigError, match=f"{name}.*{message}|{message}.*{name}"):
        read(photos, text, name)


def test_a_table_is_needed_for_many_labels_and_must_exist(photos):
    """A folder per class gives one label."""
    with pytest.raises(ConfigError, match="needs a table, labels_file="):
        from_folder(photos, PLAIN, multi_label=True)
    with pytest.raises(ConfigError, match="labels_file='other.csv': no such table"):
        from_folder(photos, PLAIN, labels_file="other.csv", multi_label=True)


def many(count=200, classes=5, seed=0):
    """Images and labels of which about a tenth have none, and one class is rare."""
    rng = np.random.default_rng(seed)
    labels = rng.random((count, classes)) < np.array([0.02, *np.linspace(0.1, 0.6, classes - 1)])
    labels[:2, 0] = True
    return rng.integers(0, 256, (count, 8, 8, 3), "uint8"), labels


def test_hold_out_takes_about_the_same_share_of_every_class():
    """Every class with two images is in both parts, and the choice repeats."""
    images, labels = many()
    data = from_arrays(images, labels.astype(int), PLAIN)
    train, held_out = data.hold_out(0.2)
    counts = np.array(list(data.class_counts.values()))
    held = np.array(list(held_out.class_counts.values()))
    assert train.num_images + held_out.num_images == 200
    assert 30 <= held_out.num_images <= 50
    assert np.all(held >= 1)
    assert np.all(counts - held >= 1)
    np.testing.assert_allclose(held / counts, 0.2, atol=0.12)
    np.testing.assert_array_equal(data.hold_out(0.2)[1].labels, held_out.labels)


@pytest.mark.parametrize("seed", range(20))
def test_hold_out_leaves_every_class_in_the_training_data(seed):
    """Also of classes with one image, whose labels overlap."""
    labels = np.random.default_rng(seed).random((12, 6)) < 0.2
    labels[0] |= ~labels.any(axis=0)
    train, _ = from_arrays(np.zeros((12, 8, 8, 3), "uint8"), labels, PLAIN).hold_out(0.5)
    assert min(train.class_counts.values()) >= 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((2, 2), 0.5), "image 0 has 0.5 for the class cat, expected 0 or 1"),
        (np.zeros((2, 2, 2), int), "zeros and ones"),
        (np.eye(3)[:2], "have 3 classes, expected 2: cat, dog"),
    ],
)
def test_arrays_that_are_not_zeros_and_ones_of_the_classes_are_refused(labels, message):
    """The message names the image and the class, or lists the classes."""
    with pytest.raises(ConfigError, match=message):
        from_arrays(np.zeros((2, 8, 8, 3), "uint8"), labels, PLAIN, class_names=["cat", "dog"])


def test_unreadable_images_of_many_labels_are_left_out(photos):
    """Unless a class loses its only image."""
    (photos / "b.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="Left out"):
        data = read(photos, WORDS, on_error="skip")
    assert data.class_counts == {"cat": 1, "dog": 1, "eel": 1}
    (photos / "d.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match="No readable image is left of the classes eel"):
        read(photos, WORDS, on_error="skip")
