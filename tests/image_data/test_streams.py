"""`from_stream`: what can only be read in order has the same law as every other data set."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import ConfigError, Preprocessor
from keras_vit.data import from_arrays, from_stream
from tests.image_data.test_shards import AUGMENTED

IMAGES = np.random.default_rng(0).integers(0, 256, (29, 6, 6, 3), "uint8")
LABELS = np.arange(29) % 3


def passes(number):
    """The samples of a pass, in an order that depends on its number."""
    order = np.random.default_rng((5, number)).permutation(29)
    return ({"image": IMAGES[k], "label": int(LABELS[k])} for k in order)


def stream(preprocessor=None, batch_size=6, source=passes, **options):
    given = {"num_images": 29, "class_names": "abc", "shuffle": True, "seed": 3, **options}
    return from_stream(source, preprocessor or Preprocessor(4), batch_size, **given)


@pytest.mark.without_backend
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("steps", [None, 7])
@pytest.mark.parametrize("name", AUGMENTED)
def test_the_shards_of_a_stream_are_the_batches_of_one_process(name, steps, count):
    """Shuffled and augmented; a process that resumes in the middle of an epoch gives the same."""
    options = {"augmentation": AUGMENTED[name], "steps_per_epoch": steps}
    whole = stream(**options, shard=(0, 1))
    batches = {}
    for whole.epoch in range(2):
        batches |= {(whole.epoch, i): whole[i] for i in range(len(whole))}
    shards = [stream(**options, shard=(k, count)) for k in range(count)]
    for epoch, i in ((1, 2), (1, 3), (1, 4), (0, 1)):
        for data in shards:
            data.epoch = epoch
        parts = zip(*(data[i] for data in shards), strict=True)
        for expected, part in zip(batches[epoch, i], parts, strict=True):
            np.testing.assert_array_equal(np.concatenate(part), expected)


@pytest.mark.without_backend
def test_a_stream_in_order_has_the_batches_of_the_arrays():
    """Without shuffling, for evaluation; augmented alike, since draws have the same numbers."""
    expected = from_arrays(IMAGES, LABELS, Preprocessor(4), 6, augmentation="none", shuffle=False)
    source = lambda number: zip(IMAGES, LABELS, strict=True)  # noqa: E731
    data = stream(source=source, augmentation="none", shuffle=False, seed=0)
    for i in range(len(expected)):
        for have, want in zip(data[i], expected[i], strict=True):
            np.testing.assert_array_equal(have, want)


@pytest.mark.without_backend
def test_what_needs_all_images_is_refused():
    """By the name of the attribute; the words say what to do instead."""
    data = stream()
    for name in ("labels", "class_counts", "class_weight"):
        with pytest.raises(ConfigError, match=f"a stream has no {name}"):
            getattr(data, name)
    with pytest.raises(ConfigError, match="a stream has no hold_out"):
        data.hold_out(0.1)
    with pytest.raises(ConfigError, match="a stream has no to_grain"):
        data.to_grain()


@pytest.mark.without_backend
def test_a_training_in_another_order_is_refused():
    """It would read the stream again for each batch."""
    data = stream()
    data.on_epoch_begin()
    with pytest.raises(ConfigError, match="give it shuffle=False"):
        [data[i] for i in (0, 3)]


@pytest.mark.without_backend
@pytest.mark.parametrize("stated, message", [(30, "ended after 29"), (28, "more than num_images")])
def test_another_number_of_images_than_stated_is_an_error(stated, message):
    """It would shift all batches of the next pass."""
    data = stream(num_images=stated)
    with pytest.raises(ConfigError, match=message):
        [data[i] for i in range(len(data))]


@pytest.mark.without_backend
def test_a_damaged_sample_is_named():
    """Its image, its label, its keys."""

    def with_first(sample):
        return lambda number: [sample, *zip(IMAGES[1:], LABELS[1:], strict=True)]

    for sample, message in (
        ((b"\0\1", 0), "stream, sample 0: not a readable image"),
        ((IMAGES[0], "d"), "stream, sample 0: label 'd' is no class"),
        ({"picture": IMAGES[0]}, "stream, sample 0: no 'image'; found picture"),
    ):
        with pytest.raises(ConfigError, match=message):
            stream(source=with_first(sample))
    with pytest.raises(ConfigError, match="give num_images="):
        stream(num_images=None)
    with pytest.raises(ConfigError, match="give class_names="):
        stream(class_names=None)


@pytest.mark.without_backend
def test_a_stream_of_hugging_face_knows_its_columns_and_classes():
    """Encoded images; an order of its own in every pass; the same in a second process."""
    datasets = pytest.importorskip("datasets")
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    table = datasets.Dataset.from_dict(
        {"image": list(map(Image.fromarray, IMAGES)), "label": LABELS.tolist()},
        features=datasets.Features(features),
    ).to_iterable_dataset(num_shards=4)
    with pytest.raises(ConfigError, match="from_stream"):
        keras_vit.data.from_huggingface(table, Preprocessor(4))
    first, second = (
        from_stream(table, Preprocessor(4), 29, num_images=29, shuffle=True, buffer_size=10)
        for _ in range(2)
    )
    assert first.class_names == ("a", "b", "c")
    seen = []
    for first.epoch in range(2):
        images, labels = first[0]
        order = [int(np.argmin(np.abs(Preprocessor(4)(IMAGES) - x).sum((1, 2, 3)))) for x in images]
        assert sorted(order) == list(range(29))
        np.testing.assert_array_equal(labels, LABELS[order])
        seen.append(order)
    assert seen[0] != seen[1]
    second.epoch = 1
    np.testing.assert_array_equal(second[0][0], first[0][0])


def test_fit_reads_a_stream_in_order_and_each_sample_once():
    """The first batch, which Keras reads twice, does not begin the pass again."""
    model = keras_vit.VisionTransformer.from_preset("vit_digits", num_classes=3)
    begun = []

    def counted(number):
        begun.append(number)
        order = np.random.default_rng((5, number)).permutation(29)
        return ((IMAGES[k][..., 0], int(LABELS[k])) for k in order)

    data = stream(model, source=counted)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    begun.clear()
    model.fit(data, epochs=2, shuffle=False, verbose=0)
    if keras.backend.backend() != "tensorflow":  # tf.data reads ahead, and then begins anew
        assert begun[:2] == [0, 1]
    assert {0, 1} <= set(begun)
    assert data.epoch == 2
