"""The recipes: numbers, losses, weight averages, accumulated batches, and the first loss."""

import json

import keras
import numpy as np
import pytest

from keras_vit.data import AUGREG, from_arrays
from keras_vit.training import AugregRecipe, TransferRecipe, steps_for
from keras_vit.training.first_loss import FirstLoss
from tests.helpers import assert_close, random_tiny, tiny, to_numpy
from tests.plain import normal
from tests.training.updates import after_each

pytestmark = pytest.mark.every_backend

SMALL = {"hidden_size": 8, "mlp_dim": 8}


@pytest.fixture(scope="module")
def model():
    """A model for all tests of this file, which do not train it."""
    return random_tiny(**SMALL)


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
    rate_at = recipe.compile_args(model)["optimizer"]._learning_rate
    rates = [float(rate_at(step)) for step in (0, warmup_steps, steps)]
    np.testing.assert_allclose(rates, [0, rate, 0], atol=1e-8)


def test_steps_for_follows_the_bit_rule_at_its_borders():
    """Kolesnikov et al. 2020, section 3.3."""
    sizes = (1, 19_999, 20_000, 499_999, 500_000, 14_000_000)
    assert [steps_for(n) for n in sizes] == [500, 500, 10_000, 10_000, 20_000, 20_000]


def test_three_accumulated_batches_move_the_weights_like_one_large_batch(model):
    """The mean of three gradients is clipped, and the rate follows updates; also when rebuilt."""
    gradients, start = 3 * normal(12, 5), normal(5, seed=1)

    def path(gradients, accumulate):
        recipe = TransferRecipe(4, 3, accumulate=accumulate, warmup_steps=2, layer_decay=0.5)
        weight = keras.Variable(start, name="kernel")
        optimizer = recipe.compile_args(model)["optimizer"]
        optimizer = type(optimizer).from_config(optimizer.get_config())
        return after_each(optimizer, [weight], [gradients])[0]

    expected = path(gradients.reshape(4, 3, 5).mean(axis=1), 1)
    actual = path(gradients, 3)
    for batch in range(12):
        last = expected[(batch + 1) // 3 - 1] if batch >= 2 else start
        assert_close(actual[batch], last, 1e-6)


def test_validation_uses_the_averaged_weights_and_fit_ends_with_them():
    """In the training loop of each backend; the average differs from the last weights."""
    model = random_tiny(**SMALL)
    data = {"x": normal(16, 16, 16, 3), "y": np.arange(16) % 5}
    recipe = TransferRecipe(4, 4, ema=0.9, warmup_steps=0, steps_per_epoch=4)
    model.compile(**recipe.compile_args(model))
    seen, bias, fit = [], model.get_layer("head").bias, recipe.fit_args(model)
    last = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(to_numpy(bias)))
    fit["callbacks"].append(last)
    options = {**data, "validation_data": tuple(data.values()), "batch_size": 4, "verbose": 0}
    history = model.fit(**options, **fit).history
    again = model.evaluate(**data, batch_size=4, verbose=0)
    assert np.abs(to_numpy(bias) - seen[0]).max() > 1e-3
    assert abs(history["val_loss"][0] - again[0]) < 1e-6
    model.fit(**options, **fit)  # goes on from the averages


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_average_is_exponential_and_counts_updates(model, accumulate):
    """It is the weights after the first update; each later batch adds a share."""
    gradients, options = normal(12, 5, seed=1), {"ema": 0.75, "accumulate": accumulate}
    means = gradients.reshape(-1, accumulate, 5).mean(axis=1)
    one = keras.Variable(normal(5), name="kernel")
    plain = TransferRecipe(12, 3).compile_args(model)["optimizer"]
    (path,) = after_each(plain, [one], [means])
    expected, kept = path[0], 0.75 ** (1 / accumulate)
    for weights in np.repeat(path[1:], accumulate, axis=0)[: 13 - 2 * accumulate]:
        expected = kept * expected + (1 - kept) * weights
    weight = keras.Variable(normal(5), name="kernel")
    optimizer = TransferRecipe(12, 3, **options).compile_args(model)["optimizer"]
    after_each(optimizer, [weight], [gradients])
    optimizer.finalize_variable_values([weight])
    assert_close(weight, expected, 1e-6)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_losses_are_summed_over_classes_and_averaged_over_images(loss):
    """As in big_vision, with mixed labels."""
    model = random_tiny(**SMALL)
    images, labels = normal(4, 16, 16, 3), np.abs(normal(4, 5, seed=1))
    labels /= labels.sum(axis=1, keepdims=True)
    model.compile(**AugregRecipe(10, loss=loss).compile_args(model))
    actual = model.evaluate(images, labels, verbose=0)[0]
    x = to_numpy(model(images)).astype("float64")
    expected = labels * (np.log(np.exp(x).sum(axis=1, keepdims=True)) - x)
    if loss == "sigmoid":
        expected = labels * np.log1p(np.exp(-x)) + (1 - labels) * np.log1p(np.exp(x))
    assert abs(actual - expected.sum(axis=1).mean()) < 1e-5


