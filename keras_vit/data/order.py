"""Chooses the images of each batch, as a pure function of seed, epoch and index of the batch.

An order comes from sorting 64-bit words of PCG64. NumPy guarantees their stream, so an order is
the same with every release and on every machine.
"""

import dataclasses
import functools

import numpy as np


@functools.lru_cache(maxsize=8)
def permutation(count: int, *key: int) -> np.ndarray:
    """Returns the numbers below `count` in an order that the key determines; read-only.

    >>> from keras_vit.data.order import permutation
    >>> sorted(permutation(5, 0)) == [0, 1, 2, 3, 4]
    True
    """
    words = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    order = np.argsort(words, kind="stable")
    order.flags.writeable = False
    return order


def count_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the number of images of each class, `(num_classes,)`.

    Args:
        labels: classes of the images, `(images,)`, or zeros and ones `(images, num_classes)`.
        num_classes: number of classes.
    """
    return labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=num_classes)


def stratify(labels: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits a data set with the same fraction of every class; both parts keep the images' order.

    Args:
        labels: classes of the images, `(images,)`, or zeros and ones `(images, classes)`.
        fraction: fraction of the second part, above 0 and below 1.
        seed: seed of the choice of images.

    Returns:
        Indices of the first and of the second part. A class of at least two images is in
        both; the only image of a class is in the first. For multi-label data the fractions of
        the classes are about the same, and the first part has every class.
    """
    order = permutation(len(labels), seed, _SPLIT)
    if labels.ndim == 2:
        return _stratify_multi_label(labels.astype(bool), fraction, order)
    second = []
    for label in np.unique(labels):
        members = order[labels[order] == label]
        share = int(np.floor(fraction * len(members) + 0.5))
        second.append(members[: min(max(share, 1), len(members) - 1)])
    chosen = np.zeros(len(labels), bool)
    chosen[np.concatenate(second)] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def _stratify_multi_label(
    labels: np.ndarray, fraction: float, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Splits multi-label data, the rarest class first (after Sechidis et al. 2011).

    Images without labels count as one more class.
    """
    labels = np.column_stack([labels, ~labels.any(axis=1)])
    counts = labels.sum(axis=0)
    missing = np.clip(np.floor(fraction * counts + 0.5), 1, np.maximum(counts - 1, 0))
    left, chosen, free = counts.copy(), np.zeros(len(labels), bool), np.ones(len(labels), bool)
    for k in np.argsort(counts, kind="stable"):
        for index in order[labels[order, k] & free[order]]:
            own = labels[index]
            if missing[k] < 1:
                break
            if (left[own] > 1).all():
                chosen[index], free[index] = True, False
                left[own] -= 1
                missing[own] -= 1
        free &= ~labels[:, k]
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


@dataclasses.dataclass(frozen=True)
class Stream:
    """Batches of a data set, epoch after epoch.

    Args:
        count: images in the data set.
        batch_size: images per batch.
        steps_per_epoch: full batches per epoch, from an endless stream of passes; None
            for epochs of one pass, whose last batch may be smaller.
        shuffle: whether every pass has its own order.
        seed: seed of the orders.
        divisor: number that divides the size of all batches; other batches are filled up with
            copies of their last image, whose sample weight is 0.
        shard: index of the part of every batch, and number of parts.
    """

    count: int
    batch_size: int
    steps_per_epoch: int | None
    shuffle: bool
    seed: int
    divisor: int = 1
    shard: tuple[int, int] = (0, 1)

    @property
    def num_batches(self) -> int:
        """Batches per epoch."""
        return self.steps_per_epoch or -(-self.count // self.batch_size)

    def draws(self, epoch: int, batch: int) -> list[tuple[int, int]]:
        """Returns (number of the draw since the start, index of the image), image by image.

        The draw before a shard comes first: mixing needs the previous image, and a shard without
        images needs the shape of one.
        """
        length = self.steps_per_epoch * self.batch_size if self.steps_per_epoch else self.count
        start, size = epoch * length + batch * self.batch_size, self._size(batch)
        numbers = [*range(start, start + size), *[start + size - 1] * (-size % self.divisor)]
        draws = [(draw, self._image(*divmod(draw, self.count))) for draw in numbers]
        if self.shard[1] == 1:
            return draws
        rows = share(len(draws), self.shard)
        return [draws[rows.start - 1], *(draws[k] for k in rows)]

    def weights(self, batch: int) -> np.ndarray | None:
        """Returns the sample weights of a batch, float32, or None if no batch is filled up.

        A loss that divides the sum by the size of the batch is then the mean over the images: of
        every batch in training, and of the whole pass, with equal weights, otherwise.
        """
        size, last = self._size(batch), self._size(self.num_batches - 1)
        additions = [-n % self.divisor for n in (self.batch_size, last)]
        if additions == [0, 0] or (self.num_batches == 1 and not additions[1]):
            return None
        rows = size + -size % self.divisor
        weight = rows / size
        if not self.shuffle:
            others = self.num_batches - 1
            weight = 1 + (others * additions[0] + additions[1]) / (others * self.batch_size + last)
        return np.where(np.array(share(rows, self.shard)) < size, weight, 0).astype("float32")

    def _size(self, batch: int) -> int:
        rest = self.count - batch * self.batch_size
        return self.batch_size if self.steps_per_epoch else min(self.batch_size, rest)

    def _image(self, which_pass: int, place: int) -> int:
        if not self.shuffle:
            return place
        return int(permutation(self.count, self.seed, _ORDER, which_pass)[place])


def share(count: int, shard: tuple[int, int]) -> range:
    """Returns the rows of a batch that a shard holds; shards differ by at most one row.

    >>> from keras_vit.data.order import share
    >>> [list(share(5, (k, 2))) for k in range(2)]
    [[0, 1], [2, 3, 4]]
    """
    index, shards = shard
    return range(index * count // shards, (index + 1) * count // shards)


_ORDER, _SPLIT, IMAGE, BATCH = range(4)
"""The purpose of a key, part of it, so that two purposes never share random numbers."""
