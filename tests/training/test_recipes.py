"""The recipes: numbers, losses, weight averages, accumulated batches, and refusals."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_vit.data import AUGREG, from_arrays
from keras_vit.errors import ConfigError
from keras_vit.training import AugregRecipe, TransferRecipe, steps_for, train
from tests.helpers import assert_close, random_tiny, tiny, to_numpy
from tests.plain import normal
from tests.training.updates import after_each

pytestmark = pytest.mark.every_backend

SMALL = {"hidden_size": 8, "mlp_dim": 8}


@pytest.fixture(scope="module")
def model():
    """A model for all tests of this file, which do not train it."""
    return random_tiny(**SMALL)


def rate_at(recipe, step, model):
    """The learning rate of a recipe's optimizer at a step."""
    return float(recipe.compile_args(model)["optimizer"]._learning_rate(step))


@pytest.mark.parametrize(
    ("make", "steps", "rate", "batch_size", "warmup_steps"),
    [(TransferRecipe, 10_000, 0.03, 512, 500), (AugregRecipe, 200_000, 0.001, 4096, 10_000)],
)
def test_the_defaults_are_those_of_the_papers(make, steps, rate, batch_size, warmup_steps, model):
    """`vit_jax/configs/common.py`, and section 3 of "How to train your ViT?"."""
    recipe = make(steps)
    assert (recipe.batch_size, recipe.settings["warmup_steps"]) == (batch_size, warmup_steps)
    fit = recipe.fit_args(model)
    assert (fit["epochs"], fit["steps_per_epoch"]) == (1, steps)
    rates = [rate_at(recipe, step, model) for step in (0, warmup_steps, steps)]
    np.testing.assert_allclose(rates, [0, rate, 0], atol=1e-8)


def test_steps_for_follows_the_bit_rule_at_its_borders():
    """Kolesnikov et al. 2020, section 3.3."""
    sizes = (1, 19_999, 20_000, 499_999, 500_000, 14_000_000)
    assert [steps_for(n) for n in sizes] == [500, 500, 10_000, 10_000, 20_000, 20_000]


def test_the_number_of_epochs_is_rounded_up_and_counts_batches(model):
    """With 8 batches per update, `fit` takes 8 times the steps, of an eighth of the size."""
    recipe = TransferRecipe(100, 64, accumulate=8, steps_per_epoch=75)
    assert recipe.data_args["batch_size"] == 8
    assert recipe.fit_args(model)["epochs"] == 11  # 800 batches
    assert TransferRecipe(100, steps_per_epoch=50).fit_args(model)["epochs"] == 2


