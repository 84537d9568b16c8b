"""Training of multi-label models: recipes, losses, metrics, and one call from a table."""

import csv
import json

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, cli, evaluate, finetune
from keras_vit.data import ImageSource, from_arrays
from keras_vit.errors import ConfigError
from keras_vit.models.losses import MultiLabelCrossentropy, adapt_losses
from keras_vit.training import AugregRecipe, TransferRecipe
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

COLOURS = ("red", "green", "blue")


def bars(count=64, seed=0):
    """Black images with a bar of each of their colours, and zeros and ones of the colours."""
    rng = np.random.default_rng(seed)
    labels = rng.random((count, 3)) < 0.4
    images = np.zeros((count, 16, 16, 3), "uint8")
    for k in range(3):
        images[labels[:, k], 5 * k : 5 * k + 5, :, k] = 255
    return images, labels


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of such images, a table of their labels, and a small preset."""
    folder = tmp_path_factory.mktemp("bars")
    images, labels = bars()
    (folder / "photos").mkdir()
    for k, image in enumerate(images):
        Image.fromarray(image).save(folder / "photos" / f"{k:02d}.png")
    flags = labels[:, ::-1].astype(int)
    rows = [f"{k:02d}.png,{','.join(map(str, row))}" for k, row in enumerate(flags)]
    (folder / "photos" / "labels.csv").write_text("\n".join(["path,blue,green,red", *rows]))
    tiny(num_classes=10).save_to_preset(folder / "tiny")
    return folder


@pytest.mark.parametrize("recipe", [TransferRecipe, AugregRecipe])
def test_a_recipe_has_the_loss_and_the_metrics_of_a_multi_label_model(recipe):
    """The task is all that is needed."""
    model = random_tiny(num_classes=3, task="multi_label")
    chosen = recipe(steps=4, batch_size=8)
    model.compile(**chosen.compile_args(model))
    images, labels = normal(16, 16, 16, 3), np.random.default_rng(0).integers(0, 2, (16, 3))
    scores = model.evaluate(images, labels.astype("float32"), verbose=0, return_dict=True)
    expected = evaluate(model, (images, labels), prepared=True)
    factor = 3 if recipe is AugregRecipe else 1  # a sum over classes
    assert scores["loss"] == pytest.approx(factor * expected.loss, rel=1e-4)
    assert scores["pr_auc"] == pytest.approx(expected.mean_average_precision, abs=0.1)


def test_auto_is_binary_crossentropy_for_a_multi_label_model():
    """And "accuracy" counts every class."""
    model = random_tiny(num_classes=3, task="multi_label")
    model.compile("sgd", "auto", metrics=["accuracy"])
    images, labels = normal(8, 16, 16, 3), np.eye(3, dtype="float32")[np.arange(8) % 3]
    scores = model.evaluate(images, labels, verbose=0, return_dict=True)
    right = (model.probabilities(images, prepared=True) > 0.5) == labels
    assert scores["accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert scores["loss"] == pytest.approx(
        evaluate(model, (images, labels), prepared=True).loss, rel=1e-4
    )
    loss, _, _ = adapt_losses(tiny().prediction, "auto", None, None)
    assert isinstance(loss, keras.losses.SparseCategoricalCrossentropy)


@pytest.mark.parametrize("from_logits", [True, False])
def test_positive_weights_multiply_the_loss_of_labels_of_one(from_logits):
    """Against NumPy; the loss is rebuilt from its config."""
    logits, labels = normal(6, 3), np.random.default_rng(0).integers(0, 2, (6, 3))
    weights, shares = np.array([1.0, 2.0, 5.0]), 1 / (1 + np.exp(-logits.astype("float64")))
    expected = -(weights * labels * np.log(shares) + (1 - labels) * np.log(1 - shares)).mean()
    loss = MultiLabelCrossentropy(weights, from_logits)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    outputs = logits if from_logits else shares.astype("float32")
    for each in (loss, again):
        assert float(to_numpy(each(labels, outputs))) == pytest.approx(expected, rel=1e-5)


def test_positive_weights_of_the_data_go_into_the_recipe():
    """A number for each class."""
    model = tiny(num_classes=3, task="multi_label")
    images, labels = bars()
    weights = from_arrays(images, labels, model).positive_weights
    options = {"steps": 4, "batch_size": 8, "positive_weights": weights}
    loss = TransferRecipe(**options).compile_args(model)["loss"]
    np.testing.assert_allclose(loss.positive_weights, (~labels).sum(axis=0) / labels.sum(axis=0))


@pytest.mark.parametrize("weights", [2.0, [1, 2], [1, 0, 2], [1, 2, np.inf], "abc", {0: 1}])
def test_positive_weights_that_are_no_number_per_class_are_refused(weights):
    with pytest.raises(ConfigError, match="positive_weights=.*a number above 0 for each of 3"):
        TransferRecipe(4, 8, positive_weights=weights).compile_args(
            tiny(num_classes=3, task="multi_label")
        )


def test_one_call_trains_on_a_table_and_keeps_thresholds(photos, tmp_path):
    """The best preset knows the colours; a finished training is resumed without a change."""
    options = {
        "path": tmp_path / "out",
        "validation": 0.25,
        "recipe": TransferRecipe(60, 16, learning_rate=0.1),
    }
    data = ImageSource(photos / "photos", labels_file="labels.csv")
    done = finetune(photos / "tiny", data, **options)
    model = VisionTransformer.from_preset(done.path)
    assert model.class_names == ("blue", "green", "red")
    assert len(set(model.thresholds)) == 3
    images, labels = bars(32, seed=1)
    scores = evaluate(model, (images, labels[:, ::-1]))
    assert scores.mean_average_precision > 0.9
    assert scores.f1 > 0.8
    with (tmp_path / "out" / "log.csv").open() as file:
        assert {"pr_auc", "val_pr_auc"} <= set(next(csv.DictReader(file)))
    before = (done.path / "config.json").read_text()
    finetune(photos / "tiny", data, **options, resume=True)
    assert (done.path / "config.json").read_text() == before


@pytest.mark.on_backend("torch")
def test_the_commands_take_a_table_of_labels(photos, tmp_path, capsys):
    """finetune, evaluate and predict, as a user calls them."""

    def run(*arguments) -> str:
        assert cli.main([str(a) for a in arguments]) == 0
        return capsys.readouterr().out

    columns = [word for name in ("blue", "green", "red") for word in ("--label-column", name)]
    table, out = ("--labels-file", "labels.csv", *columns), tmp_path / "out"
    train_on = ("finetune", photos / "photos", *table, "--path", out)
    printed = run(*train_on, "--source", photos / "tiny", "--steps", 4, "--batch-size", 8)
    assert "Best pr_auc in validation" in printed
    assert f"--labels-file TABLE {' '.join(columns)} --source" in printed
    judge = ("evaluate", photos / "photos", *table, "--source", out / "best")
    assert "mean_average_precision" in run(*judge, "--classes")
    scores = json.loads(run(*judge, "--json"))
    assert 0 <= scores["f1"] <= 1
    model = VisionTransformer.from_preset(out / "best")
    model.thresholds = (0.0, 1.0, 0.0)
    model.save_to_preset(tmp_path / "preset")
    path = photos / "photos" / "00.png"
    answers = json.loads(run("predict", path, "--source", tmp_path / "preset", "--json"))
    assert {answer["label"] for answer in answers[str(path)]} == {"blue", "red"}
