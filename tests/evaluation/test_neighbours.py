"""The accuracy of nearest neighbours against scikit-learn's, and the laws of the rank."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from keras_vit.evaluation import effective_rank, knn_accuracy
from tests.plain import normal


@pytest.mark.parametrize(("count", "neighbours"), [(12, 20), (300, 1), (1500, 20)])
def test_the_accuracy_is_that_of_scikit_learn(count, neighbours):
    """Without the image itself. Of more images than are compared at once, and of fewer than vote.
    Squares of these features overflow in float16."""
    labels = np.random.default_rng(0).integers(0, 4, count)
    features = (100 * (normal(count, 6) + normal(4, 6, seed=1)[labels])).astype("float16")
    vote = {"metric": "cosine", "weights": lambda distances: np.exp(-distances / 0.07)}
    peer = KNeighborsClassifier(min(neighbours, count - 1), **vote)
    expected = peer.fit(features.astype("float64"), labels).predict(None)
    assert knn_accuracy(features, labels, neighbours) == (expected == labels).mean()


@given(rank=st.integers(1, 6), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_the_rank_of_orthogonal_features_is_their_number(rank, scale, seed):
    """Of any features it stays the same if they are turned, scaled and moved; of equal ones 0."""
    turn = scale * np.linalg.qr(normal(6, 6, seed=seed))[0]
    directions, others = np.eye(6)[:rank], normal(9, 6, seed=seed + 1)
    crosses = np.concatenate([directions, -directions])
    assert effective_rank(crosses @ turn + 1) == pytest.approx(rank, rel=1e-4)
    assert effective_rank(others @ turn + 1) == pytest.approx(effective_rank(others), rel=1e-4)
    assert effective_rank(np.full((9, 6), scale)) == 0
