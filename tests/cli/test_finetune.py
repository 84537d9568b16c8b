"""`keras-vit finetune`, called as a user calls it."""

import csv
import re

import keras
import pytest

from keras_vit import VisionTransformer, cli, finetune, vit_ti16
from keras_vit.data import ImageSource
from keras_vit.errors import ConfigError
from keras_vit.training import AugregRecipe, TransferRecipe, enable_lora
from tests.digits import LOOPS, write_folders
from tests.helpers import tiny


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with digits as PNG files and a small preset."""
    folder = tmp_path_factory.mktemp("desk")
    write_folders(folder, LOOPS.get, train=40, test=12, size=16)
    tiny(channels=1, num_classes=10).save_to_preset(folder / "tiny")
    return folder


def run_finetune(desk, *arguments) -> int:
    fixed = ("finetune", desk / "train", "--source", desk / "tiny", "--batch-size", 8)
    return cli.main([str(a) for a in (*fixed, *arguments)])


def test_finetune_trains_on_folders_and_saves_presets(desk, capsys):
    """A second run is refused; with --resume the finished training is left unchanged."""
    out = desk / "out in ü"
    arguments = ("--steps", 4, "--validation", desk / "test", "--layer-decay", 0.75, "--path", out)
    assert run_finetune(desk, *arguments) == 0
    printed = capsys.readouterr().out
    assert "4/4 - " in printed
    assert "Best accuracy in validation: " in printed
    for line in ("40 to train on, 12 to validate", "classes      2, of", "head         new"):
        assert line in printed
    assert "4 of 8 images; batches in an epoch: 4" in printed
    assert f"keras-vit predict IMAGE --source '{out / 'best'}'" in printed
    assert f"keras-vit evaluate TEST_IMAGES --source '{out / 'best'}'" in printed
    with (out / "log.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 1  # four steps are too few for two epochs
    for preset in ("best", "last"):
        assert VisionTransformer.from_preset(out / preset).class_names == ("loop", "open")
        card = (out / preset / "README.md").read_text()
        facts = ("- data: train", "- images: 40", "- classes: 2", "  - steps: 4", "  - accuracy: ")
        assert all(f"\n{fact}" in card for fact in facts)
        assert f"\n- source: {desk.name}/tiny\n" in card

    before = (out / "last" / "model.safetensors").read_bytes()
    assert run_finetune(desk, *arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert run_finetune(desk, *arguments, "--resume") == 0
    assert (out / "last" / "model.safetensors").read_bytes() == before
    assert run_finetune(desk, *arguments, "--resume", "--seed", 1) == 2
    assert "data.seed: begun with 0, now 1" in capsys.readouterr().err


def test_the_time_of_the_training_is_estimated_after_ten_batches(desk, capsys):
    """The number of batches that are left is that of all epochs."""
    assert run_finetune(desk, "--steps", 24, "--path", desk / "timed") == 0
    assert re.findall(r"time +about \d:\d\d:\d\d for (\d+) more", capsys.readouterr().out) == ["14"]


def test_an_interrupted_finetune_says_how_to_continue(desk, capsys, monkeypatch):
    """Control-C prints a hint instead of a traceback."""

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.training.finetuning.train", interrupted)
    arguments = ("--head-only", "--label-smoothing", 0.1, "--augmentation", "light1")
    assert run_finetune(desk, *arguments, "--path", desk / "interrupted") == 130
    assert "with --resume continues" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--validation", "0"), "--validation must be a number between 0 and 1, found 0.0"),
        (("--validation", "nowhere"), "nowhere: expected a folder"),
        (("--trainable-blocks", "7"), "The last 7 blocks: the model has 1 block."),
    ],
)
def test_bad_arguments_are_refused_by_name(desk, capsys, arguments, message):
    """Before the first step, and before the output folder is made."""
    assert run_finetune(desk, "--path", desk / "bad", *arguments) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (desk / "bad").exists()


def test_the_head_is_kept_if_the_classes_are_those_of_the_preset(desk, tmp_path):
    """In whatever order and case; other classes get a head of zeros."""
    heads = []
    for labels in (("loop", "open"), ("Open", "loop"), ("loop", "other"), None):
        model = tiny(channels=1, num_classes=2, class_names=labels)
        model.get_layer("head").bias.assign([3.0, -3.0])
        model.save_to_preset(tmp_path / "preset")

        def see(model):
            heads.append(keras.ops.convert_to_numpy(model.get_layer("head").bias).tolist())
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            finetune(tmp_path / "preset", desk / "train", path=tmp_path / "out", learns=see)
    assert heads == [[3, -3], [3, -3], [0, 0], [0, 0]]


def test_finetune_passes_on_where_the_labels_are(desk, tmp_path, monkeypatch):
    """A column is refused for a folder, and reaches the reader of a data set."""
    with pytest.raises(ConfigError, match="label_column= needs a table"):
        data = ImageSource(desk / "train", label_column="kind")
        finetune(desk / "tiny", data, path=tmp_path / "out")
    with pytest.raises(ConfigError, match="a data set has no labels_file"):
        data = ImageSource("hf:us/loops", labels_file="labels.csv")
        finetune(desk / "tiny", data, path=tmp_path / "out")
    with pytest.raises(ConfigError, match=r"give data=ImageSource\(..., on_error=...\)"):
        finetune(desk / "tiny", desk / "train", path=tmp_path / "out", on_error="skip")
    found = []

    def read(name, preprocessor, **options):
        found.append((name, options["label_column"], options["split"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.data.image_source.from_huggingface", read)
    arguments = ("hf:us/loops", "--source", desk / "tiny", "--label-column", "kind")
    assert cli.main(["finetune", *map(str, arguments), "--path", str(tmp_path / "out")]) == 130
    assert found == [("us/loops", "kind", "train")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_classes": 5}, "num_classes=: the head gets the classes of the data"),
        ({"class_names": ["a", "b"]}, "class_names=: the head gets the classes of the data"),
        ({"learning_rate": 0.1}, r"recipe=TransferRecipe\(..., learning_rate=...\)"),
    ],
)
def test_words_of_data_and_recipe_are_not_fields_of_the_model(desk, fields, message):
    """Another head than for the data was ignored; a word of the recipe was an unknown field."""
    with pytest.raises(ConfigError, match=message):
        finetune(desk / "tiny", desk / "train", path=desk / "other", **fields)
    assert not (desk / "other").exists()


@pytest.mark.parametrize("augmentation", ["light2", "strong1"])
def test_an_augmentation_that_mixes_images_trains_a_preset(desk, tmp_path, augmentation):
    """Mixed images have labels of several classes, without a further option."""
    arguments = ("--steps", 2, "--augmentation", augmentation, "--path", tmp_path / "out")
    assert run_finetune(desk, *arguments) == 0
    log = (tmp_path / "out" / "log.csv").read_text()
    assert "val_accuracy" in log


def test_a_builder_in_place_of_a_preset_gives_fresh_weights(desk, tmp_path):
    """The model has the class names of the folder as labels."""
    trained = finetune(
        vit_ti16,
        desk / "test",
        path=tmp_path / "out",
        recipe=AugregRecipe(steps=1, batch_size=2),
        image_size=16,
        validation=None,
    )
    model = VisionTransformer.from_preset(trained.path)
    assert (model.class_names, model.config.hidden_size) == (("loop", "open"), 192)
    assert trained.path == tmp_path / "out" / "last"


def test_every_option_of_the_recipe_reaches_the_training(desk, monkeypatch):
    """From scratch the recipe is AugReg's; what is not stated is its default."""
    calls = []

    def stop(source, data, **arguments):
        calls.append((source, arguments["recipe"], arguments["learns"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.training.finetuning.finetune", stop)
    monkeypatch.delattr("keras_vit.finetune", raising=False)
    stated = ("--ema", 0.9, "--weight-decay", 0, "--optimizer", "adamw", "--label-smoothing", 0.1)
    assert run_finetune(desk, *stated, "--lora-rank", 2, "--path", desk / "x") == 130
    scratch = ("finetune", desk / "train", "--from-scratch", "vit_ti16", "--steps", 30)
    assert cli.main([str(a) for a in (*scratch, "--weight-decay", 0, "--path", desk / "x")]) == 130
    assert run_finetune(desk, "--path", desk / "x") == 130
    (_, first, lora), (source, second, learns), (_, third, _) = calls
    options = {"ema": 0.9, "weight_decay": 0.0, "optimizer": "adamw", "label_smoothing": 0.1}
    assert first == TransferRecipe(500, 8, one_hot=True, **options)
    assert (lora.func, lora.keywords) == (enable_lora, {"rank": 2})
    assert (source, second, learns) == (vit_ti16, AugregRecipe(30, 64, weight_decay=0.0), None)
    assert third == TransferRecipe(500, 8, learning_rate=0.01)


@pytest.mark.parametrize(
    ("steps", "epochs"), [(1, 1), (12, 1), (23, 1), (30, 3), (100, 10), (500, 20), (510, 17)]
)
def test_the_steps_asked_for_fill_equal_epochs(desk, monkeypatch, steps, epochs):
    """At most 20 epochs, of 10 steps or more; none of a single step, and no step is added."""
    planned = []

    def stop(model, data, validation, *, recipe, **arguments):
        planned.append((len(data), recipe.fit_args(model)["epochs"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.training.finetuning.train", stop)
    assert (
        run_finetune(desk, "--steps", steps, "--accumulate", 2, "--path", desk / "planned") == 130
    )
    assert planned == [(2 * steps // epochs, epochs)]


def test_a_seed_may_be_larger_than_the_seeds_of_keras(desk):
    """Keras refuses seeds from 2**32 on by an error that ended in a traceback."""
    assert run_finetune(desk, "--steps", 1, "--seed", 2**40, "--path", desk / "seeded") == 0


def test_images_of_one_class_alone_are_refused_for_their_number(desk, capsys):
    """One logit would be of two classes."""
    lonely = desk / "lonely"
    (lonely / "loop").mkdir(parents=True)
    for image in sorted((desk / "train" / "loop").iterdir())[:4]:
        (lonely / "loop" / image.name).write_bytes(image.read_bytes())
    command = ("finetune", lonely, "--source", desk / "tiny", "--path", desk / "alone")
    assert cli.main([str(word) for word in command]) == 2
    assert "1 class_names, expected 2 strings" in capsys.readouterr().err


def test_the_sigmoid_of_one_logit_goes_with_its_head(desk):
    """The new head of two classes returns logits."""
    sigmoid = {"num_classes": 1, "classifier_activation": "sigmoid"}
    tiny(channels=1, **sigmoid).save_to_preset(desk / "sigmoid")
    recipe = TransferRecipe(1, 8)
    result = finetune(desk / "sigmoid", desk / "train", path=desk / "two", recipe=recipe)
    prediction = VisionTransformer.from_preset(result.path).prediction
    assert (prediction.num_classes, prediction.task) == (2, "single_label")
    assert prediction.classifier_activation is None
