"""The examples of tables 3 and 4: published recipes, a training by one, and a sweep of rates."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from keras_vit import VisionTransformer, evaluate, vit_s16
from keras_vit.config.fields import flatten
from keras_vit.data import AUGREG, from_arrays, from_folder
from keras_vit.errors import ConfigError
from tests.digits import LOOPS, write_folders
from tests.helpers import tiny

FOLDER = Path(__file__).parents[2] / "examples" / "paper"
EXAMPLE = runpy.run_path(str(FOLDER / "pretraining.py"))
PRETRAINING = EXAMPLE["PRETRAINING"]
augreg_search = EXAMPLE["augreg_search"]
pretrain = EXAMPLE["pretrain"]
pretraining_recipe = EXAMPLE["pretraining_recipe"]
TABLE_4 = runpy.run_path(str(FOLDER / "table4_rates.py"))
sweep = TABLE_4["sweep"]
SIZES = {"patch_size": 8, "hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 1}
EPOCHS, STEPS = 3, 4


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("desk")
    write_folders(folder, LOOPS.get, train=8 * STEPS, test=12, size=16)
    return folder


def run(desk, out, **options):
    return pretrain(
        desk / "train",
        "plain_s16_i1k",
        out=out,
        validation=desk / "test",
        image_size=16,
        epochs=EPOCHS,
        batch_size=8,
        fields=SIZES,
        **options,
    )


@pytest.fixture(scope="module")
def unbroken(desk, tmp_path_factory):
    out, plans = tmp_path_factory.mktemp("runs") / "unbroken", []
    return out, run(desk, out, announce=plans.append), plans[0]


def test_the_plan_has_the_fields_and_settings_of_the_published_recipe(unbroken):
    """Model, augmentation, optimizer and length; an epoch is one pass over the data."""
    _, trained, plan = unbroken
    published = PRETRAINING["plain_s16_i1k"]
    assert flatten(published.fields).items() <= flatten(plan.model.config.to_dict()).items()
    assert plan.data.augmentation == AUGREG["light2"]
    assert (len(plan.data), plan.recipe.settings["steps"]) == (STEPS, EPOCHS * STEPS)
    assert plan.recipe.settings["learning_rate"] == published.learning_rate
    assert plan.recipe.compile_args(plan.model)["optimizer"].kernel_decay == published.weight_decay
    assert len(trained.history["val_accuracy"]) == EPOCHS


def test_the_saved_preset_has_the_scores_of_the_held_out_images(desk, unbroken):
    """It also has the class names and the recipe's protocol."""
    _, trained, _ = unbroken
    model = VisionTransformer.from_preset(trained.preset)
    assert model.class_names == ("loop", "open")
    assert model.preprocessor.protocol == "big_vision"
    actual = evaluate(model, from_folder(desk / "test", model, 8))
    assert (actual.count, actual.top1) == (
        trained.evaluation.count,
        trained.evaluation.top1,
    )
    assert actual.loss == pytest.approx(trained.evaluation.loss, rel=1e-5)
    assert trained.history["val_loss"][-1] == pytest.approx(actual.loss, rel=1e-5)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"recipe": "plain_s16"}, "Did you mean 'plain_s16_i1k'"),
        ({"variant": "vit_b17"}, "Did you mean 'vit_b16'"),
        ({"accumulate": 3, "batch_size": 8}, "batch_size=8 is not divisible by accumulate=3"),
        ({"fields": {"position": "none"}}, "has position=sincos2d, the model position=none"),
    ],
)
def test_bad_arguments_are_refused_by_name(desk, tmp_path, named, message):
    """Before the first step, and before the output folder is made."""
    arguments = {"recipe": "plain_s16_i1k", "image_size": 16, **named}
    with pytest.raises(ConfigError, match=message):
        pretrain(desk / "train", out=tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_the_plain_baseline_has_the_settings_of_big_vision():
    """90 epochs of ImageNet in batches of 1,024 are 112,603 steps."""
    plain = PRETRAINING["plain_s16_i1k"]
    assert plain.steps(1_281_167, 90) == 112_603
    assert (AUGREG[plain.augmentation].randaugment, AUGREG["light2"].mixup) == ((2, 10), 0.2)
    model = vit_s16(image_size=32, num_classes=5, **plain.fields)
    recipe = pretraining_recipe(model, "plain_s16_i1k", 1_281_167, 90)
    optimizer = recipe.compile_args(model)["optimizer"]
    assert (optimizer.kernel_decay, optimizer.global_clipnorm) == (0.1, 1.0)
    rate = optimizer._learning_rate
    assert abs(float(rate(10_000)) - 1e-3) < 1e-9
    assert float(rate(112_603)) < 1e-9
    with pytest.raises(ConfigError, match="has pool.kind=gap, the model pool.kind=token"):
        pretraining_recipe(tiny(), "plain_s16_i1k", 100)
    with pytest.raises(ConfigError, match="Did you mean 'plain_s16_i1k'"):
        pretraining_recipe(model, "plain_s16", 100)


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

    def build():
        return tiny(num_classes=2)

    data = from_arrays(images, labels, build(), 8, steps_per_epoch=5)
    actual = sweep(build, data, 20, (1e-6, 0.1), validation_split=0.25)
    assert list(actual) == [1e-6, 0.1]
    assert actual[0.1] == 1.0
