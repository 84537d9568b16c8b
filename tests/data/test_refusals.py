"""Folders, tables, arrays and options that are refused before the first training step."""

import shutil
import sys

import datasets
import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import (
    Augmentation,
    ImageSource,
    Views,
    from_arrays,
    from_folder,
    from_grain,
    from_huggingface,
    from_tfds,
)
from keras_vit.errors import ConfigError
from tests.data.runs import AGE, AGES, COLUMNS, PLAIN, masked, numbered, read_numbers, read_table
from tests.helpers import tiny

GREY = Preprocessor(8, channels=1)
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8), "uint8")
LABELS = np.array([0, 1, 2, 0, 1, 2])
ONE = "path,label\na.png,x\nb.png,y\nmore/c.png,y\nd.png,z\n"
NUMBERS, SINGLE = {"task": "regression"}, {"task": "single_label"}
TWO = {"class_names": ["age", "height"], **NUMBERS}
NAMED = {"num_classes": 2, "class_names": [*"dc"]}
AGED = {"num_classes": 1, **NUMBERS}
LIGHT = {"augmentation": "light2"}
SIDES, MASK = (16, 16), Image.new("L", (16, 16), 9)
SIZELESS, PACKED = Preprocessor(None, 1), Preprocessor(8, 1, patch_size=4)
VIEWS = Views(16, 8)
LARGE = {"image_size": 64, "patch_size": 32, "channels": 1}


def arrays(labels=LABELS, images=IMAGES, prepares=GREY, **options):
    return from_arrays(images, labels, prepares, **options)


def two(labels, prepares=PLAIN, **options):
    """Two images with labels."""
    return arrays(labels, np.zeros((2, 16, 16, 3), "uint8"), prepares, **options)


def pets(world, **options):
    return from_folder(world.folder, PLAIN, **options)


def without_eels(world):
    """The folder of classes, in which all images of one class are damaged."""
    for path in (world.folder / "eel").rglob("*.*"):
        path.write_bytes(b"not an image")
    return pets(world, on_error="skip")


def twins(world):
    shutil.copy(world.photos / "a.png", world.photos / "a.bmp")
    return read_table(world.photos, "id,label\na,x\n")


def photos(world, text, name="labels.csv", **options):
    return read_table(world.photos, text, name, **options)


def ages(world, old=" ", new=" ", text=AGE, **options):
    return read_numbers(world.photos, text.replace(old, new), **options)


def rows(labels, **options):
    """A data set of the Hub with a column of labels."""
    columns = {"image": [Image.fromarray(IMAGES[0])] * len(labels), "tags": labels}
    table = datasets.Dataset.from_dict(columns)
    return from_huggingface(table, GREY, **{"label_column": "tags", **options})


def viewed(world, prepares=PLAIN, views=VIEWS, batch_size=4):
    """The four photographs of 16 pixels as views."""
    return from_folder(world.photos, prepares, batch_size, augmentation=views)


class Endless(list):
    """Records that repeat without end."""

    def __len__(self):
        return 2**60


