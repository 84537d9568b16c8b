"""Dense heads learn the masks and depths of drawn images by `fit` alone."""

import keras
import numpy as np
import pytest

from tests.helpers import tiny
from tests.runs import THOROUGH, times


def squares(count, seed):
    """Dark images with red and green squares, and their masks."""
    rng = np.random.default_rng(seed)
    masks = np.zeros((count, 16, 16), "int32")
    for mask in masks:
        for label in (1, 2):
            (y, x), (height, width) = rng.integers(0, 11, 2), rng.integers(4, 8, 2)
            mask[y : y + height, x : x + width] = label
    noise = rng.uniform(-1, -0.6, (*masks.shape, 3))
    return (noise + np.eye(3)[masks]).astype("float32"), masks


def slopes(count, seed):
    """Noisy grey slopes, and depths that grow exponentially with their brightness."""
    rng = np.random.default_rng(seed)
    rows, columns, ones = *np.mgrid[-1:1:16j, -1:1:16j], np.ones((16, 16))
    levels = np.einsum("nk,khw->nhw", rng.uniform(-0.5, 0.5, (count, 3)), [rows, columns, ones])
    noise = rng.normal(0, 0.05, (*levels.shape, 3))
    return (levels[..., None] + noise).astype("float32"), np.exp(2 * levels).astype("float32")


WIDE = {"head": "dpt", "widths": (16,) * 4, "fusion_size": 16}
MAPS = {
    squares: ("mean_iou", 0.97, {"num_outputs": 3}),
    slopes: ("within_1.25", 0.95, {"task": "depth"}),
}
CASES = [(squares, {}), (slopes, {"output": "relu"}), (squares, WIDE), (slopes, WIDE)]


@pytest.mark.parametrize(("draw", "head"), CASES)
def test_heads_learn_drawn_maps(draw, head):
    """On images that the training does not see."""
    name, goal, options = MAPS[draw]
    size = {"patch_size": 4, "num_layers": 4} if head is WIDE else {"patch_size": 2}
    model = tiny(hidden_size=32, mlp_dim=64, **size).with_dense_head(**options, **head)
    model.compile(keras.optimizers.Adam(5e-3), "auto", metrics="auto")
    model.fit(*draw(times(96, 512), 0), batch_size=16, epochs=times(8, 30), verbose=0)
    found = model.evaluate(*draw(64, 1), verbose=0, return_dict=True)
    assert found[name] > (goal if THOROUGH else 0.8)
