"""The recipes: numbers, losses, weight averages, accumulated batches, and refusals."""

import keras
import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.finetune import (
    augreg_recipe,
    steps_for,
    transfer_recipe,
)
from tests.finetune.updates import after_each
from tests.helpers import assert_close, normal, numpy_of, random_tiny, tiny

SMALL = {"hidden_size": 8, "mlp_dim": 8}


@pytest.fixture(scope="module")
def model():
    """A model for all tests of this file, which do not train it."""
    return random_tiny(**SMALL)


def rate_at(recipe, step):
    """The learning rate of a recipe's optimizer at a step."""
    return float(recipe.compile_args["optimizer"]._learning_rate(step))


def test_the_defaults_are_the_numbers_of_the_papers(model):
    """`vit_jax/configs/common.py`, and section 3 of "How to train your ViT?"."""
    transfer = transfer_recipe(model, 10_000)
    config = transfer.compile_args["optimizer"].get_config()
    assert (config["momentum"], config["global_clipnorm"], config["weight_decay"]) == (0.9, 1.0, 0)
    assert (transfer.batch_size, transfer.settings["warmup_steps"]) == (512, 500)
    assert transfer.fit_args.keys() == {"epochs", "steps_per_epoch", "callbacks"}
    assert (transfer.fit_args["epochs"], transfer.fit_args["steps_per_epoch"]) == (1, 10_000)
    rates = [rate_at(transfer, step) for step in (0, 250, 500, 5250, 10_000)]
    np.testing.assert_allclose(rates, [0, 0.015, 0.03, 0.015, 0], atol=1e-8)

    augreg = augreg_recipe(model, 200_000)
    config = augreg.compile_args["optimizer"].get_config()
    assert (config["beta_1"], config["beta_2"], config["epsilon"]) == (0.9, 0.999, 1e-8)
    assert (config["weight_decay"], config["global_clipnorm"]) == (0.1, 1.0)
    assert (augreg.batch_size, augreg.settings["warmup_steps"]) == (4096, 10_000)
    assert abs(rate_at(augreg, 10_000) - 0.001) < 1e-9


def test_steps_for_follows_the_bit_rule_at_its_borders():
    """Kolesnikov et al. 2020, section 3.3."""
    sizes = (1, 19_999, 20_000, 499_999, 500_000, 14_000_000)
    assert [steps_for(n) for n in sizes] == [500, 500, 10_000, 10_000, 20_000, 20_000]


def test_the_number_of_epochs_is_rounded_up_and_counts_batches(model):
    """With 8 batches per update, `fit` takes 8 times the steps, of an eighth of the size."""
    recipe = transfer_recipe(model, 100, 64, accumulate=8, steps_per_epoch=75)
    assert recipe.batch_size == 8
    assert recipe.fit_args["epochs"] == 11  # 800 batches
    assert transfer_recipe(model, 100, steps_per_epoch=50).fit_args["epochs"] == 2


