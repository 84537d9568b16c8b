"""`features` returns the output of any layer and reads it from a cache the second time."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.data import from_arrays, from_folder
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from tests.helpers import assert_close, random_tiny


def test_features_are_the_output_of_the_layer(model, images, classes, logits):
    """The head maps pre_logits to the logits; the encoder norm gives one vector per token."""
    actual = features(model, (images, classes), batch_size=8, prepared=True)
    head = [keras.ops.convert_to_numpy(weight) for weight in model.get_layer("head").weights]
    assert_close(actual.values @ head[0] + head[1], logits)
    assert np.array_equal(actual.labels, classes)
    tokens = features(model, images, "encoder_norm", batch_size=8, prepared=True)
    assert (tokens.values.shape, tokens.labels) == ((23, 5, 16), None)
    assert_close(tokens.values[:, 0], actual.values)  # pre_logits is the class token


def test_the_cache_is_read_and_not_computed(model, images, classes, tmp_path, bar):
    """A second call runs no model; other weights, layers, labels or images run it again."""
    arguments = {"batch_size": 8, "cache": tmp_path, "progress": True, "prepared": True}
    first = features(model, (images, classes), **arguments)
    assert sum(bar.counts) == 23
    second = features(model, (images, classes), **arguments)
    assert sum(bar.counts) == 23
    assert isinstance(second.values, np.memmap)
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(second.labels, classes)
    others = (
        (random_tiny(num_classes=6), (images, classes), "pre_logits"),
        (model, (images, classes), "head"),
        (model, (images, classes[::-1]), "pre_logits"),
        (model, (images[::-1], classes), "pre_logits"),
        (model, images, "pre_logits"),
    )
    for count, (other, data, layer) in enumerate(others, start=2):
        features(other, data, layer, **arguments)
        assert sum(bar.counts) == 23 * count
        assert len(list(tmp_path.iterdir())) == count


@pytest.mark.parametrize("kind", ["arrays", "generator", "folder"])
def test_an_interrupted_run_resumes_after_its_last_batch(
    kind, model, images, classes, tmp_path, digits_folder, bar
):
    """The first batch is not computed again, and the result is equal bit by bit."""
    make = {
        "arrays": lambda: (images, classes),
        "generator": lambda: ((images[k : k + 8], classes[k : k + 8]) for k in (0, 8, 16)),
        "folder": lambda: from_folder(digits_folder, model.preprocessor, batch_size=8),
    }[kind]
    arguments = {"batch_size": 8, "prepared": kind == "arrays"}
    expected = features(model, make(), **arguments)
    arguments["cache"] = tmp_path / "kept"
    bar.interrupt(features, model, make(), **arguments)
    actual = features(model, make(), **arguments, progress=True)
    assert bar.counts[0] == 16  # the batches that the first run computed
    assert sum(bar.counts) == len(expected.values)
    assert np.array_equal(actual.values, expected.values)
    assert np.array_equal(actual.labels, expected.labels)


def test_a_changed_file_invalidates_the_cache(model, digits_folder, tmp_path, bar):
    """The cache compares name, size and time of every file, not only the outer batches."""
    data, actual = from_folder(digits_folder, model.preprocessor, 8, cache=False), []
    for _ in range(2):
        actual += [features(model, data, cache=tmp_path / "kept", progress=True) for _ in range(2)]
        Path(data.paths[9]).write_bytes(Path(data.paths[10]).read_bytes())
    assert sum(bar.counts) == 2 * 23
    before, after = (np.abs(np.diff(actual[k].values[9:11], axis=0)).max() for k in (0, 2))
    assert after < 1e-5 and before > 1e-3


def test_features_of_decoded_images_are_cached_by_their_pixels(model, digits_folder, tmp_path):
    """A file that changed after it was decoded has other features in the next data set."""
    old = from_folder(digits_folder, model.preprocessor, 8, cache=True)
    Path(old.paths[9]).write_bytes(Path(old.paths[10]).read_bytes())
    new = from_folder(digits_folder, model.preprocessor, 8, cache=True)
    before, after = (
        np.abs(np.diff(features(model, data, cache=tmp_path / "kept").values[9:11], axis=0)).max()
        for data in (old, new)
    )
    assert after < 1e-5 and before > 1e-3


def test_labels_of_a_single_class_keep_their_column(images, tmp_path):
    """Multi-label; None in place of labels is as no labels."""
    model = random_tiny(num_classes=1, task="multi_label")
    labels = (np.arange(23) % 3 == 0)[:, None]
    pixels = ((images + 1) * 127.5).astype("uint8")
    found = features(model, from_arrays(pixels, labels, model)).labels
    np.testing.assert_array_equal(found, labels)
    assert features(model, (images, None), cache=tmp_path, prepared=True).labels is None
    assert features(model, (images,), cache=tmp_path, prepared=True).labels is None


def test_a_damaged_cache_is_refused_by_name(model, images, tmp_path):
    features(model, images, cache=tmp_path, prepared=True)
    (path,) = tmp_path.glob("*.npy")
    path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(ConfigError, match=rf"{path.name}: this cache is damaged .*Remove it"):
        features(model, images, cache=tmp_path, prepared=True)
