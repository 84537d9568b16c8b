"""`from_folder` with a table of labels: one label per image or several (multi-label)."""

import json
import shutil

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.data import from_arrays, from_folder
from keras_vit.errors import ConfigError
from tests.helpers import tiny

PLAIN = Preprocessor(8)
LABELS = {"a.png": ["cat", "dog"], "b.png": ["dog"], "more/c.png": [], "d.png": ["eel"]}
BREEDS = {"a.png": "golden retriever", "b.png": "Cat", "more/c.png": "Cat", "d.png": "eel"}

COLUMNS = "path,cat,dog,eel\na.png,1,1,0\nb.png,0,1,0\nmore/c.png,0,0,0.0\nd.png,0,0,1.0\n"
ONE = "path,label\n" + "".join(f"{path},{breed}\n" for path, breed in BREEDS.items())


def read(photos, text, name="labels.csv", **options):
    (photos / name).write_text(text)
    return from_folder(photos, PLAIN, labels_file=name, **options)


def labels_by_path(photos, data) -> dict[str, list[str]]:
    """The labels of every image, by its path in the folder."""
    names = np.array(data.class_names)
    paths = [path.removeprefix(f"{photos}/") for path in data.paths]
    return {path: names[row].tolist() for path, row in zip(paths, data.labels, strict=True)}


def write(header, row, paths=BREEDS):
    return "\n".join([header, *(row(k, path, BREEDS[path]) for k, path in enumerate(paths))])


