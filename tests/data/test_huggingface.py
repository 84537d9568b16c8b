"""`from_huggingface`: data sets in memory, Parquet files and image folders."""

import datasets
import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import from_huggingface
from keras_vit.errors import ConfigError
from tests.digits import digits, write_folders

PLAIN = Preprocessor(8, channels=1)
IMAGES, _, LABELS, _ = digits()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """`datasets` keeps its cache in the temporary folder of the test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return tmp_path


def table(labels, name="label"):
    """Digits with a column of labels, as a `datasets.Dataset`."""
    pictures = [Image.fromarray(image[..., 0]) for image in IMAGES[: len(labels)]]
    return datasets.Dataset.from_dict({"image": pictures, name: labels})


def test_a_loaded_data_set_keeps_its_order_and_class_names():
    kind = datasets.ClassLabel(names=[f"digit {k}" for k in range(10)])
    loaded = table(LABELS[:40].tolist()).cast_column("label", kind)
    data = from_huggingface(loaded, PLAIN, 40)
    np.testing.assert_array_equal(data[0][0], PLAIN(IMAGES[:40]))
    np.testing.assert_array_equal(data[0][1], LABELS[:40])
    assert data.class_names[3] == "digit 3"


def test_an_image_folder_has_its_folders_as_classes(cache):
    """Through the builder `imagefolder` of the library `datasets`; an absent one is refused."""
    train, _ = write_folders(cache / "digits", train=20, test=0, size=8)
    load = {"data_dir": str(train)}
    assert from_huggingface("imagefolder", PLAIN, split="train[:5]", load=load).num_images == 5
    data = from_huggingface("imagefolder", PLAIN, 20, load=load)
    order = np.argsort(LABELS[:20], kind="stable")
    places = np.unique(LABELS[:20], return_inverse=True)[1]
    np.testing.assert_array_equal(data.labels, places[order])
    np.testing.assert_array_equal(data[0][0], PLAIN(IMAGES[:20][order]))
    with pytest.raises(ConfigError, match="imagefolder, train"):
        from_huggingface("imagefolder", PLAIN, load={"data_dir": str(cache / "absent")})


LISTS = [[0, 2], [], [1]]
HOT = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
COLUMNS = {
    "words": (["odd", "even"] * 2, None, ("even", "odd"), [1, 0] * 2),
    "numbers": ([1998, 1997] * 2, None, ("1997", "1998"), [1, 0] * 2),
    "lists of words": ([["abc"[k] for k in row] for row in LISTS], None, tuple("abc"), HOT),
    "lists of classes": (LISTS, datasets.ClassLabel(names=[*"abc"]), tuple("abc"), HOT),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_words_numbers_or_lists_becomes_classes(name):
    """The classes are the sorted values of the column; lists are multi-label and may be empty."""
    values, kind, names, expected = COLUMNS[name]
    rows = table(values, name="kind")
    if kind:
        rows = rows.cast_column("kind", datasets.Sequence(kind))
    data = from_huggingface(rows, PLAIN, label_column="kind")
    assert (data.class_names, data.labels.astype(int).tolist()) == (names, expected)
