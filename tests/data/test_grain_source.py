"""`from_grain`; and the sources of batches that `fit`, `evaluate` and `features` take."""

import grain
import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import Preprocessor
from keras_vit.data import from_arrays, from_grain
from keras_vit.errors import ConfigError
from tests.data.test_order import assert_same_batches
from tests.helpers import assert_close, copy_weights, random_tiny, to_numpy
from tests.plain import raises

IMAGES = np.random.default_rng(0).integers(0, 256, (29, 6, 6, 3), "uint8")
LABELS = np.arange(29) % 3


def test_from_grain_has_the_batches_of_the_same_arrays():
    source = grain.MapDataset.range(29).map(lambda k: {"image": IMAGES[k], "label": LABELS[k]})
    options = {"augmentation": "light2", "shuffle": True, "seed": 3}
    expected = from_arrays(IMAGES, LABELS, Preprocessor(4), 6, **options)
    data = from_grain(source, Preprocessor(4), 6, **options, cache=False)
    for i in range(len(expected)):
        assert_same_batches(data[i], expected[i])
    assert data.class_counts == expected.class_counts


def test_labels_may_be_words_and_may_be_given():
    """Given labels are not read from the records."""
    records = [{"picture": image} for image in IMAGES]
    words = np.array(["b", "a", "c"])[LABELS]
    data = from_grain(records, Preprocessor(4), 6, image="picture", labels=words)
    assert data.class_names == ("a", "b", "c")
    assert data.labels[:3].tolist() == [1, 0, 2]


PIXELS = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype="uint8")
CLASSES = np.arange(12, dtype="int32") % 2
ARRAYS = Preprocessor(16)(PIXELS), CLASSES


def tensors(*arrays):
    """A torch Dataset."""
    torch = pytest.importorskip("torch")
    return torch.utils.data.TensorDataset(*map(torch.asarray, arrays))


def image_data(model):
    return from_arrays(PIXELS, CLASSES, model, 4)


def own_grain(_):
    pairs = grain.MapDataset.range(12).map(lambda k: (ARRAYS[0][k], CLASSES[k]))
    return pairs.batch(4).to_iter_dataset()


def tf_data(_):
    return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices(ARRAYS).batch(4)


SOURCES = {
    "ImageData": image_data,
    "to_grain": lambda model: image_data(model).to_grain().to_iter_dataset(),
    "from_grain": lambda model: from_grain(tensors(PIXELS, CLASSES), model, 4),
    "Grain": own_grain,
    "torch": lambda _: pytest.importorskip("torch").utils.data.DataLoader(tensors(*ARRAYS), 4),
    "tf.data": tf_data,
}


@pytest.mark.every_backend
@pytest.mark.filterwarnings("ignore:`shuffle=True`")  # Keras warns of its own default
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_trains_scores_and_gives_features_as_arrays_do(kind):
    model, other = random_tiny(num_classes=2), random_tiny(num_classes=2)
    for score in (keras_vit.evaluate, keras_vit.evaluation.features):
        found, expected = (score(model, d, prepared=True) for d in (SOURCES[kind](model), ARRAYS))
        if score is keras_vit.evaluate:
            assert (found.count, found.top1) == (12, expected.top1)
            assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        else:
            np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    copy_weights(model, other)
    for trained, data in ((model, ARRAYS), (other, (SOURCES[kind](model), None))):
        trained.compile(keras.optimizers.SGD(0.1), "auto")
        trained.fit(*data, batch_size=4 if data is ARRAYS else None, shuffle=False, verbose=0)
    assert_close(other.get_layer("head").kernel, to_numpy(model.get_layer("head").kernel))


READERS = {
    "fit": lambda model, data: model.fit(data),
    "evaluate": keras_vit.evaluate,
    "from_arrays": lambda model, data: from_arrays(data, None, model),
}


@pytest.mark.parametrize("name", READERS)
def test_a_torch_dataset_is_refused_with_the_lines_that_read_it(name):
    """`SOURCES` has both lines."""
    model = random_tiny(num_classes=2)
    model.compile("sgd", "auto")
    lines = ("from_grain(dataset, model)", "torch.utils.data.DataLoader(dataset, batch_size=32)")
    with raises(ConfigError, "TensorDataset is a torch Dataset", *lines):
        READERS[name](model, tensors(PIXELS, CLASSES))
