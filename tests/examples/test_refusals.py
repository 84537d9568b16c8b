"""What the examples refuse, each in its words."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from tests.examples import load
from tests.helpers import tiny
from tests.plain import normal

MASKED, pretrain = load("paper/masked_patches.py"), load("paper/pretraining.py")["pretrain"]
insertion = load("paper/faithfulness.py")["insertion"]

SMALL = np.zeros((2, 8, 8))


def task(**fields):
    encoder = tiny(image_size=(16, 24), patch_size=4).config
    return MASKED["MaskedPatchPrediction"](**{"encoder": encoder, **fields})


CALLS = {
    "no mask": (lambda w: task(mask_rate=0), "mask_rate"),
    "small maps": (lambda w: insertion(tiny(), normal(2, 16, 16, 3), SMALL), "maps has the shape"),
    "an unknown recipe": (lambda w: pretrain("x", "plain_s16", out=w.out), "'plain_s16_i1k'"),
}
REFUSALS = {name: (call, ConfigError, words) for name, (call, words) in CALLS.items()}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