RECORDS = [(IMAGES[0], 0), None, (IMAGES[1], 1)]
ALL = {
    # Arrays and their labels
    "a label beyond the names": (lambda w: arrays(class_names="ab"), "label 2 of image 2"),
    "too few labels": (lambda w: arrays(LABELS[:5]), "6 images and 5 labels"),
    "labels that are fractions": (lambda w: arrays(LABELS / 2), "labels are float64"),
    "a label that is NaN": (lambda w: arrays(["a", "b", float("nan")] * 2), "label nan"),
    "labels of many lengths": (lambda w: arrays([[0], [1, 2], []] * 2), "differ in length"),
    "no images": (lambda w: arrays(LABELS[:0], IMAGES[:0]), "no images"),
    "pixels below zero": (lambda w: arrays(images=IMAGES - 300.0), "6 of 6 images cannot be used"),
    "one image": (lambda w: arrays(images=IMAGES[0]), "(8, 8)"),
    "other channels": (lambda w: two([0, 1], GREY), "channels=1, found"),
    "no preprocessor": (lambda w: arrays(prepares="me"), "preprocessor='me'"),
    "labels that are 0.5": (lambda w: two(np.full((2, 2), 0.5), class_names="ab"), "0.5 for a"),
    "three columns, two names": (lambda w: two(np.eye(3)[:2], class_names="ab"), "3 columns"),
    # Options
    "a crop without a size": (lambda w: arrays(prepares=SIZELESS, **LIGHT), "image_size, found"),
    "mixed patches": (lambda w: arrays(prepares=PACKED, **LIGHT), "found packed patches"),
    "a falling crop": (lambda w: Augmentation(crop=(0.5, 0.1)), "crop=(0.5, 0.1)"),
    "a negative mixup": (lambda w: Augmentation(mixup=-0.1), "mixup=-0.1"),
    "an unknown augmentation": (lambda w: numbered(augmentation="lihgt1"), "'light1'"),
    "a batch of no images": (lambda w: numbered(batch_size=0), "batch_size"),
    "a negative seed": (lambda w: numbered(seed=-1), "seed=-1"),
    "an unknown on_error": (lambda w: numbered(on_error="ignore"), "on_error='ignore'"),
    "a shard too many": (lambda w: numbered(shard=(2, 2)), "index < count"),
    "a batch in three shards": (lambda w: numbered(shard=(0, 3), shuffle=True), "multiple of 3"),
    "more than all held out": (lambda w: numbered().hold_out(1.5), "1.5"),
    "one image of each class": (lambda w: numbered().hold_out(0.5), "at least two images"),
    # Views
    "fewer images than a batch": (lambda w: viewed(w, batch_size=8), "give batch_size=4 or less"),
    "a view larger than images": (lambda w: viewed(w, views=Views(24, 24)), "at least 24x24"),
    "views without sizes": (lambda w: viewed(w, views=Views(16)), "Views both sizes"),
    "views of four channels": (lambda w: viewed(w, Preprocessor(16, 4)), "channels=1 or 3"),
    "views of packed patches": (lambda w: viewed(w, PACKED), "for views, a model of another stem"),
    "views for a classifier": (lambda w: viewed(w, tiny(**NAMED)), "found num_classes=2"),
    "views of masks": (lambda w: masked(w, augmentation=VIEWS, batch_size=4), "found views"),
    # Folders
    "an empty class": (lambda w: (w.folder / "fox").mkdir() or pets(w), "no images in fox"),
    "an image beside classes": (
        lambda w: from_folder(w.photos, PLAIN),
        "found a.png outside of them",
    ),
    "a class of damaged images": (without_eels, "the classes eel"),
    "an absent folder": (lambda w: from_folder(w.path / "absent", PLAIN), "found nothing"),
    "a misspelt class": (lambda w: pets(w, class_names=["dgo"]), "'dog'"),
    "three differences of a model": (lambda w: pets(w).check(tiny(**LARGE)), "20x24 pixels"),
    "another number of classes": (lambda w: from_folder(w.folder, tiny(), min_size=1), "has 5"),
    "an empty name": (lambda w: ImageSource("").read(PLAIN), "an empty name"),
    # Tables
    "a path without an image": (lambda w: photos(w, ONE + "e.png,x\n"), "line 6: no image 'e.png'"),
    "a path of two images": (twins, "line 2: no image 'a'"),
    "two labels of an image": (lambda w: photos(w, ONE + "./a.png,z\n"), "an earlier row"),
    "a label of 2": (lambda w: photos(w, COLUMNS.replace("1.0", "2")), "expected 0 or 1"),
    "a short row": (lambda w: photos(w, COLUMNS + "x.png,1\n"), "line 6: this table"),
    "no header": (lambda w: photos(w, "a.png,cat\nb.png,dog\n"), "path_column="),
    "no column of labels": (lambda w: photos(w, "path\na.png\n"), "label_column="),
    "damaged JSON": (lambda w: photos(w, '{"path": "a.png"}\n{', "x.jsonl"), "line 2: this table"),
    "a column without a table": (lambda w: pets(w, label_column="kind"), "label_column="),
    "an absent table": (lambda w: pets(w, labels_file="other.csv"), "not found, neither"),
    "weights of multi-label": (lambda w: photos(w, COLUMNS).class_weight, "positive_weights"),
    # Numbers
    "a word for a number": (lambda w: ages(w, "8\n", "old\n"), "line 3: the column age has 'old'"),
    "an unknown column": (lambda w: ages(w, text=AGES, class_names=["weight"]), "'weight'"),
    "numbers of folders": (lambda w: pets(w, **NUMBERS), "needs a table"),
    "numbers without a task": (lambda w: ages(w, text=AGES, task=None), "give task='regression'"),
    "a number that is NaN": (lambda w: two([1.0, float("nan")], **NUMBERS), "image 1 has nan"),
    "numbers for a classifier": (lambda w: two([0.5, 1.5], tiny(), **NUMBERS), "have 'regression'"),
    "classes for a regression": (lambda w: two([0, 0], tiny(**AGED), **SINGLE), "'single_label'"),
    "two numbers for one": (lambda w: two(np.eye(2), tiny(**AGED), **TWO), "the model has 1"),
    # Names
    "classes in another order": (lambda w: two([*"dc"]).check(tiny(**NAMED)), "another order"),
    # Masks and depth maps
    "masks without a task": (lambda w: masked(w, task=None), "found task=None"),
    "masks for a classifier": (lambda w: masked(w, None, tiny(num_classes=4)), "'single_label'"),
    "a task without masks": (lambda w: pets(w, task="depth"), "targets="),
    "a mask of colours": (lambda w: masked(w, Image.new("RGB", SIDES)), "PNG of mode RGB"),
    "an absent mask": (lambda w: (w.masks / "a.png").unlink() or masked(w), "No target for"),
    "a mask too many": (lambda w: masked(w, MASK, name="e.png"), "No image for"),
    "two masks of an image": (lambda w: masked(w, MASK, name="a.bmp"), "one file with this name"),
    "a mask of another size": (lambda w: masked(w, Image.new("L", (9, 16))), "expected (16, 16)"),
    "a class beyond the names": (lambda w: masked(w, MASK), "a.png: found 9, expected"),
    "mixed masks": (lambda w: masked(w, augmentation="light2"), "one_hot=True, RandAugment."),
    # Records of Grain and of the Hub
    "a stream": (lambda w: from_grain(iter([]), GREY), "cannot be indexed"),
    "an endless repetition": (lambda w: from_grain(Endless(), GREY), "repeat without end"),
    "a record filtered out": (lambda w: from_grain(RECORDS, GREY), "record 1 was removed by"),
    "records of bytes": (lambda w: from_grain([b"", b""], GREY), "record 0 is bytes"),
    "an unknown column of labels": (lambda w: rows(["a"], label_column="tgas"), "'tags'"),
    "no column of images": (lambda w: rows(["a"], image="picture"), "no column 'picture'"),
    "a dictionary of splits": (lambda w: from_huggingface({"train": 1}, GREY), "found dict"),
    "a row without a label": (lambda w: rows(["a", None]), "image 1 has the label None"),
}
REFUSALS = {name: (call, ConfigError, words) for name, (call, words) in ALL.items()}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


@pytest.mark.parametrize("read", [from_tfds, from_huggingface])
def test_without_the_library_the_message_says_what_to_install(read, monkeypatch):
    for library in ("tensorflow_datasets", "datasets"):
        monkeypatch.setitem(sys.modules, library, None)
    extra = read.__name__.removeprefix("from_")
    with pytest.raises(ConfigError, match=rf"pip install 'keras-vit-zoo\[{extra}\]'"):
        read("digits", PLAIN)