def test_the_rate_follows_updates_where_batches_are_accumulated(model):
    """Batches 8 k to 8 k + 7 have the rate of update k, also after a round trip of the config."""
    plain, several = (transfer_recipe(model, 100, 8, accumulate=n) for n in (1, 8))
    config = several.compile_args["optimizer"].get_config()
    again = type(several.compile_args["optimizer"]).from_config(config)
    for step in (0, 7, 8, 83, 799):
        assert rate_at(several, step) == rate_at(plain, step // 8)
        assert float(again._learning_rate(step)) == rate_at(plain, step // 8)


def test_three_accumulated_batches_move_the_weights_like_one_large_batch(model):
    """The mean of three gradients is clipped, not each gradient."""
    gradients = 3 * normal(12, 5)
    one = keras.Variable(normal(5, seed=1), name="kernel")
    three = keras.Variable(normal(5, seed=1), name="kernel")
    options = {"warmup_steps": 2, "layer_decay": 0.5}
    means = gradients.reshape(4, 3, 5).mean(axis=1)
    plain = transfer_recipe(model, 4, 3, **options).compile_args["optimizer"]
    several = transfer_recipe(model, 4, 3, accumulate=3, **options).compile_args["optimizer"]
    (expected,) = after_each(plain, [one], [means])
    (actual,) = after_each(several, [three], [gradients])
    for batch in range(12):
        last = expected[(batch + 1) // 3 - 1] if batch >= 2 else normal(5, seed=1)
        assert_close(actual[batch], last, 1e-6)


def test_validation_uses_the_averaged_weights_and_fit_ends_with_them():
    """In the training loop of each backend; the average differs from the last weights."""
    model = random_tiny(**SMALL)
    images, classes = normal(16, 16, 16, 3), np.arange(16) % 5
    recipe = transfer_recipe(model, 4, 4, ema=0.9, warmup_steps=0, steps_per_epoch=4)
    model.compile(**recipe.compile_args)
    seen = []
    last = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(numpy_of(bias)))
    bias = model.get_layer("head").bias
    recipe.fit_args["callbacks"].append(last)
    data = {"validation_data": (images, classes), "batch_size": 4, "verbose": 0}
    history = model.fit(images, classes, **data, **recipe.fit_args).history
    again = model.evaluate(images, classes, batch_size=4, verbose=0)
    assert np.abs(numpy_of(bias) - seen[0]).max() > 1e-3
    assert abs(history["val_loss"][0] - again[0]) < 1e-6


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_average_is_exponential_and_counts_updates(model, accumulate):
    """It starts as the weights after the first update; each later update adds a share."""
    gradients = normal(12, 5, seed=1)
    means = gradients.reshape(-1, accumulate, 5).mean(axis=1)
    one, variable = (keras.Variable(normal(5), name="kernel") for _ in range(2))
    plain = transfer_recipe(model, 12, 3).compile_args["optimizer"]
    (path,) = after_each(plain, [one], [means])
    expected = path[0]
    for weights in path[1:]:
        expected = 0.75 * expected + 0.25 * weights
    recipe = transfer_recipe(model, 12, 3, ema=0.75, accumulate=accumulate)
    optimizer = recipe.compile_args["optimizer"]
    after_each(optimizer, [variable], [gradients])
    optimizer.finalize_variable_values([variable])
    assert_close(variable, expected, 1e-6)


def test_before_the_first_update_the_average_is_the_initial_weights(model):
    """Validation before the first update is complete uses the initial weights."""
    start = normal(5)
    variable = keras.Variable(start, name="kernel")
    optimizer = transfer_recipe(model, 4, 3, ema=0.5, accumulate=3).compile_args["optimizer"]
    after_each(optimizer, [variable], [normal(2, 5, seed=1)])
    optimizer.finalize_variable_values([variable])
    assert_close(variable, start, 0)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_losses_are_summed_over_classes_and_averaged_over_images(loss):
    """As in big_vision, with mixed labels."""
    model = random_tiny(**SMALL)
    images, labels = normal(4, 16, 16, 3), np.abs(normal(4, 5, seed=1))
    labels /= labels.sum(axis=1, keepdims=True)
    model.compile(**augreg_recipe(model, 10, loss=loss).compile_args)
    actual = model.evaluate(images, labels, verbose=0)[0]
    logits = numpy_of(model(images)).astype("float64")
    if loss == "softmax":
        expected = labels * (np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits)
    else:
        expected = labels * np.log1p(np.exp(-logits)) + (1 - labels) * np.log1p(np.exp(logits))
    assert abs(actual - expected.sum(axis=1).mean()) < 1e-5


def test_the_recipe_chooses_the_loss_by_classes_and_labels(model):
    """Sigmoid for 21,843 classes; integer or one-hot labels; label smoothing as in Keras."""
    wide = tiny(num_classes=21843, **SMALL)
    assert isinstance(augreg_recipe(wide, 10).compile_args["loss"], keras.losses.BinaryCrossentropy)
    sparse, dense = transfer_recipe(model, 10), transfer_recipe(model, 10, one_hot=True)
    logits, classes = normal(3, 5), np.array([0, 4, 2])
    ints = float(sparse.compile_args["loss"](classes, logits))
    assert abs(float(dense.compile_args["loss"](np.eye(5)[classes], logits)) - ints) < 1e-6
    smooth = transfer_recipe(model, 10, one_hot=True, label_smoothing=0.1).compile_args["loss"]
    labels = 0.9 * np.eye(5)[classes] + 0.02
    assert (
        abs(
            float(smooth(np.eye(5)[classes], logits))
            - float(dense.compile_args["loss"](labels, logits))
        )
        < 1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a positive int, found 0"),
        ({"batch_size": 10, "accumulate": 4}, "batch_size=10 is not divisible by accumulate=4"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be a positive int or None, found 0"),
        ({"decay": "rsqrt"}, "decay='rsqrt' is not one of cosine, linear"),
        ({"warmup_steps": 100}, "warmup_steps=100: expected 0 to 99, below steps"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number, found 0.0"),
        ({"ema": 1.0}, r"ema must be a number in \[0, 1\) or None, found 1.0"),
        ({"label_smoothing": 0.1}, "label_smoothing=0.1 needs labels .* one_hot=True"),
        ({"head_only": True, "lora_rank": 4}, "head_only=True, .* lora_rank=4 exclude each other"),
    ],
    ids=str,
)
def test_bad_numbers_are_refused(options, message, model):
    """The message names the argument and the values allowed; the model is not changed."""
    trainable = len(model.trainable_weights)
    with pytest.raises(ConfigError, match=message):
        transfer_recipe(model, **{"steps": 100, "head_only": True, **options})
    assert len(model.trainable_weights) == trainable


def test_a_model_without_a_head_and_an_unknown_loss_are_refused(model):
    """The message for a model without a head says how to make one with a head."""
    with pytest.raises(ConfigError, match=r"num_classes=0.*from_preset\(..., num_classes=n\)"):
        transfer_recipe(tiny(num_classes=0), 10)
    with pytest.raises(ConfigError, match="loss='hinge' is not one of softmax, sigmoid"):
        augreg_recipe(model, 10, loss="hinge")
    with pytest.raises(ConfigError, match="loss='sigmoid' needs labels"):
        augreg_recipe(model, 10, loss="sigmoid", one_hot=False)
