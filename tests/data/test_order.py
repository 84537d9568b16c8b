"""The order of the images, its splits and its shards depend on seed and epoch alone."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keras_vit import Preprocessor
from keras_vit.data import Augmentation, Views, from_folder
from keras_vit.data.order import Stream, permutation, stratify
from tests.data.runs import numbered
from tests.runs import times

AUGMENTED = {
    "none": None,
    "mixup": Augmentation(mixup=0.4),
    "cutmix": Augmentation(cutmix=1.0),
    "all": Augmentation(randaugment=(2, 15), mixup=0.5, cutmix=1.0),
    "views": Views(4, 2),
}
ORDERS = st.fixed_dictionaries(
    {
        "count": st.integers(1, 40),
        "batch_size": st.integers(1, 6),  # of a shard
        "steps_per_epoch": st.none() | st.integers(1, 5),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 9),
    }
)
SHARDS = st.integers(1, 4)


def arrays_of(batch):
    """The arrays of a batch of images and labels, or of views."""
    return [*batch[0].values()] if isinstance(batch[0], dict) else batch


def assert_same_batches(actual, expected):
    actual, expected = arrays_of(actual), arrays_of(expected)
    for value, reference in zip(actual, expected, strict=True):
        assert value.dtype == reference.dtype
        np.testing.assert_array_equal(value, reference)


def test_a_permutation_is_the_same_on_every_machine_and_release_of_numpy():
    """It is derived from the raw words of PCG64, not from NumPy's `permutation`."""
    assert permutation(8, 0, 0, 0).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]


@given(options=ORDERS, shards=SHARDS)
@settings(max_examples=times(100, 1000), deadline=None)
def test_every_pass_has_every_image_once_and_the_shards_divide_its_batches(options, shards):
    """One whole pass follows the other; copies of the last image fill up the shards of a batch.

    Copies weigh 0, and the loss, the sum by the size of the filled batch, is the mean over the
    images: in a training of every batch, and otherwise of the whole pass.
    """
    options = {**options, "batch_size": options["batch_size"] * shards}
    count, stream = options["count"], Stream(**options)
    draws, weights, rows = [], [], 0
    for epoch, i in np.ndindex(4, stream.num_batches):
        batch = stream.draws(epoch, i)
        assert len(batch) == stream.batch_size or not stream.steps_per_epoch
        parts = [Stream(**options, divisor=shards, shard=(k, shards)) for k in range(shards)]
        together = [draw for part in parts for draw in part.draws(epoch, i)[shards > 1 :]]
        assert together == batch + batch[-1:] * (-len(batch) % shards)
        each = [part.weights(i) for part in parts]
        if each[0] is None:
            assert len(together) == len(batch)
            each = [np.ones(len(batch))]
        weight = np.concatenate(each)
        assert (weight > 0).tolist() == [k < len(batch) for k in range(len(together))]
        if stream.shuffle:
            np.testing.assert_allclose(weight.mean(), 1, rtol=1e-6)
        draws, weights, rows = draws + batch, [*weights, *weight[: len(batch)]], rows + len(weight)
    assert [number for number, _ in draws] == list(range(len(draws)))
    order = [index for _, index in draws]
    passes = [order[k : k + count] for k in range(0, len(order) - count + 1, count)]
    assert all(sorted(each) == list(range(count)) for each in passes)
    if not stream.shuffle:
        np.testing.assert_allclose(weights, rows / len(draws), rtol=1e-6)
        assert all(each == passes[0] for each in passes)
    elif count > 9:
        others = [permutation(count, stream.seed + 1, 0, 0).tolist()]
        assert len({tuple(each) for each in passes + others}) == len(passes) + 1


