"""The examples of tables 3 and 4: published recipes, a training by one, and a sweep of rates."""

import numpy as np
import pytest

from keras_vit import VisionTransformer, evaluate, vit_s16
from keras_vit.config.fields import flatten
from keras_vit.data import AUGREG, from_arrays, from_folder
from tests.digits import LOOPS, write_folders
from tests.examples import load
from tests.helpers import tiny

EXAMPLE = load("paper/pretraining.py")
PRETRAINING = EXAMPLE["PRETRAINING"]
augreg_search = EXAMPLE["augreg_search"]
pretrain = EXAMPLE["pretrain"]
pretraining_recipe = EXAMPLE["pretraining_recipe"]
sweep = load("paper/table4_rates.py")["sweep"]
SIZES = {"patch_size": 8, "hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 1}
EPOCHS, STEPS = 3, 4


def test_a_training_follows_the_plan_of_the_published_recipe(tmp_path):
    """Model, augmentation, optimizer and length; an epoch is one pass over the data. The saved
    preset has the scores of the held-out images, the class names and the recipe's protocol."""
    train, test = write_folders(tmp_path, LOOPS.get, train=8 * STEPS, test=12, size=16)
    options = {"validation": test, "image_size": 16, "epochs": EPOCHS, "batch_size": 8}
    plans, out = [], tmp_path / "run"
    trained = pretrain(
        train, "plain_s16_i1k", out=out, fields=SIZES, announce=plans.append, **options
    )
    published, (plan,) = PRETRAINING["plain_s16_i1k"], plans
    assert flatten(published.fields).items() <= flatten(plan.model.config.to_dict()).items()
    assert plan.data.augmentation == AUGREG["light2"]
    assert (len(plan.data), plan.recipe.settings["steps"]) == (STEPS, EPOCHS * STEPS)
    assert plan.recipe.settings["learning_rate"] == published.learning_rate
    assert plan.recipe.compile_args(plan.model)["optimizer"].kernel_decay == published.weight_decay
    model, history = VisionTransformer.from_preset(trained.preset), trained.history
    assert (model.class_names, model.preprocessor.protocol) == (("loop", "open"), "big_vision")
    actual, kept = evaluate(model, from_folder(test, model, 8)), trained.evaluation
    assert (actual.count, actual.top1) == (kept.count, kept.top1)
    losses = (kept.loss, history["val_loss"][-1])
    assert losses == pytest.approx((actual.loss,) * 2, rel=1e-5)
    assert len(history["val_accuracy"]) == EPOCHS


def test_the_plain_baseline_has_the_settings_of_big_vision():
    """90 epochs of ImageNet in batches of 1,024 are 112,603 steps."""
    plain = PRETRAINING["plain_s16_i1k"]
    assert plain.steps(1_281_167, 90) == 112_603
    assert (AUGREG[plain.augmentation].randaugment, AUGREG["light2"].mixup) == ((2, 10), 0.2)
    model = vit_s16(image_size=32, num_classes=5, **plain.fields)
    recipe = pretraining_recipe(model, "plain_s16_i1k", 1_281_167, 90)
    optimizer = recipe.compile_args(model)["optimizer"]
    assert (optimizer.kernel_decay, optimizer.global_clipnorm) == (0.1, 1.0)
    rates = [float(optimizer._learning_rate(step)) for step in (10_000, 112_603)]
    np.testing.assert_allclose(rates, [1e-3, 0], rtol=0, atol=1e-9)


def test_the_sigmoid_recipe_of_21k_starts_the_bias_of_the_head():
    """At -ln(classes), which is -10 there, with a loss that is summed over the classes."""
    name = "medium1_sd0.1_wd0.03"
    model = tiny(num_classes=6, **augreg_search()[name].fields)
    recipe = pretraining_recipe(model, name, 50_000, steps=20)
    assert recipe.compile_args(model)["loss_weights"] == 6.0
    np.testing.assert_allclose(model.get_layer("head").get_weights()[1], -1.8)


def test_a_sweep_finds_the_rate_that_learns():
    """`sweep` returns an accuracy per rate; a rate of 0.1 separates dark and bright images."""
    labels = np.arange(40) % 2
    noise = np.random.default_rng(0).integers(0, 60, (40, 16, 16, 3))
    images = (noise + 180 * labels[:, None, None, None]).astype("uint8")
    data = from_arrays(images, labels, tiny().preprocessor, 8, steps_per_epoch=5)
    build = lambda: tiny(num_classes=2)  # noqa: E731
    actual = sweep(build, data, 20, (1e-6, 0.1), validation_split=0.25)
    assert (list(actual), actual[0.1]) == ([1e-6, 0.1], 1.0)
