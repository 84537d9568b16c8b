"""Every process gets its rows of the batches of one process, bit by bit."""

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.data import Augmentation, from_arrays
from keras_vit.errors import ConfigError

IMAGES = np.random.default_rng(0).integers(0, 256, (29, 6, 6, 3), "uint8")
AUGMENTED = {
    "none": None,
    "mixup": Augmentation(mixup=0.4),
    "cutmix": Augmentation(cutmix=1.0),
    "randaugment": Augmentation(randaugment=(2, 10), mixup=0.2, cutmix=1.0),
}


def make_data(shard, batch_size=8, **options):
    labels = np.arange(len(IMAGES)) % 3
    options |= {"shard": shard, "seed": 3}
    return from_arrays(IMAGES, labels, Preprocessor(4), batch_size, **options)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("name", AUGMENTED)
def test_the_shards_together_are_the_batches_of_one_process(count, steps, name):
    """Shuffled and augmented, from any batch on; a last batch of 5 images is filled up."""
    options = {"augmentation": AUGMENTED[name], "shuffle": True, "steps_per_epoch": steps}
    whole = make_data((0, 1), 24, **options)
    shards = [make_data((k, count), 24, **options) for k in range(count)]
    for epoch, begin in ((0, 0), (2, 1)):  # the second epoch resumes in its middle
        for data in (whole, *shards):
            data.epoch = epoch
        for i in range(begin, len(whole)):
            for expected, *parts in zip(whole[i], *(data[i][:2] for data in shards), strict=True):
                together = np.concatenate(parts)[: len(expected)]
                assert together.dtype == expected.dtype
                np.testing.assert_array_equal(together, expected)


def test_a_part_that_is_held_out_has_the_shards_of_the_data():
    """Training and validation data of a shard are shares of those of one process."""
    train, validation = make_data((1, 2), shuffle=True).hold_out(0.3)
    whole_train, whole_validation = make_data((0, 1), shuffle=True).hold_out(0.3)
    np.testing.assert_array_equal(train[0][0], whole_train[0][0][4:])
    np.testing.assert_array_equal(validation[0][0], whole_validation[0][0])


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0)])
def test_a_shard_that_does_not_exist_is_refused(shard):
    """The message states the form."""
    with pytest.raises(ConfigError, match="index < count"):
        make_data(shard)


def test_batches_that_processes_do_not_divide_are_refused():
    """The message says what to give."""
    with pytest.raises(ConfigError, match="3 devices or processes do not divide.* multiple of 3"):
        make_data((0, 3), shuffle=True)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_last_batch_is_filled_up_with_images_of_weight_0(shuffle):
    """A mean over batches, each of which is the sum by its size, is the mean over the images."""
    shards = [make_data((k, 4), shuffle=shuffle) for k in range(4)]
    shares, real = [], 0
    for i in range(4):
        images, labels, weights = (
            np.concatenate(a) for a in zip(*(d[i] for d in shards), strict=True)
        )
        assert len({len(data[i][0]) for data in shards}) == 1
        assert len(images) == len(labels) == len(weights) == 8
        count = int((weights > 0).sum())
        copies = np.broadcast_to(images[count - 1], (8 - count, *images.shape[1:]))
        np.testing.assert_array_equal(images[count:], copies)
        if shuffle:
            np.testing.assert_allclose(weights.sum() / 8, 1)
        real, shares = real + count, [*shares, weights]
    assert real == len(IMAGES)
    if not shuffle:
        np.testing.assert_allclose(np.concatenate(shares)[: len(IMAGES)], 32 / 29)
    assert len(make_data((0, 4), shuffle=shuffle, steps_per_epoch=3)[0]) == 2