TABLES = {
    "path, label": ONE,
    "index": write(",path,label", lambda k, path, breed: f"{k},{path},{breed}"),
    "label first": write("label,path", lambda _, path, breed: f"{breed},{path}"),
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
    """Names keep spaces and capitals."""
    name = table if table.startswith("metadata") else "labels.csv"
    data = read(photos, TABLES[table].replace("HERE", str(photos)), name)
    paths = [path.removeprefix(f"{photos}/") for path in data.paths]
    named = [data.class_names[label] for label in data.labels]
    assert dict(zip(paths, named, strict=True)) == BREEDS


def test_a_table_of_a_part_of_the_folder_counts_what_is_left_out(photos, caplog):
    """In a line of log with the columns that are not read."""
    text = write(
        ",path,label,split", lambda k, path, breed: f"{k},{path},{breed},x", ["a.png", "b.png"]
    )
    assert read(photos, text).class_counts == {"Cat": 1, "golden retriever": 1}
    assert caplog.messages == [
        f"{photos}/labels.csv: left out 2 columns ('', 'split'), and 2 images without a row."
    ]


def test_columns_are_chosen_by_name(photos):
    text = write("path,file,kind,label", lambda k, path, breed: f"x,{path},{breed},{k}")
    data = read(photos, text, path_column="file", label_column="kind")
    assert data.class_names == ("Cat", "eel", "golden retriever")
    some = read(photos, COLUMNS, label_column=["eel", "cat"])
    assert some.class_counts == {"eel": 1, "cat": 1}


def test_columns_of_0_and_1_are_labels_beside_columns_of_text(photos):
    rows = [f"{row},train" for row in COLUMNS.split()]
    rows[0] = "path,cat,dog,eel,split"
    assert labels_by_path(photos, read(photos, "\n".join(rows))) == LABELS


@pytest.mark.parametrize("spreadsheet", [False, True])
def test_columns_of_0_and_1_are_multi_label(photos, spreadsheet):
    """Batches have float32 zeros and ones, of images without labels too.

    A spreadsheet writes spaces and an empty row, and Windows its line ends and byte order mark.
    """
    text = "\ufeff" + COLUMNS.replace("cat,dog", " cat, dog").replace("\n", "\r\n") + ",,,\r\n"
    data = read(photos, text if spreadsheet else COLUMNS)
    assert data.class_names == ("cat", "dog", "eel")
    assert labels_by_path(photos, data) == LABELS
    assert data.task == "multi_label"
    assert data.one_hot
    _, labels = data[0]
    assert (labels.dtype, labels.shape) == ("float32", (4, 3))
    np.testing.assert_array_equal(labels, data.labels)
    assert data.class_counts == {"cat": 1, "dog": 2, "eel": 1}
    np.testing.assert_allclose(data.positive_weights, (3, 1, 3))
    with pytest.raises(ConfigError, match="positive_weights"):
        data.class_weight  # noqa: B018


def test_an_umlaut_of_two_letters_is_the_same_path(photos):
    """macOS writes file names so; a table made elsewhere has the umlaut as one letter."""
    (photos / "d.png").rename(photos / "u\u0308.png")
    data = read(photos, COLUMNS.replace("d.png", "\u00fc.png"))
    assert labels_by_path(photos, data)["u\u0308.png"] == ["eel"]


def test_a_link_to_nothing_is_left_out_with_a_warning(photos):
    (photos / "old.png").symlink_to(photos / "gone.png")
    with pytest.warns(UserWarning, match="left out 1 file without an image.*old.png"):
        assert read(photos, COLUMNS).num_images == 4


def test_class_names_and_labels_of_a_model_order_the_columns(photos):
    """Classes without images are allowed then; a class that is not named is refused."""
    named = read(photos, COLUMNS, class_names=["fox", "eel", "dog", "cat"])
    assert named.class_counts == {"fox": 0, "eel": 1, "dog": 2, "cat": 1}
    model = tiny(num_classes=4, class_names=("fox", "eel", "dog", "cat"), task="multi_label")
    data = from_folder(photos, model, labels_file="labels.csv")
    assert data.class_names == model.class_names
    with pytest.raises(ConfigError, match="'dog' fits dog, dog, not one alone"):
        read(photos, COLUMNS, class_names=["cat", "dog", "dog", "eel"])
    with pytest.raises(
        ConfigError, match="'eel' fits none .Did you mean 'eels'.*Not in the data: eels"
    ):
        read(photos, COLUMNS, class_names=["cat", "dog", "eels"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE + "e.png,Cat\n", "line 6: no image 'e.png' in .*photos.*Did you mean"),
        (ONE + "./a.png,eel\n", "line 6: ./a.png has other labels in a row above"),
        (ONE + "a.png,\n", "line 6: the column label has '', expected a label"),
        (COLUMNS.replace("1.0", "2"), "line 5: the column eel has '2', expected 0 or 1"),
        (COLUMNS + "x.png,1\n", "line 6: this table of labels cannot be read"),
        ("a.png,cat\n", "found no row"),
        ("", "found no row"),
        (
            "a.png,cat\nb.png,dog\n",
            "one column of paths. The columns are a.png, cat; give path_col",
        ),
        ("path\na.png\n", "one column of labels. The columns are path; give .* label_column="),
        ("path,x,x\na.png,0,1\n", "one column 'x'. The columns are path, x, x;"),
        (
            "path,species,split\na.png,cat,train\n",
            "'cat', expected 0 or 1.*The columns are path, species, split; give .*label_column=",
        ),
        ('{"path": "a.png"}\n{', "line 2: this table of labels cannot be read"),
        ('{"path": "a.png", "tags": ["cat"]}', r"the column tags has \['cat'\], expected a label"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_name(photos, text, message):
    """One sentence with the file, the line or the columns, and what is expected."""
    name = "labels.jsonl" if text.startswith("{") else "labels.csv"
    with pytest.raises(ConfigError, match=f"{name}.*{message}"):
        read(photos, text, name)


def test_a_path_without_suffix_must_be_of_one_image(photos):
    shutil.copy(photos / "a.png", photos / "a.bmp")
    with pytest.raises(ConfigError, match=r"line 2: no image 'a' in"):
        read(photos, TABLES["ids"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_column": "kind"}, "label_column= needs a table of labels, labels_file="),
        ({"labels_file": "other.csv"}, "labels_file='other.csv': no such table"),
    ],
)
def test_a_table_is_needed_and_must_exist(photos, options, message):
    with pytest.raises(ConfigError, match=message):
        from_folder(photos, PLAIN, **options)


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
        (np.full((2, 2), 0.5), "image 0 has 0.5 for cat, expected 0 or 1"),
        (np.zeros((2, 2, 2), int), "zeros and ones"),
        (np.eye(3)[:2], "have 3 columns, expected 2: cat, dog"),
    ],
)
def test_arrays_that_are_not_zeros_and_ones_of_the_classes_are_refused(labels, message):
    """The message names the image and the class, or lists the classes."""
    with pytest.raises(ConfigError, match=message):
        from_arrays(np.zeros((2, 8, 8, 3), "uint8"), labels, PLAIN, class_names=["cat", "dog"])


def test_unreadable_multi_label_images_are_left_out(photos):
    """Unless a class loses its only image."""
    (photos / "b.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="Left out"):
        data = read(photos, COLUMNS, on_error="skip")
    assert data.class_counts == {"cat": 1, "dog": 1, "eel": 1}
    (photos / "d.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match="No usable image is left of the classes eel"):
        read(photos, COLUMNS, on_error="skip")
