"""`from_tfds` with a TFDS data set that the test writes from scikit-learn's digits."""

import subprocess
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
    tensorflow_datasets.dataset_builders.AdhocBuilder(
        name=name,
        version="1.0.0",
        features=features.FeaturesDict(
            {
                "image": features.Image(shape=(8, 8, 1)),
                "label": label or features.ClassLabel(num_classes=10),
            }
        ),
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


def test_all_images_come_with_their_labels(data_dir):
    """From array_record and TFRecord files, bit for bit."""
    data = from_tfds("digits", PLAIN, 60, data_dir=data_dir)
    train, _, train_digits, _ = digits()
    assert make_rows(*data[0]) == make_rows(PLAIN(train[:60]), train_digits[:60])
    assert data.class_names == tuple(map(str, range(10)))
    part = from_tfds("digits", PLAIN, split="test[:50%]", data_dir=data_dir)
    assert part.num_images == 10


def test_a_function_of_the_record_gives_the_labels(data_dir):
    """`label_column` may be a function; `class_names` must then name its classes."""

    def parity(record):
        return record["label"] % 2

    names = ("even", "odd")
    data = from_tfds("digits", PLAIN, data_dir=data_dir, label_column=parity, class_names=names)
    plain = from_tfds("digits", PLAIN, data_dir=data_dir)
    assert data.class_names == names
    assert data.labels.tolist() == (plain.labels % 2).tolist()
    for named in ({"label_column": parity}, {"class_names": names}):
        with pytest.raises(ConfigError, match="a function and class_names need each other"):
            from_tfds("digits", PLAIN, data_dir=data_dir, **named)


def test_unknown_data_sets_splits_and_features_are_refused_by_name(data_dir):
    """With the nearest name where there is one."""
    with pytest.raises(ConfigError, match="digist"):
        from_tfds("digist", PLAIN, data_dir=data_dir)
    with pytest.raises(ConfigError, match="digits/1.0.0, tran: Unknown split"):
        from_tfds("digits", PLAIN, split="tran", data_dir=data_dir)
    with pytest.raises(ConfigError, match="no ClassLabel 'labels'. Did you mean 'label'"):
        from_tfds("digits", PLAIN, data_dir=data_dir, label_column="labels")


def test_a_tfrecord_split_too_large_for_memory_is_refused(data_dir, monkeypatch):
    """TFRecord has no random access; array_record has, and is read at any size."""
    monkeypatch.setattr(tfds, "MOST_BYTES", 1000)
    if "array_record" in str(data_dir):
        from_tfds("digits", PLAIN, data_dir=data_dir)
        return
    with pytest.raises(ConfigError, match="convert_format"):
        from_tfds("digits", PLAIN, data_dir=data_dir)


def test_array_record_is_read_without_tensorflow(tmp_path):
    """Under a backend other than TensorFlow, the process never imports TensorFlow."""
    prepare(tmp_path, "array_record")
    code = (
        "import sys; from keras_vit import Preprocessor; from keras_vit.data import from_tfds; "
        "data = from_tfds('digits', Preprocessor(8, 1), split='test', data_dir=sys.argv[1]); "
        "assert data[0][0].shape == (20, 8, 8, 1); assert 'tensorflow' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {"KERAS_BACKEND": "numpy", "PATH": "", "HOME": str(tmp_path)}
    subprocess.run(command, env=environment, check=True)


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    """The import of `tensorflow_datasets` fails."""
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'keras-vit\[tfds\]'"):
        from_tfds("digits", PLAIN)


def test_a_function_or_sequence_of_classes_is_multi_label(data_dir, tmp_path):
    """A function may return a list of classes; a feature may be a sequence of class labels."""
    names = ("even", "above 4")
    data = from_tfds(
        "digits",
        PLAIN,
        label_column=lambda row: [
            k for k, has in enumerate((row["label"] % 2 == 0, row["label"] > 4)) if has
        ],
        class_names=names,
        data_dir=data_dir,
    )
    plain = from_tfds("digits", PLAIN, data_dir=data_dir).labels
    np.testing.assert_array_equal(data.labels, np.stack([plain % 2 == 0, plain > 4], axis=1))

    from tensorflow_datasets import features

    tags = features.Sequence(features.ClassLabel(names=list(names)))
    pairs = [(digits()[0][0], [0, 1]), (digits()[0][1], [])]
    prepare(tmp_path, "array_record", "tagged", tags, train=pairs)
    data = from_tfds("tagged", PLAIN, data_dir=tmp_path)
    assert data.class_names == names
    assert sorted(data.labels.astype(int).tolist()) == [[0, 0], [1, 1]]
