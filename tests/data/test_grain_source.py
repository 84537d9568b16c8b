"""`from_grain` and `to_grain`: the batches of `ImageData`, and Grain's own loaders in `fit`."""

import grain
import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import Preprocessor
from keras_vit.data import Augmentation, from_arrays, from_grain
from keras_vit.errors import ConfigError
from tests.data.test_shards import AUGMENTED
from tests.digits import digits
from tests.helpers import KERAS_3_14, random_tiny, to_numpy
from tests.plain import raises

IMAGES = np.random.default_rng(0).integers(0, 256, (29, 6, 6, 3), "uint8")
LABELS = np.arange(29) % 3


def make_data(**options):
    return from_arrays(IMAGES, LABELS, Preprocessor(4), 6, seed=3, **options)


def assert_same_batches(actual, expected):
    for value, reference in zip(actual, expected, strict=True):
        assert value.dtype == reference.dtype
        np.testing.assert_array_equal(value, reference)


@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("shard", [(0, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("name", AUGMENTED)
def test_to_grain_has_the_batches_bit_by_bit(name, shard, steps):
    """Shuffled, augmented and sharded, over epochs; a start in the middle is a slice."""
    data = make_data(augmentation=AUGMENTED[name], shuffle=True, steps_per_epoch=steps, shard=shard)
    batches = data.to_grain(epochs=3)
    assert len(batches) == 3 * len(data)
    data.epoch = 2
    for i in range(len(data)):
        assert_same_batches(batches[2 * len(data) + i], data[i])
    rest = iter(batches[2 * len(data) + 1 :].to_iter_dataset())
    assert_same_batches(next(rest), data[1])


def test_worker_processes_of_grain_prepare_the_same_batches():
    """The data set is sent to them; the images that it has decoded stay behind."""
    data = make_data(augmentation="light2", cache=True, steps_per_epoch=2, shard=(0, 2))
    pytest.importorskip("absl.flags").FLAGS.mark_as_parsed()  # Grain asks its flags
    workers = grain.MultiprocessingOptions(num_workers=1)
    actual = list(data.to_grain(epochs=2).to_iter_dataset().mp_prefetch(workers))
    for number, batch in enumerate(actual):
        data.epoch, i = divmod(number, 2)
        assert_same_batches(batch, data[i])
    assert len(actual) == 4


@pytest.mark.parametrize("form", ["dict", "tuple", "encoded"])
def test_from_grain_has_the_batches_of_the_same_arrays(form, tmp_path):
    """A map data set of dicts, a source of tuples, and ArrayRecord files of encoded records."""
    expected = make_data(augmentation="light2", shuffle=True)
    if form == "tuple":
        source = list(zip(IMAGES, LABELS, strict=True))
    elif form == "dict":
        source = grain.MapDataset.range(29).map(lambda k: {"image": IMAGES[k], "label": LABELS[k]})
    else:
        records = pytest.importorskip("array_record.python.array_record_module")
        writer = records.ArrayRecordWriter(str(tmp_path / "all.array_record"), "group_size:1")
        for image, label in zip(IMAGES, LABELS, strict=True):
            writer.write(bytes([label]) + image.tobytes())
        writer.close()
        source = grain.MapDataset.source(
            grain.sources.ArrayRecordDataSource([str(tmp_path / "all.array_record")])
        ).map(lambda r: (np.frombuffer(r[1:], "uint8").reshape(6, 6, 3), r[0]))
    data = from_grain(
        source, Preprocessor(4), 6, seed=3, augmentation="light2", shuffle=True, cache=False
    )
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


def test_what_has_no_numbers_is_refused():
    """A stream, an endless repetition, filtered records, records of another form."""
    source = grain.MapDataset.range(29).map(lambda k: (IMAGES[k], LABELS[k]))
    with pytest.raises(ConfigError, match="no access by number"):
        from_grain(source.to_iter_dataset(), Preprocessor(4))
    with pytest.raises(ConfigError, match="the data repeat without end"):
        from_grain(source.repeat(), Preprocessor(4))
    with pytest.raises(ConfigError, match="record 1 was filtered out"):
        from_grain(source.filter(lambda pair: pair[1] != 1), Preprocessor(4))
    with pytest.raises(ConfigError, match="record 0 is bytes, expected a dict with 'label'"):
        from_grain([b"", b""], Preprocessor(4))
    with pytest.raises(ConfigError, match="epochs must be a positive int, found 0"):
        make_data().to_grain(0)


def trained(data, **options):
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer.from_preset("vit_digits", num_classes=10)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(data, shuffle=False, verbose=0, **options).history["loss"]
    return np.array(history)


@pytest.mark.xfail(
    keras.backend.backend() == "jax" and KERAS_3_14,
    reason="`fit` of Keras 3.14 on JAX reads a batch ahead and drops it where an epoch ends.",
)
def test_fit_on_grain_is_fit_on_the_data():
    """Two epochs of shuffled, augmented batches have the same losses."""
    options = {"augmentation": Augmentation(flip=False), "steps_per_epoch": 2, "seed": 1}
    preprocessor = keras_vit.Preprocessor.from_preset("vit_digits")
    data = from_arrays(digits()[0][:40], digits()[2][:40], preprocessor, 8, **options)
    expected = trained(data, epochs=2)
    batches = data.to_grain(epochs=2).to_iter_dataset()
    np.testing.assert_allclose(trained(batches, epochs=2, steps_per_epoch=2), expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:`shuffle=True`")  # Keras warns of its own default
def test_a_grain_data_set_trains_scores_and_gives_features():
    """Batches come in Grain's order, prepared in its pipeline."""
    model = random_tiny(num_classes=2)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype="uint8")
    labels = np.arange(12, dtype="int32") % 2
    data = (
        grain.MapDataset.range(12)
        .map(lambda k: (model.preprocessor(pixels[k])[0], labels[k]))
        .batch(4)
        .to_iter_dataset()
    )
    before = to_numpy(model.get_layer("head").kernel)
    model.compile(keras.optimizers.SGD(0.1), "auto")
    model.fit(data, verbose=0)
    assert not np.array_equal(to_numpy(model.get_layer("head").kernel), before)
    images = model.preprocessor(pixels)
    actual, expected = (
        keras_vit.evaluate(model, d, prepared=True) for d in (data, (images, labels))
    )
    assert (actual.count, actual.top1) == (12, expected.top1)
    np.testing.assert_allclose(
        keras_vit.evaluation.features(model, data).values,
        keras_vit.evaluation.features(model, images, prepared=True).values,
        atol=1e-5,
    )


@pytest.mark.filterwarnings("ignore:`shuffle=True`")
def test_a_torch_dataset_is_refused_with_the_lines_that_read_it():
    """Both lines give the scores of the arrays."""
    torch = pytest.importorskip("torch")
    model = random_tiny(num_classes=2)
    model.compile("sgd", "auto")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype="uint8")
    labels, images = np.arange(6) % 2, model.preprocessor(pixels)

    def dataset(images):
        return torch.utils.data.TensorDataset(torch.asarray(images), torch.asarray(labels))

    for read in (
        model.fit,
        model.evaluate,
        model.predict,
        lambda data: keras_vit.evaluate(model, data),
        lambda data: from_arrays(data, None, model),
    ):
        with raises(
            ConfigError,
            "TensorDataset is a torch Dataset",
            "keras_vit.data.from_grain(dataset, model)",
            "torch.utils.data.DataLoader(dataset, batch_size=32)",
        ):
            read(dataset(images))
    loader = torch.utils.data.DataLoader(dataset(images), batch_size=32)
    for data in (from_grain(dataset(pixels), model), loader):
        scores = [keras_vit.evaluate(model, d, prepared=True) for d in (data, (images, labels))]
        assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-5)
        model.fit(data, verbose=0)
