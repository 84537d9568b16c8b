"""The names of the data and the names of the model, by one rule for every source."""

import functools
import unicodedata
from types import SimpleNamespace

import datasets
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import evaluate
from keras_vit.data import from_arrays, from_folder, from_grain, from_huggingface
from keras_vit.errors import ConfigError
from keras_vit.images.class_names import find_names
from tests.data.runs import PLAIN, read_table
from tests.helpers import tiny

IMAGE = np.zeros((16, 16, 3), "uint8")
SPELLINGS = str, str.upper, str.swapcase, functools.partial(unicodedata.normalize, "NFD")


class Loader:
    """A torch data set of images and numbers, as torchvision has them, or a loader of one."""

    def __init__(self, classes=None, labels=(), **fields):
        self.labels = labels
        vars(self).update(fields or {"classes": classes})

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return IMAGE, self.labels[index]

    def __iter__(self):
        yield np.zeros((2, 16, 16, 3), "float32"), np.array([0, 0])


def write(folder, names, by_folder=False):
    for k, name in enumerate(names):
        place = folder / name if by_folder else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGE).save(place / f"{k}.png")
    return folder


def read_folder(names, model, folder):
    data = from_folder(write(folder, names, True), model)
    order = [int(path.rpartition("/")[2][:-4]) for path in data.paths]
    return SimpleNamespace(class_names=data.class_names, labels=data.labels[np.argsort(order)])


def read_label(names, model, folder):
    rows = "".join(f"{k},{name}\n" for k, name in enumerate(names))
    return read_table(write(folder, names), "path,label\n" + rows, prepares=model)


def read_columns(names, model, folder):
    rows = "".join(f"{k},{','.join(map(str, row))}\n" for k, row in enumerate(np.eye(4, dtype=int)))
    text = f"path,{','.join(names)}\n{rows}"
    data = read_table(write(folder, names), text, prepares=model)
    return SimpleNamespace(class_names=data.class_names, labels=data.labels.argmax(axis=1))


def read_huggingface(names, model, folder):
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=[*names])}
    columns = {"image": [Image.fromarray(IMAGE)] * 4, "label": PLACES}
    table = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    return from_huggingface(table, model)


IMAGES, PLACES = [IMAGE] * 4, [0, 1, 2, 3]
SOURCES = {
    "folders": read_folder,
    "a column of labels": read_label,
    "columns of 0 and 1": read_columns,
    "words": lambda names, model, _: from_arrays(IMAGES, [*names], model),
    "places": lambda names, model, _: from_arrays(IMAGES, PLACES, model, class_names=names),
    "the Hub": read_huggingface,
    "torch": lambda names, model, _: from_grain(Loader(names, labels=PLACES), model),
}


NAMES = st.lists(
    st.text("abk\u00e9\u00df\u00fc7", min_size=1, max_size=3),
    min_size=4,
    max_size=4,
    unique_by=lambda name: unicodedata.normalize("NFC", name.casefold()),
)


@pytest.mark.parametrize("source", SOURCES)
def test_the_labels_of_every_source_mean_what_the_model_answers(source, tmp_path_factory):
    """Whatever the order, the capitals and the Unicode form of the names of the data.

    A model without names takes those of the data; other names are refused with both lists.
    """
    task = "multi_label" if source == "columns of 0 and 1" else "single_label"
    model, folder = tiny(num_classes=4, task=task), functools.partial(tmp_path_factory.mktemp, "x")

    @settings(max_examples=12, deadline=None)
    @given(names=NAMES, order=st.permutations(range(4)), spell=st.sampled_from(SPELLINGS))
    def law(names, order, spell):
        model.class_names = [names[k] for k in order]
        spelt = [spell(name) for name in names]
        data = SOURCES[source](spelt, model, folder())
        assert data.class_names == model.class_names
        assert [data.class_names[k] for k in data.labels] == names

    law()
    model.class_names = None
    taken = SOURCES[source]([*"bcad"], model, folder()).class_names
    assert model.class_names == taken and sorted(taken) == [*"abcd"]
    with pytest.raises(ConfigError, match="'bees' has no match.*Not in the data: b. Rename"):
        SOURCES[source](["a", "bees", "c", "d"], model, folder())


def test_numbers_of_classes_are_no_names():
    """A model keeps its names, or has none."""
    named, unnamed = tiny(num_classes=2, class_names=("dog", "cat")), tiny(num_classes=2)
    data = from_arrays([IMAGE] * 2, [1, 0], named)
    assert (data.class_names, data.labels.tolist()) == (("dog", "cat"), [1, 0])
    assert from_arrays([IMAGE] * 2, [1, 0], unnamed).class_names == ("0", "1")
    assert unnamed.class_names is None


def test_data_for_a_preprocessor_keep_their_order_until_they_get_that_of_the_model():
    model = tiny(num_classes=2, class_names=("dog", "cat"))
    data = from_arrays([IMAGE] * 2, ["dog", "cat"], PLAIN).with_class_names(model.class_names)
    data.check(model)
    assert data.labels.tolist() == [0, 1]


def test_fit_knows_the_names_of_the_data_sets_of_keras_and_torch(tmp_path):
    """As training data and for validation; another order than the model's is refused.

    The labels that torchvision's `target_transform` gives have no names.
    """
    folder, model = write(tmp_path, ("cat", "dog"), True), tiny(num_classes=2, rescale=True)
    data = keras.utils.image_dataset_from_directory(folder, image_size=(16, 16), verbose=False)
    model.compile("sgd", "auto")
    model.fit(data, verbose=0)
    assert model.class_names == ("cat", "dog")
    model.class_names = ("dog", "cat")
    images, loader = (np.zeros((2, 16, 16, 3), "float32"), np.zeros(2)), Loader(["cat", "dog"])
    joined, generator = SimpleNamespace(datasets=[loader]), SimpleNamespace()
    generator.class_indices = {"cat": 0, "dog": 1}
    for call in (
        *(lambda data=each: model.fit(data) for each in (data, joined, generator)),
        lambda: model.fit(*images, validation_data=data),
        lambda: model.evaluate(data),
    ):
        with pytest.raises(ConfigError, match="in another order, cat, dog instead of dog, cat"):
            call()
    loader.target_transform = lambda label: 1 - label
    assert find_names(Loader(dataset=loader)) is None


def test_the_scores_of_a_torch_loader_are_found_by_name():
    """Its label 0 is the place 1 of the model's names, in any spelling."""
    model = tiny(num_classes=2, class_names=("dog", "cat"))
    model.get_layer("head").bias.assign([0.0, 1.0])
    assert model.classify(IMAGE)[0][0][0] == "cat"
    assert evaluate(model, Loader(dataset=Loader(["Cat", "DOG"]))).top1 == 1


def test_one_number_of_an_image_may_have_another_name_in_the_data(tmp_path):
    """One output has no order that could be mistaken."""
    model = tiny(num_classes=1, task="regression", class_names=["age"])
    text = "path,years\n0,7\n1,9\n"
    data = read_table(write(tmp_path, "ab"), text, prepares=model, label_column="years")
    assert (data.labels[:, 0].tolist(), model.class_names) == ([7, 9], ("age",))
    assert np.isfinite(evaluate(model, data).mean_absolute_error)
