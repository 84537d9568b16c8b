"""What explanations and reports refuse, each in its words."""

import numpy as np
import pytest

from keras_vit import VisionTransformer, explain
from keras_vit.errors import ConfigError
from keras_vit.explanation.report import write_report
from tests.helpers import random_tiny
from tests.plain import normal

IMAGES = normal(1, 16, 16, 3)
BLANK = [np.zeros((16, 16, 3), "uint8")]


MODEL = random_tiny(class_names=("crane", "crane", "dog", "x", "y"))


class Doubled(VisionTransformer):
    """A model whose `call` takes no stages."""

    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training=training)


def explained(model, target=None, method="relevance", images=IMAGES, **options):
    return explain(model, images, target, method, **options, prepared=True)


def broken(model):
    """A model with weights of NaN in its first block."""
    kernel = model.get_layer("block_0").mlp.weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    return model


def doubled():
    return Doubled(random_tiny().config)


def any_size():
    return random_tiny(image_size=None, position_grid=(2, 2))


CALLS = {
    "a large index": (lambda w: explained(MODEL, 9), "from 0 to 4"),
    "a part of a label": (lambda w: explained(MODEL, "dig"), "Did you mean 'dog'"),
    "a label of two classes": (lambda w: explained(MODEL, "crane"), "an index: 0, 1"),
    "two classes": (lambda w: explained(MODEL, np.array([1, 2])), "one class for each image"),
    "no class": (lambda w: explained(random_tiny(num_classes=0)), "num_classes=0"),
    "a map": (lambda w: explained(random_tiny(dense={"stages": (0,)})), "predicts a map"),
    "an unknown method": (lambda w: explained(MODEL, 0, "relevence"), "attention, rollout"),
    "an option": (lambda w: explained(MODEL, 0, "occlusion", window=3), "it has baseline"),
    "a head": (lambda w: explained(MODEL, 0, "attention", head=2), "head=2"),
    "one image": (lambda w: explained(MODEL, images=IMAGES[0]), "four axes"),
    "no slopes": (lambda w: explained(doubled(), 0), "Doubled.call"),
    "weights of NaN": (lambda w: explained(broken(random_tiny()), 0), "block_0/mlp"),
    "a report of any size": (lambda w: write_report(any_size(), w.out, BLANK), "image_size="),
}
REFUSALS = {name: (call, ConfigError, words) for name, (call, words) in CALLS.items()}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
