"""Training of multi-label models and on numbers: losses, one call from a table, commands."""

import json

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, cli, evaluate, finetune
from keras_vit.data import ImageSource, from_folder
from keras_vit.models.losses import MultiLabelCrossentropy
from keras_vit.training import TransferRecipe
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

COLOURS = ("blue", "green", "red")
LEVELS = np.linspace(20, 230, 32).astype("uint8")
FLAGS = np.random.default_rng(0).integers(0, 2, (8, 3))


def bars(count=64, seed=0):
    """Black images with a bar of each of their colours, and zeros and ones of the colours."""
    labels = np.random.default_rng(seed).random((count, 3)) < 0.4
    images = np.zeros((count, 16, 16, 3), "uint8")
    for k in range(3):
        images[labels[:, k], 5 * k : 5 * k + 5, :, 2 - k] = 255
    return images, labels


def save(folder, images, names, rows):
    """Writes images and the table of their labels."""
    folder.mkdir()
    lines = [f"path,{','.join(names)}"]
    for k, (image, row) in enumerate(zip(images, rows, strict=True)):
        Image.fromarray(image).save(folder / f"{k:02d}.png")
        lines.append(f"{k:02d}.png,{','.join(map(str, row))}")
    (folder / "table.csv").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Folders of bars and of grey images, tables of colours and brightness, and a small preset."""
    folder = tmp_path_factory.mktemp("photos")
    images, labels = bars()
    save(folder / "bars", images, COLOURS, labels.astype(int))
    grey = [np.full((16, 16, 3), level) for level in LEVELS]
    save(folder / "grey", grey, ["level"], LEVELS[:, None] / 100)
    tiny(num_classes=10, classifier_activation="softmax").save_to_preset(folder / "tiny")
    return folder


COMPILED = {
    "transfer": TransferRecipe(4, 8).compile_args,
    "auto": lambda model: {"optimizer": "sgd", "loss": "auto", "metrics": ["accuracy"]},
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_multi_label_model_has_its_own_loss_and_metrics(name):
    """The task is all that is needed; "accuracy" counts every class."""
    model, images = random_tiny(num_classes=3, task="multi_label"), normal(8, 16, 16, 3)
    model.compile(**COMPILED[name](model))
    scores = model.evaluate(images, FLAGS.astype("float32"), verbose=0, return_dict=True)
    expected = evaluate(model, (images, FLAGS), prepared=True)
    assert scores["loss"] == pytest.approx(expected.loss, rel=1e-4)
    if name == "auto":
        right = (model.probabilities(images, prepared=True) > 0.5) == FLAGS
        assert scores["accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    else:
        assert scores["pr_auc"] == pytest.approx(expected.mean_average_precision, abs=0.1)


@pytest.mark.parametrize("from_logits", [True, False])
def test_positive_weights_multiply_the_loss_of_labels_of_one(from_logits):
    """Against NumPy; the loss is rebuilt from its config."""
    logits, weights = normal(8, 3), np.array([1.0, 2.0, 5.0])
    shares = 1 / (1 + np.exp(-logits.astype("float64")))
    expected = -(weights * FLAGS * np.log(shares) + (1 - FLAGS) * np.log(1 - shares)).mean()
    loss = MultiLabelCrossentropy(weights, from_logits)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    outputs = logits if from_logits else shares.astype("float32")
    for each in (loss, again):
        assert float(to_numpy(each(FLAGS, outputs))) == pytest.approx(expected, rel=1e-5)
    model = tiny(num_classes=3, task="multi_label")
    chosen = TransferRecipe(4, positive_weights=weights).compile_args(model)["loss"]
    np.testing.assert_array_equal(chosen.positive_weights, weights)


@pytest.mark.on_backend("torch")
def test_one_call_trains_on_a_table_and_keeps_thresholds(photos, tmp_path):
    """The best preset knows the colours."""
    recipe = TransferRecipe(60, 16, learning_rate=0.1)
    data = ImageSource(photos / "bars", labels_file="table.csv")
    done = finetune(photos / "tiny", data, path=tmp_path / "out", validation=0.25, recipe=recipe)
    model = VisionTransformer.from_preset(done.path)
    assert model.class_names == COLOURS
    assert len(set(model.thresholds)) == 3
    scores = evaluate(model, bars(32, seed=1))
    assert scores.mean_average_precision > 0.9
    assert scores.f1 > 0.8
    assert {"pr_auc", "val_pr_auc"} <= set(done.history)


@pytest.mark.on_backend("torch")
def test_a_table_of_numbers_becomes_a_preset_that_predicts_them(photos, tmp_path):
    """A new head begins with their mean; the best preset has the lowest loss of the validation."""
    begins, table = [], {"labels_file": "table.csv", "task": "regression"}

    def fit(source, validation, name):
        return finetune(
            source,
            ImageSource(photos / "grey", **table),
            path=tmp_path / name,
            recipe=TransferRecipe(8, 8, steps_per_epoch=2),
            validation=validation,
            trainable=lambda model: begins.append(to_numpy(model.get_layer("head").bias).copy()),
        )

    result = fit(photos / "tiny", 0.25, "run")
    best, history = VisionTransformer.from_preset(result.path), result.history
    assert (best.task, best.class_names) == ("regression", ("level",))
    assert best.prediction.classifier_activation is None
    data = from_folder(photos / "grey", best, batch_size=16, **table)
    learnt, held_out = data.hold_out(0.25)
    np.testing.assert_allclose(begins, [[learnt.labels.mean()]], rtol=1e-5)
    assert evaluate(best, held_out).loss == pytest.approx(min(history["val_loss"]), rel=1e-4)
    again = fit(result.path, None, "again").history
    assert again["loss"][0] < history["loss"][0] + 1  # the head of these numbers stays


@pytest.mark.on_backend("torch")
@pytest.mark.parametrize("folder", ["bars", "grey"])
def test_the_commands_take_a_table_of_labels(photos, tmp_path, folder, capsys):
    """Of colours, whose columns are named, and of numbers, which a probe learns."""

    def command(*words):
        assert cli.main([str(word) for word in words]) == 0
        return capsys.readouterr().out

    table, out = [photos / folder, "--labels-file", "table.csv"], tmp_path / "out"
    source, task = ("--source", photos / "tiny"), ("--task", "regression")
    if folder == "bars":
        table += [word for name in COLOURS for word in ("--label-column", name)]
        command("finetune", *table, "--path", out, *source, "--steps", 4, "--batch-size", 8)
        judge = ("evaluate", *table, "--source", out / "best", "--json")
        assert 0 <= json.loads(command(*judge))["f1"] <= 1
        return
    command("finetune", *table, *task, "--path", out, *source, "--steps", 2)
    command("probe", *table, *task, "--path", tmp_path / "probe", *source)
    judge = ("evaluate", *table, "--source", tmp_path / "probe" / "preset", "--json")
    assert json.loads(command(*judge))["r2"] > 0.9
