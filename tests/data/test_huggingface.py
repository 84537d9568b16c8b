"""`from_huggingface`: data sets in memory, Parquet files and image folders."""

import sys

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import from_huggingface
from keras_vit.errors import ConfigError
from tests.digits import digits, write_folders

PLAIN = Preprocessor(8, channels=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """`datasets` keeps its cache in the temporary folder of the test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return tmp_path


def table(**extra):
    """40 digits as a `datasets.Dataset`."""
    import datasets

    images, _, labels, _ = digits()
    pictures = [Image.fromarray(image[..., 0]) for image in images[:40]]
    names = [f"digit {k}" for k in range(10)]
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    columns = {"image": pictures, "label": labels[:40].tolist()}
    for name, values in extra.items():
        columns[name] = values
        features[name] = datasets.Value("string" if isinstance(values[0], str) else "int64")
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def test_a_loaded_data_set_keeps_its_order_and_class_names():
    """Images and labels come in the order of the data set."""
    data = from_huggingface(table(), PLAIN, 40)
    images, _, labels, _ = digits()
    np.testing.assert_array_equal(data[0][0], PLAIN(images[:40]))
    np.testing.assert_array_equal(data[0][1], labels[:40])
    assert data.class_names[3] == "digit 3"


def test_a_parquet_file_is_read_by_builder_name_and_split(cache):
    """Repositories of the Hub hold such files."""
    table().to_parquet(cache / "train.parquet")
    load = {"data_files": str(cache / "train.parquet")}
    data = from_huggingface("parquet", PLAIN, 30, split="train[:30]", load=load)
    assert data.num_images == 30
    np.testing.assert_array_equal(data[0][0], PLAIN(digits()[0][:30]))


def test_an_image_folder_has_its_folders_as_classes(cache):
    """Through the builder `imagefolder` of the library `datasets`."""
    train, _ = write_folders(cache / "digits", train=20, test=0, size=8)
    data = from_huggingface("imagefolder", PLAIN, 20, load={"data_dir": str(train)})
    images, _, labels, _ = digits()
    order = np.argsort(labels[:20], kind="stable")
    np.testing.assert_array_equal(
        data.labels, np.unique(labels[:20], return_inverse=True)[1][order]
    )
    np.testing.assert_array_equal(data[0][0], PLAIN(images[:20][order]))


def test_a_column_of_words_or_numbers_becomes_classes():
    """The classes are the sorted values of the column."""
    words = table(kind=["odd", "even"] * 20, year=[1998, 1997] * 20)
    assert from_huggingface(words, PLAIN, label_column="kind").class_names == ("even", "odd")
    data = from_huggingface(words, PLAIN, label_column="year")
    assert data.class_counts == {"1997": 20, "1998": 20}


def test_unknown_columns_data_sets_and_types_are_refused_by_name(cache):
    """A column may also be missing because the data set has no image."""
    with pytest.raises(ConfigError, match="no column 'lable'. Did you mean 'label'"):
        from_huggingface(table(), PLAIN, label_column="lable")
    with pytest.raises(ConfigError, match="not one column 'image'"):
        from_huggingface(table().rename_column("image", "a").remove_columns("a"), PLAIN)
    with pytest.raises(ConfigError, match="expected one split of a datasets.Dataset, found dict"):
        from_huggingface({"train": table()}, PLAIN)
    with pytest.raises(ConfigError, match="imagefolder, train"):
        from_huggingface("imagefolder", PLAIN, load={"data_dir": str(cache / "absent")})


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["a", None], "image 1 has the label None; expected a word or integer"),
        ([["a"], None], "image 1 has None, expected a list of its labels"),
        ([["a"], ["b", None]], "image 1 has .*None.*, expected a list of its labels"),
    ],
)
def test_rows_without_a_label_are_refused_by_number(tags, message):
    """A column of lists has an empty list for an image without labels."""
    pictures = table().select(range(2)).add_column("tags", tags)
    with pytest.raises(ConfigError, match=message):
        from_huggingface(pictures, PLAIN, label_column="tags")


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    """The import of `datasets` fails."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'keras-vit\[huggingface\]'"):
        from_huggingface("digits", PLAIN)


@pytest.mark.parametrize("named", [True, False], ids=["class labels", "words"])
def test_a_column_of_lists_is_multi_label(named):
    """Of numbers with names, or of words; a list may be empty."""
    import datasets

    lists = [[0, 2], [], [1]]
    kind = datasets.ClassLabel(names=["ape", "bee", "cat"]) if named else datasets.Value("string")
    words = [[["ape", "bee", "cat"][k] for k in row] for row in lists]
    pictures = [Image.fromarray(np.zeros((8, 8), "uint8"))] * 3
    features = datasets.Features({"image": datasets.Image(), "tags": datasets.Sequence(kind)})
    columns = {"image": pictures, "tags": lists if named else words}
    rows = datasets.Dataset.from_dict(columns, features=features)
    data = from_huggingface(rows, PLAIN, label_column="tags")
    assert data.class_names == ("ape", "bee", "cat")
    assert data.labels.astype(int).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
