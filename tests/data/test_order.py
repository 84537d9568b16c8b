"""Orders and splits depend on their seed and epoch alone, on every machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.data.order import Stream, permutation, stratify


def test_a_permutation_is_the_same_on_every_machine_and_release_of_numpy():
    """It is derived from the raw words of PCG64, not from NumPy's `permutation`."""
    assert permutation(8, 0, 0, 0).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]


@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    steps=st.none() | st.integers(1, 7),
    shuffle=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_pass_has_every_image_once(count, batch_size, steps, shuffle):
    """For all sizes of batches and epochs: the stream is one whole pass after the other."""
    stream = Stream(count, batch_size, steps, shuffle, seed=3)
    batches = [stream.draws(e, i) for e in range(4) for i in range(stream.num_batches)]
    draws = [draw for batch in batches for draw in batch]
    assert [number for number, _ in draws] == list(range(len(draws)))
    for start in range(0, len(draws) - count + 1, count):
        assert sorted(index for _, index in draws[start : start + count]) == list(range(count))
    if steps:
        assert {len(batch) for batch in batches} == {batch_size}


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(sum),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_a_split_takes_the_share_of_each_class(counts, fraction, seed):
    """A class with several images gives its share, at least one image, and keeps one."""
    labels = np.repeat(np.arange(len(counts)), counts)
    first, second = stratify(labels, fraction, seed)
    assert np.array_equal(stratify(labels, fraction, seed)[1], second)
    assert sorted([*first, *second]) == list(range(len(labels)))
    for label, count in enumerate(counts):
        taken = int((labels[second] == label).sum())
        if count > 1:
            assert 1 <= taken <= count - 1
            assert abs(taken - fraction * count) <= 1
        else:
            assert taken == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_multi_label_split_takes_the_share_of_the_images_without_labels(seed):
    """They are a class of their own: a fifth of the ten is two, whatever the other images have."""
    labels = np.repeat([[1, 0], [1, 1], [0, 0]], [20, 20, 10], axis=0)
    _, second = stratify(labels, 0.2, seed)
    assert (~labels[second].any(axis=1)).sum() == 2


def test_a_split_and_an_order_depend_on_the_seed():
    """Another epoch gives another order, too."""
    labels = np.arange(100) % 4
    assert len({tuple(stratify(labels, 0.25, seed)[1]) for seed in (0, 1)}) == 2
    draws = [Stream(50, 50, None, True, seed).draws(e, 0) for seed, e in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(index for _, index in each) for each in draws}) == 3
