"""`keras-vit finetune` and `keras-vit pretrain`, called as a user calls them."""

import re
import shutil

import keras
import pytest

from keras_vit import VisionTransformer, finetune, vit_ti16
from keras_vit.errors import ConfigError
from keras_vit.training import AugregRecipe, TransferRecipe, enable_lora
from keras_vit.training.finetuning import count_epochs
from tests.digits import LOOPS, write_folders
from tests.helpers import tiny
from tests.plain import raises

BOTH = ("loop", "Open")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with digits as PNG files, a small preset, and one for dense targets."""
    folder = tmp_path_factory.mktemp("desk")
    write_folders(folder, LOOPS.get, train=40, test=12, size=16)
    tiny(channels=1, num_classes=10).save_to_preset(folder / "tiny")
    tiny(dense={"stages": (0,)}).save_to_preset(folder / "dense")
    return folder


@pytest.fixture
def train_tiny(desk, run):
    """Fine-tunes the small preset on the digits."""
    fixed = ("finetune", desk / "train", "--source", desk / "tiny", "--batch-size", 8)
    return lambda *words, status=0: run(*fixed, *words, status=status)


@pytest.fixture
def interrupted(monkeypatch):
    """Replaces a function by one that notes its arguments and is interrupted."""

    def replace(target, note=lambda *arguments, **options: None):
        calls = []

        def stop(*arguments, **options):
            calls.append(note(*arguments, **options))
            raise KeyboardInterrupt

        monkeypatch.setattr(target, stop)
        return calls

    return replace


def test_finetune_trains_on_folders_and_saves_presets(desk, train_tiny):
    """A second run is refused; with --resume the finished training is left unchanged."""
    out = desk / "out in ü"
    arguments = ("--steps", 4, "--validation", desk / "test", "--layer-decay", 0.75, "--path", out)
    printed = train_tiny(*arguments).out
    for line in (
        *("4/4 - ", "Best accuracy in validation: ", "40 to train on, 12 to validate"),
        *("classes      2, of", "head         new"),
        "4 of 8 images; batches in an epoch: 4",
        f"keras-vit predict IMAGE --source '{out / 'best'}'",
        f"keras-vit evaluate TEST_IMAGES --source '{out / 'best'}'",
    ):
        assert line in printed
    assert len((out / "log.csv").read_text().splitlines()) == 2  # too few steps for two epochs
    for preset in ("best", "last"):
        assert VisionTransformer.from_preset(out / preset).class_names == ("loop", "open")
        card = (out / preset / "README.md").read_text()
        facts = ("- data: train", "- images: 40", "- classes: 2", "  - steps: 4", "  - accuracy: ")
        assert all(f"\n{fact}" in card for fact in facts)
        assert f"\n- source: {desk.name}/tiny\n" in card

    before = (out / "last" / "model.safetensors").read_bytes()
    assert "exists already" in train_tiny(*arguments, status=2).err
    train_tiny(*arguments, "--resume")
    assert (out / "last" / "model.safetensors").read_bytes() == before
    told = train_tiny(*arguments, "--resume", "--seed", 1, status=2).err
    assert "data.seed: was 0, now 1" in told


def test_the_time_is_estimated_and_a_seed_may_be_larger_than_those_of_keras(desk, train_tiny):
    """After ten batches, of those of all epochs; Keras refuses seeds from 2**32 on."""
    mixed = ("--augmentation", "light2")  # of labels of several classes
    printed = train_tiny("--steps", 24, "--seed", 2**40, *mixed, "--path", desk / "timed").out
    assert re.findall(r"time +about \d:\d\d:\d\d for (\d+) more", printed) == ["14"]


def test_bad_arguments_and_data_are_refused_by_name(desk, run, train_tiny):
    """Before the output folder is made. One class alone would have a logit of two classes."""
    out = desk / "bad"
    told = train_tiny("--path", out, "--validation", 0, status=2).err
    assert "--validation must be a number between 0 and 1, found 0.0" in told
    told = train_tiny("--path", out, "--trainable-blocks", 7, status=2).err
    assert "blocks=7: expected 0 to 1, the number of blocks" in told
    shutil.copytree(desk / "train" / "loop", desk / "lonely" / "loop")
    command = ("finetune", desk / "lonely", "--source", desk / "tiny", "--path", out)
    assert "1 class_names, expected 2 strings" in run(*command, status=2).err
    assert not out.exists()


def test_the_head_is_kept_if_the_classes_are_those_of_the_preset(desk, tmp_path):
    """In whatever order and case; other classes, and a single logit, get a head of zeros."""
    heads = []
    sigmoid = {"num_classes": 1, "classifier_activation": "sigmoid"}
    named = [{"num_classes": 2, "class_names": names} for names in (BOTH, BOTH[::-1], ("x", "y"))]
    for outputs in (*named, {"num_classes": 2}, sigmoid):
        model = tiny(channels=1, **outputs)
        model.get_layer("head").bias.assign([3.0, -3.0][: model.config.num_classes])
        model.save_to_preset(tmp_path / "preset")

        def see(model):
            heads.append(keras.ops.convert_to_numpy(model.get_layer("head").bias).tolist())
            assert model.prediction.classifier_activation is None
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            finetune(tmp_path / "preset", desk / "train", path=tmp_path / "out", trainable=see)
    assert heads == [[3, -3]] * 2 + [[0, 0]] * 3


STARTS = [("--source", "vit_digits"), ("--from-scratch", "vit_ti16", "--image-size", 32)]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start[1])
def test_pretrain_trains_an_encoder_without_labels_and_measures_it_with_labels(desk, run, start):
    """A second run is refused; with --resume the finished training is left unchanged."""
    out, test = desk / f"run{start[1]}", desk / "test"
    fixed = ("--labels", test, "--steps", 2, "--batch-size", 4, "--no-flip", "--path", out)
    printed = run("pretrain", desk / "train", *fixed, *start).out
    plan = ("40, without labels", "weights", "2 of 4 images; 0.2 passes over the images")
    for line in (*plan, "knn_accuracy: ", f"probe {test} --source {out / 'last'}"):
        assert line in printed
    card, weights = (out / "last" / name for name in ("README.md", "model.safetensors"))
    assert re.search("(?s)- flip: false.*- knn_accuracy: ", card.read_text())
    before = weights.read_bytes()
    assert "exists already" in run("pretrain", desk / "train", *fixed, *start, status=2).err
    run("pretrain", desk / "train", *fixed, *start, "--resume")
    assert weights.read_bytes() == before


def test_finetune_passes_on_where_the_labels_are(desk, tmp_path, run, interrupted):
    found = interrupted(
        "keras_vit.data.image_source.from_huggingface",
        lambda name, _, **options: (name, options["label_column"], options["split"]),
    )
    command = ("finetune", "hf:us/loops", "--source", desk / "tiny", "--label-column", "kind")
    run(*command, "--path", tmp_path / "out", status=130)
    assert found == [("us/loops", "kind", "train")]


def test_a_model_of_maps_is_refused(desk):
    with raises(ConfigError, "finetune needs one output per image"):
        finetune(desk / "dense", desk / "train", path=desk / "other")


WORDS = {
    "give data=ImageSource(..., on_error=...)": {"on_error": "skip"},
    "num_classes=: the head gets the classes of the data": {"num_classes": 5},
    "recipe=TransferRecipe(..., learning_rate=...)": {"learning_rate": 0.1},
}


@pytest.mark.parametrize("message", WORDS)
def test_words_of_data_and_recipe_are_not_fields_of_the_model(desk, message):
    """Another head than for the data was ignored; a word of the recipe was an unknown field."""
    with raises(ConfigError, message):
        finetune(desk / "tiny", desk / "train", path=desk / "other", **WORDS[message])
    assert not (desk / "other").exists()


def test_a_builder_in_place_of_a_preset_gives_fresh_weights(desk, tmp_path):
    """The model has the class names of the folder as labels."""
    recipe, out = AugregRecipe(steps=1, batch_size=2), tmp_path / "out"
    options = {"image_size": 16, "validation": None}
    trained = finetune(vit_ti16, desk / "test", path=out, recipe=recipe, **options)
    model = VisionTransformer.from_preset(trained.path)
    assert (model.class_names, model.config.hidden_size) == (("loop", "open"), 192)
    assert trained.path == out / "last"


def test_every_option_of_the_recipe_reaches_the_training(
    desk, run, train_tiny, interrupted, monkeypatch
):
    """From scratch the recipe is AugReg's; what is not stated is its default.

    Control-C prints a hint instead of a traceback.
    """
    calls = interrupted(
        "keras_vit.training.finetuning.finetune",
        lambda source, _, **options: (source, options["recipe"], options["trainable"]),
    )
    monkeypatch.delattr("keras_vit.finetune", raising=False)
    stated = ("--ema", 0.9, "--weight-decay", 0, "--optimizer", "adamw", "--label-smoothing", 0.1)
    out = ("--path", desk / "x")
    assert "with --resume continues" in train_tiny(*stated, "--lora-rank", 2, *out, status=130).err
    scratch = ("finetune", desk / "train", "--from-scratch", "vit_ti16", "--steps", 30)
    run(*scratch, "--weight-decay", 0, *out, status=130)
    train_tiny(*out, status=130)
    (_, first, lora), (source, second, trainable), (_, third, _) = calls
    options = {"ema": 0.9, "weight_decay": 0.0, "optimizer": "adamw", "label_smoothing": 0.1}
    assert first == TransferRecipe(500, 8, one_hot=True, **options)
    assert (lora.func, lora.keywords) == (enable_lora, {"rank": 2})
    assert (source, second, trainable) == (vit_ti16, AugregRecipe(30, 64, weight_decay=0.0), None)
    assert third == TransferRecipe(500, 8, learning_rate=0.01)


def test_the_steps_asked_for_fill_equal_epochs():
    """At most 20 epochs, of 10 steps or more; none of a single step, and no step is added."""
    assert [*map(count_epochs, (1, 12, 23, 30, 100, 500, 510))] == [1, 1, 1, 3, 10, 20, 17]
