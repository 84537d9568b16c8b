"""`from_tfds` with a TFDS data set that the test writes from scikit-learn's digits."""

import contextlib
import sys

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.data import from_tfds, tfds
from keras_vit.errors import ConfigError
from tests.digits import digits

PLAIN = Preprocessor(8, channels=1)


def prepare(folder, file_format, name="digits", label=None, **splits):
    """Writes pairs of image and label by a builder of TFDS; by default 60 and 20 digits."""
    import tensorflow_datasets

    features = tensorflow_datasets.features
    train, test, train_digits, test_digits = digits()
    splits = splits or {
        "train": zip(train[:60], train_digits.tolist(), strict=False),
        "test": zip(test[:20], test_digits.tolist(), strict=False),
    }
    label = label or features.ClassLabel(num_classes=10)
    image = features.Image(shape=(8, 8, 1))
    tensorflow_datasets.dataset_builders.AdhocBuilder(
        name=name,
        version="1.0.0",
        features=features.FeaturesDict({"image": image, "label": label}),
        split_datasets={
            split: [(k, {"image": image, "label": label}) for k, (image, label) in enumerate(part)]
            for split, part in splits.items()
        },
        data_dir=folder,
        file_format=file_format,
    ).download_and_prepare()


@pytest.fixture(scope="module", params=["array_record", "tfrecord"])
def data_dir(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    prepare(folder, request.param)
    return folder


def make_rows(images, labels):
    """Sorted pairs of image and label: TFDS shuffles when it writes."""
    return sorted(
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    )


def test_all_images_come_with_their_labels(data_dir, monkeypatch):
    """From array_record and TFRecord files, bit for bit; the former need no TensorFlow."""
    if "array_record" in str(data_dir):
        monkeypatch.setitem(sys.modules, "tensorflow", None)
    data = from_tfds("digits", PLAIN, 60, data_dir=data_dir)
    train, _, train_digits, _ = digits()
    assert make_rows(*data[0]) == make_rows(PLAIN(train[:60]), train_digits[:60])
    assert data.class_names == tuple(map(str, range(10)))
    part = from_tfds("digits", PLAIN, split="test[:50%]", data_dir=data_dir)
    assert part.num_images == 10


def test_a_function_of_the_record_gives_the_labels(data_dir):
    """A list of classes is multi-label; `class_names` name the classes."""
    plain = from_tfds("digits", PLAIN, data_dir=data_dir).labels
    both = np.stack([plain % 2 == 0, plain > 4], axis=1)
    for function, expected in (
        (lambda row: row["label"] % 2, plain % 2),
        (lambda row: np.flatnonzero([row["label"] % 2 == 0, row["label"] > 4]), both),
    ):
        options = {"label_column": function, "class_names": ("x", "y"), "data_dir": data_dir}
        data = from_tfds("digits", PLAIN, **options)
        assert data.class_names == ("x", "y")
        np.testing.assert_array_equal(data.labels, expected)


def test_a_feature_may_be_a_sequence_of_class_labels(tmp_path):
    from tensorflow_datasets import features

    tags = features.Sequence(features.ClassLabel(names=["x", "y"]))
    pairs = [(digits()[0][0], [0, 1]), (digits()[0][1], [])]
    prepare(tmp_path, "array_record", "tagged", tags, train=pairs)
    data = from_tfds("tagged", PLAIN, data_dir=tmp_path)
    assert data.class_names == ("x", "y")
    assert sorted(data.labels.astype(int).tolist()) == [[0, 0], [1, 1]]


REFUSED = [
    ("digist", {}, "digist"),
    ("digits", {"split": "tran"}, "digits/1.0.0, tran: Unknown split"),
    ("digits", {"label_column": "labels"}, "no ClassLabel 'labels'. Did you mean 'label'"),
    ("digits", {"label_column": len}, "class_names need each other"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_unknown_data_sets_splits_and_features_are_refused(data_dir, name, options, message):
    """By name; the library's own words stand in some messages."""
    with pytest.raises(ConfigError, match=message):
        from_tfds(name, PLAIN, data_dir=data_dir, **options)


def test_a_tfrecord_split_too_large_for_memory_is_refused(data_dir, monkeypatch):
    """TFRecord has no random access; array_record has, and is read at any size."""
    monkeypatch.setattr(tfds, "MOST_BYTES", 1000)
    is_refused = pytest.raises(ConfigError, match="convert_format")
    with contextlib.nullcontext() if "array_record" in str(data_dir) else is_refused:
        from_tfds("digits", PLAIN, data_dir=data_dir)
