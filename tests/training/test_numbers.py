"""Training on numbers (regression): one call and the commands from a table to a preset."""

import json

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, cli, evaluate, finetune
from keras_vit.data import ImageSource, from_folder
from keras_vit.errors import ConfigError
from keras_vit.training import AugregRecipe, TransferRecipe
from tests.helpers import tiny, to_numpy

pytestmark = pytest.mark.every_backend


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of grey images, a table of their brightness, and a small preset of classes."""
    folder = tmp_path_factory.mktemp("grey")
    (folder / "photos").mkdir()
    levels = np.linspace(20, 230, 32).astype("uint8")
    for k, level in enumerate(levels):
        Image.fromarray(np.full((16, 16, 3), level)).save(folder / "photos" / f"{k:02d}.png")
    rows = [f"{k:02d}.png,{level / 100}" for k, level in enumerate(levels)]
    (folder / "photos" / "levels.csv").write_text("\n".join(["path,level", *rows]))
    tiny(num_classes=3, classifier_activation="softmax").save_to_preset(folder / "tiny")
    return folder


def call(photos, name, **options):
    recipe = options.pop("recipe", TransferRecipe(steps=8, batch_size=8, steps_per_epoch=2))
    source = options.pop("source", photos / "tiny")
    levels = ImageSource(photos / "photos", labels_file="levels.csv", task="regression")
    return finetune(source, levels, path=photos / name, recipe=recipe, **options)


def test_a_table_of_numbers_becomes_a_preset_that_predicts_them(photos):
    """The new head begins with the mean; best/ has the lowest loss of the validation."""
    result = call(photos, "run", validation=0.25)
    history = result.history
    assert {"val_loss", "val_mean_absolute_error"} <= set(history)
    best = VisionTransformer.from_preset(result.path)
    assert (best.task, best.class_names) == ("regression", ("level",))
    assert best.prediction.classifier_activation is None
    data = from_folder(
        photos / "photos", best, labels_file="levels.csv", task="regression", batch_size=16
    )
    _, held_out = data.hold_out(0.25)
    scores = evaluate(best, held_out)
    assert scores.loss == pytest.approx(min(history["val_loss"]), rel=1e-4)
    assert max(history["loss"]) < 1.5 * data.labels.var() + 0.5

    again = call(photos, "again", source=result.path, validation=None)
    assert again.history["loss"][0] < history["loss"][0] + 1  # the head of these numbers stays


def test_a_new_head_of_numbers_begins_with_their_mean(photos):
    begins = []
    call(
        photos,
        "start",
        validation=None,
        recipe=TransferRecipe(steps=1, batch_size=8),
        learns=lambda model: begins.append(to_numpy(model.get_layer("head").weights[-1]).copy()),
    )
    table = (photos / "photos" / "levels.csv").read_text().split("\n")[1:]
    mean = np.mean([float(row.split(",")[1]) for row in table])
    np.testing.assert_allclose(begins, [[mean]], rtol=1e-5)


def test_the_labels_of_classes_are_refused_for_numbers(photos):
    with pytest.raises(ConfigError, match="label_smoothing=0.1 needs labels .* of classes"):
        call(photos, "smooth", recipe=AugregRecipe(steps=2, batch_size=8, label_smoothing=0.1))


@pytest.mark.on_backend("torch")
def test_the_commands_fine_tune_probe_and_evaluate_numbers(photos, capsys):
    table = ("--labels-file", "levels.csv")

    def run(*arguments):
        assert cli.main([str(each) for each in arguments]) == 0
        return capsys.readouterr().out

    fixed = (photos / "photos", *table, "--task", "regression", "--path")
    short = ("--steps", 2, "--batch-size", 8)
    printed = run("finetune", *fixed, photos / "cli", "--source", photos / "tiny", *short)
    assert "numbers      level" in printed
    assert "Best mean_absolute_error in validation" in printed
    assert "keras-vit predict" not in printed
    smooth = (*fixed, photos / "smooth", "--source", photos / "tiny", "--label-smoothing", 0.1)
    assert cli.main(["finetune", *map(str, smooth)]) == 2
    assert "--label-smoothing 0.1 needs labels" in capsys.readouterr().err
    run(
        "finetune", *fixed, photos / "new", "--from-scratch", "vit_ti16", "--image-size", 16, *short
    )
    printed = run("probe", *fixed, photos / "probe", "--source", photos / "tiny")
    assert "level: mean absolute error" in printed
    assert not (photos / "probe" / "index.html").exists()
    scores = run(
        "evaluate", photos / "photos", *table, "--source", photos / "probe" / "preset", "--json"
    )
    assert json.loads(scores)["r2"] > 0.9
