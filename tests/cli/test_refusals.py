"""Command lines that are refused in one line, before Keras or a backend is imported."""

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

import keras_vit
from tests.checkpoints.files import timm_shapes, write_arrays, write_shapes
from tests.cli.conftest import InterruptedCommandError, RefusedError
from tests.plain import edit_json

pytestmark = pytest.mark.without_backend

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "timm_token" / "model.safetensors"
VIT_DIGITS = Path(keras_vit.__file__).parent / "presets" / "vit_digits"
DIGITS, TWICE = "--source vit_digits", "info ../twice.safetensors --num-heads 3"
NOT_A_FOLDER = "written (Not a directory)"
LINES = {
    "info absent.npz": "there is no such preset, file or folder",
    "info ../notes.md": "not an npz (zip)",
    "list --resolution 225": "--resolution 225: no such preset.",
    "predict {image} --source vit_b16": "is an architecture, not a preset",
    "predict {image} --source vit_b61": "Did you mean 'vit_b16'?",
    "predict {image} --source vit_s14.dinov2": "embed writes its features; probe trains",
    "predict https://a.b/c.jpg --source x": "curl -LO",
    f"predict photos/ d.png {DIGITS}": "photos, d.png: no such file",
    f"predict {{path}}/empty {DIGITS}": "no images in this folder",
    f"explain {{image}} {DIGITS} --path {{image}}": "expected a folder for the results",
    f"embed {{image}} {DIGITS} --path x.txt": "expected a name that ends in .npy",
    f"evaluate nowhere {DIGITS}": "nowhere: expected a folder with a folder of",
    f"evaluate {{here}} {DIGITS} --labels-file x.csv": "'x.csv': not found",
    f"evaluate {{here}}/cat {DIGITS}": "in a table, give --labels-file.",
    f"probe {{here}} {DIGITS} --path {{here}}": "is inside the folder of the images",
    f"finetune {{here}} {DIGITS} --path {{here}}": "training in it with --resume.",
    f"finetune {{here}} {DIGITS} --path ../y --validation nowhere": "nowhere: ",
    f"finetune {{here}} {DIGITS} --path ../y --label-smoothing 1": "smoothing must be",
    f"pretrain nowhere {DIGITS} --path ../y": "nowhere: expected a folder of images, found nothing",
    f"pretrain {{here}} {DIGITS} --path ../y --labels {{here}}/cat": "the training images",
    f"pretrain {{here}} {DIGITS} --path ../y --labels nowhere": "nowhere: ",
    "export vit_digits --path y --calibration nowhere": "nowhere: no such file or folder",
    "serve vit_digits --port 70000": "--port 70000: the server cannot listen",
    "verify vit_digits no_such": "no_such': there is no such preset",
    "convert vit_digits x.npz --family gogle": "Did you mean 'google'",
    f"finetune {{here}} {DIGITS} --path {{image}}/y": NOT_A_FOLDER,
    "convert vit_digits {image}/y --family timm": NOT_A_FOLDER,
    "predict {image} --preset x": "Did you mean --source?",
    "finetune x --lr 0.1": "unknown option --lr. Did you mean --learning-rate?",
    "finetune x --epochs 3": "Did you mean --steps?",
    "train x": "unknown command train. Did you mean finetune?",
    f"{TWICE} --prefix net": "no array matches --prefix 'net'",
    f"{TWICE} --prefix student --weights raw": "--prefix ... or --weights ..., not both",
    f"{TWICE} --ignore neck.*": "--ignore 'neck.*' matches no array",
    "info ../grid.safetensors --num-heads 2": "Choose by --position-grid, the rows",
    "info ../grid.safetensors --num-heads 2 --position-grid 5 6": "30 cells",
    "info ../twice.safetensors": "--num-heads",
    f"predict {{image}} {DIGITS} --path x": "need --path, the folder",
    "predict {image} --source ../dense": "need --path, the folder",
    "predict {image} --source ../dense --path cat": "digit.png exists. Remove it",
    "finetune {here} --source ../dense --path ../y": "predicts a map (segmentation)",
}
BY_THE_PARSER = {
    f"predict x.png {DIGITS} --top 0": "Must be >= 1.",
    f"embed {{image}} {DIGITS} --path x.npy --pooling mean": "token_and_mean",
    "finetune x --source x --path y --image-size 1 2 3": "--image-size accepts at most 2",
    "finetune x --path y": "Exactly 1 of {--source, --from-scratch} must be specified",
    "pretrain x --path y": "Exactly 1 of {--source, --from-scratch} must be specified",
    "predict {image}": "--source requires an argument. Example: keras-vit",
    f"{TWICE} --weights mean": "ema",
}
"""Command lines that cyclopts refuses, in words that change with its version."""
RAISED = {
    "Ctrl-C": (KeyboardInterrupt(), InterruptedCommandError, "again to resume."),
    "no space": (OSError(28, "No space left"), RefusedError, "embed: No space left: y.npy."),
    "no memory": (MemoryError(), RefusedError, "embed: not enough memory"),
}


def types(line):
    return lambda world: world.type(line)


def fails(raised):
    """A command, of which a part raises this."""

    def call(world):
        def fail(*arguments, **options):
            raise raised

        world.patch.setattr("keras_vit.cli.images.image_files", fail)
        world.type(f"embed x.png {DIGITS} --path y.npy")

    return call


REFUSALS = {line: (types(line), RefusedError, words) for line, words in LINES.items()}
REFUSALS |= {name: (fails(raised), *told) for name, (raised, *told) in RAISED.items()}


@pytest.fixture
def files(world):
    """A checkpoint with two encoders, one whose positions are for two grids, and a dense preset."""
    arrays = load_file(GOLDEN)
    parts = (("student.", arrays), ("teacher.", arrays))
    write_arrays(world.path / "twice.safetensors", *parts)
    write_shapes(world.path / "grid.safetensors", timm_shapes(25))
    (world.path / "notes.md").write_text("# Notes")
    (world.path / "empty").mkdir()
    shutil.copytree(VIT_DIGITS, world.path / "dense")
    edit_json(world.path / "dense/config.json", "config", dense={"stages": [4]})


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages, files):
    messages.check(name, REFUSALS, world)


@pytest.mark.parametrize("line", BY_THE_PARSER)
def test_arguments_that_do_not_parse_are_refused(line, world, files):
    with pytest.raises(RefusedError) as caught:
        world.type(line)
    assert BY_THE_PARSER[line] in str(caught.value)
