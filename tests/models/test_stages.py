"""Stages are named, and each function takes the names of its own kind."""

import pytest

import keras_vit
from keras_vit.errors import ConfigError
from tests.helpers import random_tiny
from tests.plain import normal, raises

IMAGES = 0.1 * normal(2, 16, 16, 3)


@pytest.fixture(scope="module")
def model():
    return random_tiny(num_layers=2)


def tokens(stage):
    return lambda model: model.tokens(IMAGES, stage, prepared=True)


def maps(stage):
    return lambda model: keras_vit.explanation.attention_maps(model, IMAGES, stage, prepared=True)


def explanation(method, stage):
    return lambda model: keras_vit.explain(model, IMAGES, method=method, stage=stage, prepared=True)


OF_TOKENS = "is not one of block_0/input, block_0, block_0/norm and 4 more"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tokens("block_99"), f"stage='block_99' {OF_TOKENS}. Did you mean 'block_"),
        (tokens(-1), f"stage=-1 {OF_TOKENS}"),
        (tokens(["block_0", "pre_logits"]), f"stage='pre_logits' {OF_TOKENS}"),
        (tokens("block_0/attention"), f"stage='block_0/attention' {OF_TOKENS}"),
        (maps("block_0"), "stage='block_0' is not one of block_0/attention"),
        (maps([0]), "stage=0 is not one of block_0/attention"),
        (maps("pool/attention"), "stage='pool/attention' is not one of block_0/attention"),
        (explanation("gradcam", 0), "stage=0 is not one of block_0/input"),
        (explanation("gradcam", "block_0"), "stage='block_0' is not one of block_0/input"),
        (explanation("attention", ["a", "b"]), "stage=['a', 'b'] is not one of block_0/attention"),
    ],
)
def test_what_names_no_stage_of_the_kind_is_refused(call, message, model):
    with raises(ConfigError, message):
        call(model)
