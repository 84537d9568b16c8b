"""The names of the data and the names of the model, by one rule for every source."""

import functools
import unicodedata
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import Preprocessor, VisionTransformer, evaluate
from keras_vit.data import from_arrays, from_folder, from_grain, from_huggingface
from keras_vit.errors import ConfigError
from keras_vit.images.class_names import find_names
from tests.helpers import tiny

IMAGE = np.zeros((16, 16, 3), "uint8")
MODEL = tiny(num_classes=4)
SPELLINGS = {
    "same": str,
    "upper": str.upper,
    "swapped": str.swapcase,
    "NFD": lambda name: unicodedata.normalize("NFD", name),
}


class Loader:
    """A torch data set of images and numbers, as torchvision has them, or a loader of one."""

    def __init__(self, classes=None, dataset=None, labels=()):
        self.labels = labels
        if dataset is None:
            self.classes = classes
        else:
            self.dataset = dataset

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return IMAGE, self.labels[index]


def write(folder, names, by_folder):
    for k, name in enumerate(names):
        place = folder / name if by_folder else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGE).save(place / f"{k}.png")
    return folder


def read_folder(names, model, folder):
    data = from_folder(write(folder, names, True), model)
    order = [int(path.rpartition("/")[2][:-4]) for path in data.paths]
    return data.class_names, data.labels[np.argsort(order)]


def read_table(names, model, folder):
    rows = "".join(f"{k},{name}\n" for k, name in enumerate(names))
    (write(folder, names, False) / "labels.csv").write_text("path,label\n" + rows, "utf-8")
    data = from_folder(folder, model, labels_file="labels.csv")
    return data.class_names, data.labels


def read_columns(names, model, folder):
    rows = "".join(f"{k},{','.join(map(str, row))}\n" for k, row in enumerate(np.eye(4, dtype=int)))
    table = f"path,{','.join(names)}\n{rows}"
    (write(folder, names, False) / "labels.csv").write_text(table, "utf-8")
    data = from_folder(folder, model, labels_file="labels.csv")
    return data.class_names, data.labels.argmax(axis=1)


def read_words(names, model, folder):
    data = from_arrays([IMAGE] * 4, names, model)
    return data.class_names, data.labels


def read_numbers(names, model, folder):
    data = from_arrays([IMAGE] * 4, [0, 1, 2, 3], model, class_names=names)
    return data.class_names, data.labels


def read_huggingface(names, model, folder):
    import datasets

    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    columns = {"image": [Image.fromarray(IMAGE)] * 4, "label": [0, 1, 2, 3]}
    table = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    data = from_huggingface(table, model)
    return data.class_names, data.labels


def read_torch(names, model, folder):
    data = from_grain(Loader(names, labels=[0, 1, 2, 3]), model)
    return data.class_names, data.labels


SOURCES = [
    read_folder,
    read_table,
    read_columns,
    read_words,
    read_numbers,
    read_huggingface,
    read_torch,
]
NAMES = st.lists(
    st.text("abk\u00e9\u00df\u00fc7", min_size=1, max_size=3),
    min_size=4,
    max_size=4,
    unique_by=lambda name: unicodedata.normalize("NFC", name.casefold()),
)


@pytest.mark.parametrize("read", SOURCES)
@settings(max_examples=15, deadline=None)
@given(names=NAMES, order=st.permutations(range(4)), spell=st.sampled_from(sorted(SPELLINGS)))
def test_the_labels_of_every_source_mean_what_the_model_answers(
    read, names, order, spell, tmp_path_factory
):
    """Whatever the order, the capitals and the Unicode form of the names of the data."""
    model = {read_columns: tiny(num_classes=4, task="multi_label")}.get(read, MODEL)
    model.class_names = [names[k] for k in order]
    given_names = [SPELLINGS[spell](name) for name in names]
    found, labels = read(given_names, model, tmp_path_factory.mktemp("data"))
    assert found == model.class_names
    assert [found[k] for k in labels] == names


@pytest.mark.parametrize("read", SOURCES)
def test_other_names_than_the_models_are_refused_with_both_lists(read, tmp_path):
    model = tiny(num_classes=4, task="multi_label" if read is read_columns else "single_label")
    model.class_names = ["ant", "bee", "cat", "dog"]
    with pytest.raises(ConfigError, match="'dogs' fits none.*Not in the data: dog. Rename"):
        read(["bee", "cat", "ant", "dogs"], model, tmp_path)


@pytest.mark.parametrize("read", SOURCES)
def test_a_model_without_names_takes_those_of_the_data(read, tmp_path):
    """Other data then have to have them; data for a `Preprocessor` are compared by `check`."""
    model = tiny(num_classes=4, task="multi_label" if read is read_columns else "single_label")
    names, _ = read(["bee", "cat", "ant", "dog"], model, tmp_path / "first")
    assert model.class_names == names and sorted(names) == ["ant", "bee", "cat", "dog"]
    with pytest.raises(ConfigError, match="'owl' fits none"):
        read(["bee", "cat", "ant", "owl"], model, tmp_path / "second")