def test_the_recipe_chooses_the_loss_by_labels(model):
    """Integer or one-hot labels; label smoothing as in Keras."""
    logits, classes = normal(3, 5), np.array([0, 4, 2])

    def loss(labels, **options):
        chosen = TransferRecipe(10, **options).compile_args(model)["loss"]
        return float(chosen(labels, logits))

    hot = np.eye(5)[classes]
    assert abs(loss(hot, one_hot=True) - loss(classes)) < 1e-6
    smooth = loss(hot, one_hot=True, label_smoothing=0.1)
    assert abs(smooth - loss(0.9 * hot + 0.02, one_hot=True)) < 1e-6


@pytest.mark.parametrize(
    ("make", "loss", "bias"),
    [
        (lambda **fields: tiny(num_classes=21843, **fields), None, -10),  # as in big_vision
        (tiny, "sigmoid", -1.6),  # -10 would be far above chance, and warn
        (random_tiny, "sigmoid", None),
        (tiny, "softmax", None),
        (lambda **fields: tiny(task="multi_label", **fields), "sigmoid", None),
    ],
)
def test_a_recipe_sets_the_bias_of_a_new_head_of_a_sigmoid_alone(make, loss, bias):
    model = make(**SMALL)
    before = to_numpy(model.get_layer("head").bias)
    AugregRecipe(10, loss=loss).compile_args(model)
    expected = before if bias is None else np.full(before.shape, bias, "float32")
    np.testing.assert_allclose(to_numpy(model.get_layer("head").bias), expected, rtol=1e-7)


def test_a_recipe_is_plain_json_and_is_rebuilt_from_it():
    """`settings` has the numbers that defaults stand for; an array of weights becomes a tuple."""
    weights = np.array([1.0, 2.5])
    recipe = AugregRecipe(100, 8, ema=0.9, positive_weights=weights, augmentation="light1")
    again = AugregRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again.settings == recipe.settings == json.loads(json.dumps(recipe.settings))
    assert recipe.settings["positive_weights"] == [1.0, 2.5]
    assert (recipe.settings["recipe"], recipe.settings["learning_rate"]) == ("augreg", 0.001)


def test_the_arguments_of_a_recipe_make_data_that_fit(model):
    """`data_args` have the batches, the seed and the labels; epochs count batches, rounded up."""
    options = {"augmentation": "light1", "seed": 3, "one_hot": True}
    recipe = TransferRecipe(4, 4, accumulate=2, steps_per_epoch=3, **options)
    assert recipe.fit_args(model)["epochs"] == 3  # of 8 batches
    images, labels = np.zeros((8, 16, 16, 3), "uint8"), np.arange(8) % 5
    data = from_arrays(images, labels, model, **recipe.data_args)
    assert (data.batch_size, data.seed, data.augmentation) == (2, 3, AUGREG["light1"])


def test_a_first_loss_far_above_chance_warns_with_the_usual_causes():
    """So does NaN; later losses are not read. Recipes check it."""
    model = random_tiny()
    model.get_layer("head").set_weights([w * 100 for w in model.get_layer("head").get_weights()])
    model.compile(keras.optimizers.SGD(0.0), "auto")
    callbacks = TransferRecipe(10).fit_args(model)["callbacks"]
    with pytest.warns(UserWarning, match=r"chance would be 1\.61\. Usual causes") as warned:
        model.fit(normal(8, 16, 16, 3), np.arange(8) % 5, 8, 2, verbose=0, callbacks=callbacks)
    assert len([w for w in warned if "Usual causes" in str(w.message)]) == 1
    with pytest.warns(UserWarning, match="The loss is nan"):
        FirstLoss(5).on_train_batch_end(0, {"loss": np.nan})
