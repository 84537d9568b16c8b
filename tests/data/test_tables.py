"""`from_folder` with a table: one label per image, several (multi-label), or numbers."""

import json

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import ImageSource, from_arrays
from tests.data.runs import AGE, AGES, COLUMNS, PLAIN, read_numbers, read_table
from tests.helpers import tiny

LABELS = {"a.png": ["cat", "dog"], "b.png": ["dog"], "more/c.png": [], "d.png": ["eel"]}
BREEDS = {"a.png": "golden retriever", "b.png": "Cat", "more/c.png": "Cat", "d.png": "eel"}
NUMBERS = {"a.png": [34.5, 1], "b.png": [8, 2], "more/c.png": [-1e3, 3], "d.png": [0.25, 4]}


def labels_by_path(photos, data):
    """The label, the labels or the numbers of every image, by its path in the folder."""
    paths = [path.removeprefix(f"{photos}/") for path in data.paths]
    labels = data.labels.tolist()
    if data.task != "regression":
        names = np.array(data.class_names)
        labels = [names[row].tolist() for row in data.labels]
    return dict(zip(paths, labels, strict=True))


def write(header, row, paths=BREEDS):
    return "\n".join([header, *(row(k, path, BREEDS[path]) for k, path in enumerate(paths))])


ONE = write("path,label", lambda _, path, breed: f"{path},{breed}") + "\n"
TABLES = {
    "path, label": ONE,
    "index": write(",path,label", lambda k, path, breed: f"{k},{path},{breed}"),
    "further columns": write("Image,split,Label", lambda _, path, breed: f"{path},train,{breed}"),
    "semicolons": ONE.replace(",", ";"),
    "tabs": "\ufeff" + ONE.replace(",", "\t"),
    "ids": write("id,breed", lambda _, path, breed: f"{path[:-4]},{breed}"),
    "only column": write("filename,text", lambda _, path, breed: f'"{path}","{breed}"'),
    "absolute": write("path,label", lambda _, path, breed: f"HERE/{path},{breed}"),
    "elsewhere": write("path,label", lambda _, path, breed: f"C:\\photos\\{path},{breed}"),
    "backslashes": ONE.replace("/", "\\"),
    "twice": ONE + "./a.png,golden retriever\n",
    "metadata.csv": write("file_name,label", lambda _, path, breed: f"{path},{breed}"),
    "metadata.jsonl": write(
        "", lambda _, path, breed: json.dumps({"file_name": path, "label": breed, "box": [1]})
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_every_form_of_a_table_is_read(photos, table):
    """Names keep spaces and capitals; images without a row are left out."""
    Image.new("L", (9, 9)).save(photos / "rowless.png")
    name = table if table.startswith("metadata") else "labels.csv"
    data = read_table(photos, TABLES[table].replace("HERE", str(photos)), name)
    assert labels_by_path(photos, data) == BREEDS


def test_columns_are_chosen_by_name(photos):
    text = write("path,file,kind,label", lambda k, path, breed: f"x,{path},{breed},{k}")
    data = read_table(photos, text, path_column="file", label_column="kind")
    assert data.class_names == ("Cat", "eel", "golden retriever")
    some = read_table(photos, COLUMNS, label_column=["eel", "cat"])
    assert some.class_counts == {"eel": 1, "cat": 1}


ROWS = COLUMNS.split()
SPREADSHEET = COLUMNS.replace("cat,dog", " cat, dog").replace("\n", "\r\n") + ",,,\r\n"
MULTI_LABEL = {
    "plain": COLUMNS,
    "beside a column of text": "\n".join([f"{ROWS[0]},split", *(f"{r},train" for r in ROWS[1:])]),
    "spaces, an empty row, line ends and byte order mark of Windows": "\ufeff" + SPREADSHEET,
}


@pytest.mark.parametrize("name", MULTI_LABEL)
def test_columns_of_0_and_1_are_multi_label(photos, name):
    """Batches have float32 zeros and ones, of images without labels too."""
    data = read_table(photos, MULTI_LABEL[name])
    assert data.class_names == ("cat", "dog", "eel")
    assert labels_by_path(photos, data) == LABELS
    assert (data.task, data.one_hot) == ("multi_label", True)
    _, labels = data[0]
    assert (labels.dtype, labels.shape) == ("float32", (4, 3))
    np.testing.assert_array_equal(labels, data.labels)
    assert data.class_counts == {"cat": 1, "dog": 2, "eel": 1}
    np.testing.assert_allclose(data.positive_weights, (3, 1, 3))


def test_an_umlaut_of_two_letters_is_the_same_path(photos):
    """macOS writes file names so; a table made elsewhere has the umlaut as one letter."""
    (photos / "d.png").rename(photos / "u\u0308.png")
    data = read_table(photos, COLUMNS.replace("d.png", "\u00fc.png"))
    assert labels_by_path(photos, data)["u\u0308.png"] == ["eel"]


def test_links_to_nothing_and_unreadable_images_are_left_out_with_a_warning(photos):
    (photos / "old.png").symlink_to(photos / "gone.png")
    with pytest.warns(UserWarning, match="skipped 1 file without an image.*old.png"):
        assert read_table(photos, COLUMNS).num_images == 4
    (photos / "old.png").unlink()
    (photos / "b.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="skipped"):
        data = read_table(photos, COLUMNS, on_error="skip")
    assert data.class_counts == {"cat": 1, "dog": 1, "eel": 1}


def test_class_names_and_labels_of_a_model_order_the_columns(photos):
    """Classes without images are allowed then."""
    names = ("fox", "eel", "dog", "cat")
    named = read_table(photos, COLUMNS, class_names=names)
    assert named.class_counts == {"fox": 0, "eel": 1, "dog": 2, "cat": 1}
    model = tiny(num_classes=4, class_names=names, task="multi_label")
    assert read_table(photos, COLUMNS, prepares=model).class_names == names


def test_columns_of_numbers_are_float32(photos):
    for text, names, end in ((AGES, ("age", "height"), 2), (AGE, ("age",), 1)):
        data = read_numbers(photos, text)
        assert (data.task, data.one_hot, data.class_names) == ("regression", False, names)
        assert labels_by_path(photos, data) == {p: row[:end] for p, row in NUMBERS.items()}
        _, numbers = data[0]
        assert (numbers.dtype, numbers.shape) == ("float32", (4, end))


@pytest.mark.parametrize("word", ["class_names", "label_column", "prepares"])
def test_names_or_a_model_choose_the_numbers_and_their_order(photos, word):
    for names in (["height", "age"], ["height"]):
        model = {"num_classes": len(names), "class_names": names, "task": "regression"}
        data = read_numbers(photos, **{word: tiny(**model) if word == "prepares" else names})
        assert data.class_names == tuple(names)
        expected = {path: row[::-1][: len(names)] for path, row in NUMBERS.items()}
        assert labels_by_path(photos, data) == expected


def test_hold_out_divides_images_with_numbers_at_random(photos):
    """The validation data of another folder have the columns of the training data."""
    data = from_arrays(np.zeros((20, 16, 16, 3), "uint8"), np.arange(20), PLAIN, task="regression")
    train, held_out = data.hold_out(0.25)
    assert (train.num_images, held_out.num_images) == (15, 5)
    assert held_out.task == "regression"
    both = np.concatenate([train.labels, held_out.labels])
    assert sorted(both[:, 0].tolist()) == list(range(20))
    read_numbers(photos)
    source = ImageSource(photos, labels_file="labels.csv", task="regression")
    train, held_out = source.read_with_validation(PLAIN, photos)
    np.testing.assert_array_equal(train.labels, held_out.labels)