def test_numbers_of_classes_are_no_names():
    """A model keeps its names, or has none."""
    named, unnamed = tiny(num_classes=2, class_names=("dog", "cat")), tiny(num_classes=2)
    data = from_arrays([IMAGE] * 2, [1, 0], named)
    assert (data.class_names, data.labels.tolist()) == (("dog", "cat"), [1, 0])
    assert from_arrays([IMAGE] * 2, [1, 0], unnamed).class_names == ("0", "1")
    assert unnamed.class_names is None


def test_check_refuses_the_classes_of_a_model_in_another_order():
    """The data for a `Preprocessor` keep their order until they get that of the model."""
    model = tiny(num_classes=2, class_names=("dog", "cat"))
    data = from_arrays([IMAGE] * 2, ["dog", "cat"], Preprocessor(16))
    with pytest.raises(ConfigError, match="classes in another order.*with_class_names"):
        data.check(model)
    data = data.with_class_names(model.class_names)
    data.check(model)
    assert data.labels.tolist() == [0, 1]


def test_fit_and_evaluate_know_the_names_of_keras_own_data_sets(tmp_path):
    """As training data and for validation; another order than the model's is refused."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(IMAGE).save(tmp_path / name / "0.png")
    read = functools.partial(
        keras.utils.image_dataset_from_directory, tmp_path, image_size=(16, 16), verbose=False
    )
    model = tiny(num_classes=2, rescale=True)
    model.compile("sgd", "auto")
    model.fit(read(), verbose=0)
    assert model.class_names == ("cat", "dog")
    model.class_names = ("dog", "cat")
    images = np.zeros((2, 16, 16, 3), "float32"), np.zeros(2)
    model.fit(*images, validation_data=read(class_names=["dog", "cat"]), verbose=0)
    for call in (
        lambda: model.fit(read(), verbose=0),
        lambda: model.fit(*images, validation_data=read(), verbose=0),
        lambda: model.evaluate(read(), verbose=0),
    ):
        with pytest.raises(ConfigError, match="in another order, cat, dog and not dog, cat"):
            call()


def test_only_labels_that_are_places_have_the_names_of_their_data_set():
    """torchvision's `target_transform` gives others; joined data sets and generators have names."""
    model = tiny(num_classes=2, class_names=("dog", "cat"))
    loader = Loader(["cat", "dog"])
    loader.target_transform = lambda label: 1 - label
    assert find_names(Loader(dataset=loader)) is None
    joined, generator = SimpleNamespace(datasets=[Loader(["cat", "dog"])]), SimpleNamespace()
    generator.class_indices = {"cat": 0, "dog": 1}
    for data in (joined, generator, Loader(["1", "0"])):
        with pytest.raises(ConfigError, match="another order|fits none"):
            model.fit(data)


def test_numbers_of_a_regression_are_no_class_names(tmp_path):
    """Keras names the different numbers; a model keeps the names of its outputs."""
    for k in range(3):
        Image.fromarray(IMAGE).save(tmp_path / f"{k}.png")
    model = tiny(num_classes=1, task="regression", class_names=("age",), rescale=True)
    model.compile("sgd", "auto")
    data = keras.utils.image_dataset_from_directory(
        tmp_path, labels=[0.5, 1.5, 2.5], image_size=(16, 16), verbose=False
    )
    model.fit(data, verbose=0)
    assert model.class_names == ("age",)


def test_after_fit_a_model_answers_with_the_names_of_the_folders(tmp_path):
    """In its own spelling and order; the scores of a torch loader are found by name too."""
    for k, name in enumerate(("Bird", "Dog", "cat")):
        (tmp_path / name).mkdir()
        pixels = np.zeros((16, 16, 3), "uint8")
        pixels[..., k] = 255
        Image.fromarray(pixels).save(tmp_path / name / "0.png")
    keras.utils.set_random_seed(0)
    model = tiny(num_classes=3, class_names=("dog", "cat", "bird"))
    data = from_folder(tmp_path, model)
    model.compile(keras.optimizers.Adam(0.01), "auto")
    model.fit(data, epochs=30, shuffle=False, verbose=0)
    answers = [answer[0][0] for answer in model.classify(data.paths)]
    assert answers == ["bird", "dog", "cat"]
    assert evaluate(model, data).top1 == 1

    class Batches(Loader):
        def __iter__(self):
            yield data[0][0], np.array([0, 1, 2])

    loader = Batches(dataset=Loader(dataset=Loader(["Bird", "Dog", "cat"])))
    assert evaluate(model, loader).top1 == 1


def test_a_preset_keeps_the_names_that_the_data_gave(tmp_path):
    model = tiny(num_classes=2)
    from_arrays([IMAGE] * 2, ["dog", "cat"], model)
    model.save_to_preset(tmp_path / "preset")
    assert VisionTransformer.from_preset(tmp_path / "preset").class_names == ("cat", "dog")


def test_one_number_of_an_image_may_have_another_name_in_the_data(tmp_path):
    """One output has no order that could be mistaken."""
    model = tiny(num_classes=1, task="regression", class_names=["age"])
    (write(tmp_path, "ab", False) / "labels.csv").write_text("path,years\n0,7\n1,9\n", "utf-8")
    data = from_folder(tmp_path, model, label_column="years", labels_file="labels.csv")
    assert (data.labels[:, 0].tolist(), model.class_names) == ([7, 9], ("age",))
    assert np.isfinite(evaluate(model, data).mean_absolute_error)
