"""Data whose labels are numbers (regression): a folder with a table, and arrays."""

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.data import Augmentation, ImageSource, from_arrays, from_folder
from keras_vit.errors import ConfigError
from tests.helpers import tiny

PLAIN = Preprocessor(16)
AGES = {"a.png": 34.5, "b.png": 8, "more/c.png": -1e3, "d.png": 0.25}

ONE = "path,age\na.png,34.5\nb.png,8\nmore/c.png,-1e3\nd.png,0.25\n"
TWO = "path,age,height\na.png,34.5,1\nb.png,8,2\nmore/c.png,-1e3,3\nd.png,0.25,4\n"


def read(photos, text, preprocessor=PLAIN, task="regression", **options):
    (photos / "ages.csv").write_text(text)
    return from_folder(photos, preprocessor, labels_file="ages.csv", task=task, **options)


def by_path(photos, data) -> dict[str, list[float]]:
    """The numbers of every image, by its path in the folder."""
    paths = [path.removeprefix(f"{photos}/") for path in data.paths]
    return dict(zip(paths, data.labels.tolist(), strict=True))


def test_a_table_of_one_number_gives_a_column_of_float32(photos):
    data = read(photos, ONE)
    assert data.task == "regression"
    assert not data.one_hot
    assert by_path(photos, data) == {path: [age] for path, age in AGES.items()}
    _, numbers = data[0]
    assert (numbers.dtype, numbers.shape) == ("float32", (4, 1))
    assert data.class_names == ("age",)


@pytest.mark.parametrize("word", ["class_names", "label_column"])
def test_names_choose_the_numbers_and_their_order(photos, word):
    expected = {path: [k + 1, age] for k, (path, age) in enumerate(AGES.items())}
    assert by_path(photos, read(photos, TWO, **{word: ["height", "age"]})) == expected
    heights = read(photos, TWO, **{word: ["height"]})
    assert heights.class_names == ("height",)
    assert by_path(photos, heights) == {path: row[:1] for path, row in expected.items()}


def test_a_model_of_numbers_chooses_its_columns(photos):
    model = tiny(num_classes=2, class_names=("height", "age"), task="regression")
    assert read(photos, TWO, model).class_names == model.class_names
    assert read(photos, TWO).class_names == ("age", "height")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE.replace("8\n", "old\n"), "the column age has 'old', expected a number"),
        (ONE.replace(",8\n", ",\n"), "the column age has ''"),
        (ONE.replace(",8\n", ",nan\n"), "the column age has 'nan'"),
        (ONE.replace(",8\n", ",1e99\n"), "the column age has '1e99'"),
        (TWO.replace("8,2", "8,inf"), "the column height has 'inf'"),
    ],
)
def test_numbers_that_cannot_be_read_are_refused_with_file_line_and_value(photos, text, message):
    with pytest.raises(ConfigError, match=f"ages.csv, line 3: {message}"):
        read(photos, text)


def test_hold_out_divides_images_with_numbers_at_random(photos):
    data = from_arrays(np.zeros((20, 16, 16, 3), "uint8"), np.arange(20), PLAIN, task="regression")
    train, held_out = data.hold_out(0.25)
    assert (train.num_images, held_out.num_images) == (15, 5)
    assert held_out.task == "regression"
    both = np.concatenate([train.labels, held_out.labels])
    assert sorted(both[:, 0].tolist()) == list(range(20))
    (photos / "ages.csv").write_text(TWO)
    source = ImageSource(photos, labels_file="ages.csv", task="regression")
    train, held_out = source.read_with_validation(PLAIN, photos)
    np.testing.assert_array_equal(train.labels, held_out.labels)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_numbers_are_mixed_as_the_images_are(photos, kind):
    """Every image is of one value, and its number is that value."""
    pixels = np.arange(8, dtype="uint8")[:, None, None, None] * np.full((16, 16, 3), 30, "uint8")
    numbers = np.arange(8) * 30
    changes = Augmentation(crop=None, flip=False, **{kind: 1.0})
    data = from_arrays(pixels, numbers, PLAIN, 8, augmentation=changes, task="regression")
    assert not data.one_hot
    images, mixed = data[0]
    assert mixed.shape == (8, 1)
    assert not set(mixed[:, 0].tolist()) <= set(numbers.tolist())
    means = (images.mean(axis=(1, 2, 3)) + 1) * 127.5
    np.testing.assert_allclose(mixed[:, 0], means, atol=0.5)


def of_arrays(numbers, model=PLAIN, **options):
    return from_arrays(np.zeros((2, 16, 16, 3), "uint8"), numbers, model, **options)


def of_numbers():
    return tiny(num_classes=1, task="regression")


NUMBERS, LABELLED = {"task": "regression"}, "For numbers give task='regression'"
TWO_NAMES = {"class_names": ["age", "height"], **NUMBERS}
REFUSED = [
    (
        lambda at: read(at, TWO, class_names=["weight"]),
        "column 'weight'. The columns are path, age",
    ),
    (lambda at: from_folder(at, PLAIN, **NUMBERS), "task= needs a table"),
    (lambda at: ImageSource("tfds:mnist", **NUMBERS).read(PLAIN), "a data set has no task="),
    (lambda at: read(at, TWO, task=None), LABELLED),
    *(
        (lambda at, name=name: getattr(read(at, ONE), name), "numbers, which have no class to cou")
        for name in ("class_counts", "class_weight", "positive_weights")
    ),
    (lambda at: read(at, TWO, task="single_label"), "expected one column of labels"),
    (lambda at: read(at, ONE, task="number"), "task='number' is not one of single_label, multi"),
    (lambda _: of_arrays(np.array([1.0, np.nan]), **NUMBERS), "image 1 has nan for 0, expected a"),
    (lambda _: of_arrays(np.array(["1", "x"]), **NUMBERS), "which do not fit task='regression'"),
    (lambda _: of_arrays(np.zeros((2, 3)), **TWO_NAMES), "have 3 columns, expected 2: age"),
    (
        lambda _: of_arrays([0.5, 1.5], tiny(num_classes=2), **NUMBERS),
        "task='single_label', the data have 'regression'; read",
    ),
    (lambda _: of_arrays([0, 0], of_numbers(), task="single_label"), "or load the model with task"),
    (lambda _: of_arrays([0.5, 1.5]), "which do not fit task='single_label'"),
    (lambda _: of_arrays(np.eye(2), of_numbers(), **TWO_NAMES), "model has 1 numbers, the data 2"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_for_numbers_is_refused_with_the_fix(photos, call, message):
    with pytest.raises(ConfigError, match=message):
        call(photos)