def test_the_rate_follows_updates_where_batches_are_accumulated(model):
    """Batches 8 k to 8 k + 7 have the rate of update k, also after a round trip of the config."""
    plain, several = (TransferRecipe(100, 8, accumulate=n) for n in (1, 8))
    optimizer = several.compile_args(model)["optimizer"]
    again = type(optimizer).from_config(optimizer.get_config())
    for step in (0, 7, 8, 83, 799):
        assert rate_at(several, step, model) == rate_at(plain, step // 8, model)
        assert float(again._learning_rate(step)) == rate_at(plain, step // 8, model)


def test_three_accumulated_batches_move_the_weights_like_one_large_batch(model):
    """The mean of three gradients is clipped, not each gradient."""
    gradients = 3 * normal(12, 5)
    one = keras.Variable(normal(5, seed=1), name="kernel")
    three = keras.Variable(normal(5, seed=1), name="kernel")
    options = {"warmup_steps": 2, "layer_decay": 0.5}
    means = gradients.reshape(4, 3, 5).mean(axis=1)
    plain = TransferRecipe(4, 3, **options).compile_args(model)["optimizer"]
    several = TransferRecipe(4, 3, accumulate=3, **options).compile_args(model)["optimizer"]
    (expected,) = after_each(plain, [one], [means])
    (actual,) = after_each(several, [three], [gradients])
    for batch in range(12):
        last = expected[(batch + 1) // 3 - 1] if batch >= 2 else normal(5, seed=1)
        assert_close(actual[batch], last, 1e-6)


def test_validation_uses_the_averaged_weights_and_fit_ends_with_them():
    """In the training loop of each backend; the average differs from the last weights."""
    model = random_tiny(**SMALL)
    images, classes = normal(16, 16, 16, 3), np.arange(16) % 5
    recipe = TransferRecipe(4, 4, ema=0.9, warmup_steps=0, steps_per_epoch=4)
    model.compile(**recipe.compile_args(model))
    seen = []
    last = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(to_numpy(bias)))
    bias = model.get_layer("head").bias
    fit = recipe.fit_args(model)
    fit["callbacks"].append(last)
    data = {"validation_data": (images, classes), "batch_size": 4, "verbose": 0}
    history = model.fit(images, classes, **data, **fit).history
    again = model.evaluate(images, classes, batch_size=4, verbose=0)
    assert np.abs(to_numpy(bias) - seen[0]).max() > 1e-3
    assert abs(history["val_loss"][0] - again[0]) < 1e-6
    model.fit(images, classes, **data, **fit)  # goes on from the averages


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_average_is_exponential_and_counts_updates(model, accumulate):
    """It starts as the weights after the first update; each later batch adds a share."""
    gradients = normal(12, 5, seed=1)
    means = gradients.reshape(-1, accumulate, 5).mean(axis=1)
    one, variable = (keras.Variable(normal(5), name="kernel") for _ in range(2))
    plain = TransferRecipe(12, 3).compile_args(model)["optimizer"]
    (path,) = after_each(plain, [one], [means])
    expected, kept = path[0], 0.75 ** (1 / accumulate)
    for weights in np.repeat(path[1:], accumulate, axis=0)[: 13 - 2 * accumulate]:
        expected = kept * expected + (1 - kept) * weights
    recipe = TransferRecipe(12, 3, ema=0.75, accumulate=accumulate)
    optimizer = recipe.compile_args(model)["optimizer"]
    after_each(optimizer, [variable], [gradients])
    optimizer.finalize_variable_values([variable])
    assert_close(variable, expected, 1e-6)


def test_before_the_first_update_the_average_is_the_initial_weights(model):
    """Validation before the first update is complete uses the initial weights."""
    start = normal(5)
    variable = keras.Variable(start, name="kernel")
    optimizer = TransferRecipe(4, 3, ema=0.5, accumulate=3).compile_args(model)["optimizer"]
    after_each(optimizer, [variable], [normal(2, 5, seed=1)])
    optimizer.finalize_variable_values([variable])
    assert_close(variable, start, 0)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_losses_are_summed_over_classes_and_averaged_over_images(loss):
    """As in big_vision, with mixed labels."""
    model = random_tiny(**SMALL)
    images, labels = normal(4, 16, 16, 3), np.abs(normal(4, 5, seed=1))
    labels /= labels.sum(axis=1, keepdims=True)
    model.compile(**AugregRecipe(10, loss=loss).compile_args(model))
    actual = model.evaluate(images, labels, verbose=0)[0]
    logits = to_numpy(model(images)).astype("float64")
    if loss == "softmax":
        expected = labels * (np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits)
    else:
        expected = labels * np.log1p(np.exp(-logits)) + (1 - labels) * np.log1p(np.exp(logits))
    assert abs(actual - expected.sum(axis=1).mean()) < 1e-5


def test_the_recipe_chooses_the_loss_by_classes_and_labels(model):
    """Sigmoid for 21,843 classes; integer or one-hot labels; label smoothing as in Keras."""
    wide = tiny(num_classes=21843, **SMALL)
    assert isinstance(AugregRecipe(10).compile_args(wide)["loss"], keras.losses.BinaryCrossentropy)
    sparse = TransferRecipe(10).compile_args(model)["loss"]
    dense = TransferRecipe(10, one_hot=True).compile_args(model)["loss"]
    logits, classes = normal(3, 5), np.array([0, 4, 2])
    ints = float(sparse(classes, logits))
    assert abs(float(dense(np.eye(5)[classes], logits)) - ints) < 1e-6
    smooth = TransferRecipe(10, one_hot=True, label_smoothing=0.1).compile_args(model)["loss"]
    labels = 0.9 * np.eye(5)[classes] + 0.02
    assert abs(float(smooth(np.eye(5)[classes], logits)) - float(dense(labels, logits))) < 1e-6


def test_a_new_head_of_21k_begins_with_the_bias_of_big_vision():
    """-10: the first loss is 10 for the right class, and 1 for all others together."""
    model = tiny(num_classes=21843, **SMALL)
    model.compile(**AugregRecipe(10).compile_args(model))
    loss = model.evaluate(normal(2, 16, 16, 3), np.eye(21843)[[7, 21842]], verbose=0)[0]
    assert loss == pytest.approx(np.log1p(np.exp(10)) + 21842 * np.log1p(np.exp(-10)), rel=2e-3)
    few = tiny(num_classes=5, **SMALL)  # -10 would be far above chance, and warn
    AugregRecipe(10, loss="sigmoid").compile_args(few)
    np.testing.assert_allclose(to_numpy(few.get_layer("head").bias), -1.6)
    for other, loss in (
        (random_tiny(**SMALL), "sigmoid"),
        (tiny(**SMALL), "softmax"),
        (tiny(task="multi_label", **SMALL), "sigmoid"),
    ):
        before = to_numpy(other.get_layer("head").bias)
        AugregRecipe(10, loss=loss).compile_args(other)
        np.testing.assert_array_equal(to_numpy(other.get_layer("head").bias), before)


def test_a_recipe_is_plain_json_and_is_rebuilt_from_it():
    """`settings` has the numbers that defaults stand for; an array of weights becomes a tuple."""
    weights = np.array([1.0, 2.5])
    recipe = AugregRecipe(100, 8, ema=0.9, positive_weights=weights, augmentation="light1")
    again = AugregRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again.settings == recipe.settings == json.loads(json.dumps(recipe.settings))
    assert recipe.settings["positive_weights"] == [1.0, 2.5]
    assert (recipe.settings["recipe"], recipe.settings["learning_rate"]) == ("augreg", 0.001)
    longer = dataclasses.replace(recipe, steps=1000)
    assert (recipe.warmup, longer.warmup) == (10, 100)
    with pytest.raises(ConfigError, match="Unknown field stepz. Did you mean 'steps'"):
        TransferRecipe.from_dict({"stepz": 4})


def test_a_recipe_changes_no_trained_model():
    """Neither its weights, nor what learns, nor its thresholds."""
    model = random_tiny(**SMALL)
    before = [to_numpy(weight) for weight in model.weights]
    for recipe in (TransferRecipe(10, layer_decay=0.5, ema=0.5), AugregRecipe(10)):
        recipe.compile_args(model)
        recipe.fit_args(model)
    assert len(model.trainable_weights) == len(model.weights)
    assert model.thresholds is None
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)


def test_the_arguments_of_a_recipe_make_data_and_a_training_that_fit(tmp_path):
    """`data_args` have the batches, the seed and the labels; `train` refuses other data."""
    model = random_tiny(**SMALL)
    recipe = TransferRecipe(4, 4, accumulate=2, augmentation="light1", seed=3, one_hot=True)
    images, labels = np.zeros((8, 16, 16, 3), "uint8"), np.arange(8) % 5
    data = from_arrays(images, labels, model, **recipe.data_args)
    assert (data.batch_size, data.seed, data.augmentation) == (2, 3, AUGREG["light1"])
    for changes, message in (
        ({"seed": 4}, "seed=3, the data have seed=4"),
        ({"augmentation": "none"}, "augmentation="),
        ({"augmentation": "crop_flip"}, "augmentation="),
        ({"batch_size": 4}, "batch_size=2, the data have batch_size=4"),
        ({"one_hot": False, "augmentation": None}, "one_hot=True|augmentation="),
    ):
        other = from_arrays(images, labels, model, **{**recipe.data_args, **changes})
        with pytest.raises(ConfigError, match=message):
            train(model, other, recipe=recipe, path=tmp_path / "out")
    plain = dataclasses.replace(recipe, augmentation="none")
    with pytest.raises(ConfigError, match="augmentation=None"):
        train(model, data, recipe=plain, path=tmp_path / "out")
    assert not list(tmp_path.iterdir())
