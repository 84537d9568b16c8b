"""`keras-vit finetune`, called as a user calls it."""

import csv

import pytest

from keras_vit import VisionTransformer, cli
from tests.digits import LOOPS, write_folders
from tests.helpers import tiny


@pytest.fixture(scope="module")
def desk(tmp_path_factory, quick_compilation):
    """A folder with digits as PNG files and a small preset."""
    folder = tmp_path_factory.mktemp("desk")
    write_folders(folder, LOOPS.get, train=40, test=12, size=16)
    tiny(channels=1, num_classes=10).save_to_preset(folder / "tiny")
    return folder


def finetune(desk, *arguments) -> int:
    fixed = ("finetune", desk / "train", "--preset", desk / "tiny", "--batch-size", 8)
    return cli.main([str(a) for a in (*fixed, *arguments)])


def test_finetune(desk, capsys):
    """From folders to presets, with progress; run again it changes nothing."""
    out = desk / "out"
    arguments = ("--steps", 4, "--validation", desk / "test", "--layer-decay", 0.75, "--out", out)
    assert finetune(desk, *arguments) == 0
    printed = capsys.readouterr().out
    assert "epoch 4/4" in printed
    assert "Highest validation accuracy" in printed
    with (out / "log.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    for preset in ("best", "last"):
        assert VisionTransformer.from_preset(out / preset).labels == ("loop", "open")

    before = (out / "last" / "model.safetensors").read_bytes()
    assert finetune(desk, *arguments) == 2
    assert "is there already" in capsys.readouterr().err
    assert finetune(desk, *arguments, "--resume") == 0
    assert (out / "last" / "model.safetensors").read_bytes() == before
    assert finetune(desk, *arguments, "--resume", "--seed", 1) == 2
    assert "data.seed: begun with 0, now 1" in capsys.readouterr().err


def test_interrupted_finetune_says_how_to_go_on(desk, capsys, monkeypatch):
    """Control-C ends it with a hint and not with a traceback."""

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.finetune.train", interrupted)
    arguments = ("--head-only", "--label-smoothing", 0.1, "--augmentation", "light1")
    assert finetune(desk, *arguments, "--out", desk / "interrupted") == 130
    assert "--resume continues" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--validation", "2"), "split=2"),
        (("--validation", "nowhere"), "nowhere: expected a folder"),
        (("--image-size", "1", "2", "3"), "--image-size [1, 2, 3]"),
        (("--augmentation", "ligt1"), "light1"),
        (("--trainable-blocks", "7"), "trainable_blocks=7"),
    ],
)
def test_bad_arguments_are_named(desk, capsys, arguments, message):
    """One line, before the first step, and no folder is made."""
    assert finetune(desk, "--out", desk / "bad", *arguments) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (desk / "bad").exists()
