"""What the examples refuse, each in its words."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from tests.examples import load
from tests.helpers import tiny
from tests.plain import HYBRID, normal

MASKED, pretrain = load("paper/masked_patches.py"), load("paper/pretraining.py")["pretrain"]
insertion = load("paper/faithfulness.py")["insertion"]
block_similarity = load("paper/similarity.py")["block_similarity"]

SMALL = np.zeros((2, 8, 8))


def task(**fields):
    encoder = tiny(image_size=(16, 24), patch_size=4).config
    return MASKED["MaskedPatchPrediction"](**{"encoder": encoder, **fields})


def fitted():
    """A task that is compiled with a loss."""
    images, compiled = normal(2, 16, 24, 3), task()
    compiled.compile("adam", "mse")
    return compiled.fit(images, images, verbose=0)


CALLS = {
    "no mask": (lambda w: task(mask_rate=0), "mask_rate"),
    "shares above 1": (lambda w: task(mask_share=0.8, other_share=0.3), "other_share=0.3"),
    "many bits": (lambda w: task(bits=6), "bits=6 for 3 channels"),
    "a hybrid": (lambda w: task(encoder=tiny(**HYBRID).config), "found a hybrid"),
    "odd cells": (
        lambda w: task(target="downsized", encoder=tiny(image_size=12, patch_size=6).config),
        "patch_size=(6, 6)",
    ),
    "another size": (lambda w: task().classifier(2, image_size=32), "position_embedding"),
    "a loss": (lambda w: fitted(), "loss='mse'"),
    "small maps": (lambda w: insertion(tiny(), normal(2, 16, 16, 3), SMALL), "maps has the shape"),
    "few images": (lambda w: block_similarity(tiny(), normal(3, 16, 16, 3)), "3 images"),
    "an unknown recipe": (lambda w: pretrain("x", "plain_s16", out=w.out), "'plain_s16_i1k'"),
}
REFUSALS = {name: (call, ConfigError, words) for name, (call, words) in CALLS.items()}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
