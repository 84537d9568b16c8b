"""The published recipes: their numbers, their refusals, and the sweep of learning rates."""

import numpy as np
import pytest

from keras_vit import ConfigError, list_variants, vit_s16
from keras_vit.data import AUGREG, from_arrays
from keras_vit.finetune import (
    FINE_TUNING,
    PRETRAINING,
    augreg_search,
    pretraining_recipe,
    steps_for,
    sweep,
)
from keras_vit.variants import variant
from tests.helpers import tiny

TABLE_3 = """
    vit_b_i21k        90     1e-3  linear  0.03  0.1
    vit_l_i21k        30,90  1e-3  linear  0.03  0.1
    vit_i1k           300    3e-3  cosine  0.3   0.1
"""
"""Epochs, base learning rate, decay, weight decay and dropout of arXiv 2010.11929."""


@pytest.mark.parametrize("row", TABLE_3.strip().splitlines(), ids=lambda row: row.split()[0])
def test_pretraining_recipes_have_the_numbers_of_table_3(row):
    """All have batches of 4,096 and 10,000 warm-up steps; only ImageNet's clips gradients."""
    name, epochs, rate, decay, weight_decay, dropout = row.split()
    found = PRETRAINING[name]
    assert found.epochs == tuple(map(int, epochs.split(",")))
    assert (found.learning_rate, found.decay) == (float(rate), decay)
    assert found.weight_decay == float(weight_decay)
    for builder in map(variant, found.variants):
        assert builder.config(**found.fields).dropout_rate == float(dropout)
    assert (found.batch_size, found.warmup_steps) == (4096, 10_000)
    assert found.clip_norm == (1.0 if name == "vit_i1k" else None)


def test_recipes_name_existing_variants_and_augmentations():
    """AugReg's search space has 28 settings."""
    space = augreg_search()
    assert len(space) == 28
    for recipe in (*PRETRAINING.values(), *space.values()):
        assert set(recipe.variants) <= set(list_variants())
        assert recipe.augmentation in AUGREG
        assert "arXiv" in recipe.source


@pytest.mark.on_one_backend("torch")
def test_the_plain_baseline_has_the_settings_of_big_vision():
    """90 epochs of ImageNet in batches of 1,024 are 112,603 steps."""
    plain = PRETRAINING["plain_s16_i1k"]
    assert plain.steps(1_281_167, 90) == 112_603
    assert (AUGREG[plain.augmentation].randaugment, AUGREG["light2"].mixup) == ((2, 10), 0.2)
    model = vit_s16(image_size=32, num_classes=5, **plain.fields)
    recipe = pretraining_recipe(model, "plain_s16_i1k", 1_281_167, 90)
    optimizer = recipe.compile_args["optimizer"]
    assert (optimizer.weight_decay, optimizer.global_clipnorm) == (0.1, 1.0)
    rate = optimizer._learning_rate
    assert abs(float(rate(10_000)) - 1e-3) < 1e-9
    assert float(rate(112_603)) < 1e-9
    with pytest.raises(ConfigError, match="has classifier=gap, the model classifier=token"):
        pretraining_recipe(tiny(), "plain_s16_i1k", 100)
    with pytest.raises(ConfigError, match="Did you mean 'plain_s16_i1k'"):
        pretraining_recipe(model, "plain_s16", 100)


def test_the_sigmoid_recipe_of_21k_needs_its_initial_head_bias():
    """The recipe's `fields` hold the bias of -10; a model with another bias is refused."""
    name = "medium1_sd0.1_wd0.03"
    fields = augreg_search()[name].fields
    model = tiny(num_classes=6, **fields)
    recipe = pretraining_recipe(model, name, 50_000, steps=20)
    assert recipe.compile_args["loss_weights"] == 6.0
    assert np.all(np.asarray(model.get_layer("head").get_weights()[1]) == -10)
    with pytest.raises(ConfigError, match="head_bias_init"):
        pretraining_recipe(tiny(**{**fields, "head_bias_init": 0.0}), name, 50_000)


def test_fine_tuning_recipes_have_the_numbers_of_table_4():
    """The steps of ImageNet, CIFAR-10 and Pets follow BiT's rule."""
    assert FINE_TUNING["imagenet"].learning_rates == (0.003, 0.01, 0.03, 0.06)
    images = {"imagenet": 1_281_167, "cifar10": 50_000, "oxford_iiit_pet": 3_680}
    assert {name: FINE_TUNING[name].steps for name in images} == {
        name: steps_for(count) for name, count in images.items()
    }


@pytest.mark.on_one_backend("torch")
def test_a_sweep_finds_the_rate_that_learns():
    """`sweep` returns an accuracy per rate; a rate of 0.1 separates dark and bright images."""
    labels = np.arange(40) % 2
    noise = np.random.default_rng(0).integers(0, 60, (40, 16, 16, 3))
    images = (noise + 180 * labels[:, None, None, None]).astype("uint8")

    def build():
        return tiny(num_classes=2)

    data = from_arrays(images, labels, build(), 8, steps_per_epoch=5)
    found = sweep(build, data, 20, (1e-6, 0.1), validation_split=0.25)
    assert list(found) == [1e-6, 0.1]
    assert found[0.1] == 1.0
