"""Options and columns that fit no row of images are named."""

import numpy as np
import pytest

pytest.importorskip("pyarrow.fs", reason="keras_vit.ray writes tables of pyarrow")

from keras_vit.errors import ConfigError
from keras_vit.ray import Classify, Embed

ROWS = {"image": np.zeros((2, 8, 8, 1), "uint8"), "labels": np.arange(2)}


def embed(**options):
    return Embed("vit_digits", **options)


REFUSALS = {
    "tokens of a block": (lambda w: embed(stage="block_0"), ConfigError, "one vector per image"),
    "an unknown column": (lambda w: embed()({"picture": 0}), ConfigError, "found picture"),
    "a column of labels": (lambda w: Classify("vit_digits")(ROWS), ConfigError, "rename_columns"),
    "zero labels": (lambda w: Classify("vit_digits", 0), ConfigError, "top must be a positive int"),
    "an unknown pooling": (lambda w: embed(pooling="mean"), ConfigError, "pooling"),
    "an integer type": (lambda w: embed(output_dtype="int8"), ConfigError, "output_dtype"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
