"""Places, limits, and names of other libraries; the last are answered with the line that helps."""

from pathlib import Path

import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError, ConfigError, PresetError, SourceError, WriteError
from keras_vit.presets.catalog import preset_named
from keras_vit.support.files import write_json
from keras_vit.support.limits import ARRAYS


def count(world, number, variable):
    world.setenv("KERAS_VIT_MAX_ARRAYS", variable)
    ARRAYS.check(number, "x.npz", CheckpointError)


GOOGLE = "google/vit-base-patch16-224"
REFUSALS = {
    "a folder for a file": (lambda w: write_json(w.path / "folder", 1), WriteError, "is a folder"),
    "a pipe for a file": (lambda w: write_json(w.path / "pipe", 1), WriteError, "a device"),
    "half a letter": (lambda w: write_json("a\ud800", 1), WriteError, "not a valid path"),
    "a file for a folder": (lambda w: w.write_folder("file"), PresetError, "found a file"),
    "a folder below a file": (lambda w: w.write_folder("file/a"), WriteError, "cannot be written"),
    "a folder of others": (lambda w: w.write_folder("folder"), PresetError, "contains other"),
    "above a limit": (lambda w: count(w, 11, "10"), CheckpointError, "set KERAS_VIT_MAX_ARRAYS"),
    "a word for a limit": (lambda w: count(w, 1, "1e9"), ConfigError, "MAX_ARRAYS='1e9'"),
    "a name of timm": (lambda w: keras_vit.create_model, AttributeError, "keras_vit.vit_b16("),
    "a name on the Hub": (lambda w: preset_named(GOOGLE), SourceError, f"'hf://{GOOGLE}'"),
    "an unknown attribute": (lambda w: w.model.other, AttributeError, "no attribute 'other'"),
    "no configuration": (lambda w: VisionTransformer(), ConfigError, "found neither"),
    "a builder": (lambda w: VisionTransformer("vit_ti16"), ConfigError, "keras_vit.vit_ti16()"),
    "a path": (lambda w: VisionTransformer(Path("a.npz")), ConfigError, "from_preset('a.npz')"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