@given(
    options=ORDERS,
    shards=SHARDS,
    kind=st.sampled_from(sorted(AUGMENTED)),
    epoch=st.integers(0, 2),
    share=st.floats(0, 0.99),
)
@settings(max_examples=times(15, 200), deadline=None)
def test_a_batch_is_a_function_of_seed_epoch_and_index(options, shards, kind, epoch, share):
    """Whether it is read from a drawn step on, at once by threads, from a copy or by Grain.

    The shards together have the bits of the batches of one process.
    """
    options["batch_size"] *= shards
    options["augmentation"] = AUGMENTED[kind]
    assume(kind != "views" or options["count"] >= options["batch_size"])
    whole = numbered(**options)
    whole.epoch = epoch
    expected = [whole[i] for i in range(len(whole))]
    resumed = numbered(**options, cache=False, threads=1)
    parts = [numbered(**options, shard=(k, shards)) for k in range(shards)]
    for data in (resumed, *parts):
        data.epoch = epoch
    copied = pickle.loads(pickle.dumps(whole))
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(copied.__getitem__, 3 * [*range(len(whole))]))
    by_grain = pickle.loads(pickle.dumps(parts[-1].to_grain(epoch + 1)))
    assert len(by_grain) == (epoch + 1) * len(whole)
    step = int(share * len(whole))
    rest = iter(by_grain[epoch * len(whole) + step :].to_iter_dataset())
    for i in range(step, len(whole)):
        assert_same_batches(resumed[i], expected[i])
        assert_same_batches(at_once[i], expected[i])
        assert_same_batches(next(rest), parts[-1][i])
        reference = arrays_of(expected[i])
        columns = list(zip(*(arrays_of(part[i]) for part in parts), strict=True))[:2]
        assert_same_batches([np.concatenate(c)[: len(reference[0])] for c in columns], reference)


def test_batches_of_files_need_neither_a_cache_nor_the_same_threads(folder):
    options = {"augmentation": AUGMENTED["all"], "shuffle": True}
    batches = list(from_folder(folder, Preprocessor(16), 5, **options))
    other = from_folder(folder, Preprocessor(16), 5, **options, cache=False, threads=1)
    for i in (2, 0, 1):
        assert_same_batches(other[i], batches[i])
    again = from_folder(folder, Preprocessor(16), 5, **options, seed=1)
    assert not np.array_equal(again[0][0], batches[0][0])
    other.epoch = 1
    assert not np.array_equal(other[0][0], batches[0][0])


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(sum),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_a_split_takes_the_share_of_each_class(counts, fraction, seed):
    """A class with several images gives its share, at least one image, and keeps one.

    Of multi-label data, images without labels are a class of their own.
    """
    labels = np.repeat(np.arange(len(counts)), counts)
    for given_labels in (labels, np.eye(len(counts) + 1, dtype=int)[labels][:, 1:]):
        first, second = stratify(given_labels, fraction, seed)
        assert np.array_equal(stratify(given_labels, fraction, seed)[1], second)
        assert sorted([*first, *second]) == list(range(len(labels)))
        for label, count in enumerate(counts):
            taken = int((labels[second] == label).sum())
            assert taken in ([0] if count < 2 else range(1, count))
            assert count < 2 or abs(taken - fraction * count) <= 1
    if len(second) > 5:
        assert not np.array_equal(stratify(labels, fraction, seed + 1)[1], second)


@given(
    labels=st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=12, max_size=60),
    fraction=st.floats(0.1, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_a_split_of_multi_label_data_leaves_every_class_in_the_first_part(labels, fraction):
    """Also of classes with one image, whose labels overlap."""
    hot = np.array([[k in row for k in range(6)] for row in labels])
    first, second = stratify(hot, fraction, 0)
    assert sorted([*first, *second]) == list(range(len(hot)))
    assert (hot[first].any(axis=0) == hot.any(axis=0)).all()


def test_a_split_of_multi_label_data_takes_about_the_share_of_every_class():
    """Also of a class that two images in a hundred have."""
    chances = np.array([0.02, *np.linspace(0.1, 0.6, 4)])
    labels = np.random.default_rng(0).random((200, 5)) < chances
    labels[:2, 0] = True
    first, second = (labels[part] for part in stratify(labels, 0.2, 0))
    assert first.any(axis=0).all() and second.any(axis=0).all()
    assert 30 <= len(second) <= 50
    np.testing.assert_allclose(second.sum(axis=0) / labels.sum(axis=0), 0.2, atol=0.12)
