"""Attention maps of chosen blocks, and attention rollout."""

import numpy as np
import pytest

from keras_vit.explanation import attention_maps, attention_rollout
from tests.helpers import random_tiny
from tests.plain import normal


def test_attention_maps_of_chosen_blocks_equal_those_of_all_blocks():
    """Rows sum to one; a rollout takes the blocks in the model's order, block 2 before block 10."""
    model, images = random_tiny(num_layers=11), normal(5, 16, 16, 3)
    every = attention_maps(model, images, prepared=True)
    assert list(every) == [f"block_{block}/attention" for block in range(11)]
    names = ["block_10/attention", "block_2/attention"]
    chosen = attention_maps(model, images, names, batch_size=2, prepared=True)
    assert list(chosen) == names
    for stage, weights in chosen.items():
        assert (weights.shape, weights.dtype) == ((5, 2, 5, 5), np.float32)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(weights, every[stage], atol=1e-6)
    backwards = attention_rollout(dict(reversed(every.items())), (2, 2))
    np.testing.assert_array_equal(backwards, attention_rollout(every, (2, 2)))


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_attention_maps_are_finite_where_the_outputs_in_float16_are(policy):
    """Products of query and key beyond 65,504 before the softmax; the rows still sum to one."""
    model, images = random_tiny(num_layers=2, dtype=policy), normal(2, 16, 16, 3)
    for weight in model.weights:
        if weight.path.endswith(("query/kernel", "key/kernel")):
            weight.assign(weight * 100)
    assert np.isfinite(model.predict(images, verbose=0)).all()
    for weights in attention_maps(model, images, prepared=True).values():
        np.testing.assert_allclose(weights.sum(-1), 1, atol=5e-3)
