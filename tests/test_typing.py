"""Type checkers and editors of users see the types of the installed package."""

import inspect
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import get_args

import pytest

import keras_vit
from keras_vit.data import AUGREG, ImageData
from keras_vit.data.image_data import Options
from keras_vit.explanation.methods import METHODS
from keras_vit.models.building import Building
from keras_vit.support import arguments
from weights import stubs

SCRIPT = """
import keras_vit
from keras_vit.data import from_arrays, from_folder

model = keras_vit.vit_s16(image_size=32, num_classes=5)
whole = from_folder("photos", model, seed=1)
train, validation = whole.hold_out(0.1)
reveal_type((model, whole, validation, keras_vit.images.class_names.expand("imagenet1k")))
reveal_type(keras_vit.evaluate(model, validation).top1)
reveal_type(model.tokens([]).patches)
reveal_type(model.tokens([], ["block_0", "block_1/norm"]))
from_arrays([], [], model, sede=1)
keras_vit.vit_b16(hidden_sise=8)
from_arrays([], [], model, augmentation="lite1")
keras_vit.vit_b16(task="multi")
keras_vit.evaluation.features(model, [], pooling="map")
keras_vit.explain(model, [], method="relevence")
keras_vit.export(model, "x", "onxx")
keras_vit.checkpoints.save(model, "x", "transformers/vit")
keras_vit.VisionTransformer.from_preset("x", read={"prefx": "a."})
keras_vit.info("x", read={"weights": 1})
keras_vit.vit_b16(block={"layer_scle": 1.0})
keras_vit.vit_b16(pool={"kind": "avg"})
"""
"""A script of a user; its last lines have misspelt arguments and words."""


def test_mypy_in_a_users_environment_sees_the_types(tmp_path):
    """The environment has keras_vit and NumPy, and no types of Keras."""
    pytest.importorskip("mypy")
    venv.create(tmp_path / "environment", symlinks=True)
    packages = next((tmp_path / "environment").glob("lib/python3*/site-packages"))
    installed = Path(sysconfig.get_path("purelib"))
    (packages / "keras_vit").symlink_to(Path(keras_vit.__file__).parent)
    (packages / "numpy").symlink_to(installed / "numpy")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "script.py", "--python-executable"]
    command += [str(tmp_path / "environment/bin/python")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    printed = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    ).stdout
    assert "import-untyped" not in printed, printed
    for line in (
        "tuple[keras_vit.models.vision_transformer.VisionTransformer, "
        "keras_vit.data.image_data.ImageData, keras_vit.data.image_data.ImageData, "
        "tuple[str, ...]]",
        '"float"',
        'script.py:10: note: Revealed type is "numpy.ndarray',
        'script.py:11: note: Revealed type is "dict[str, ',
        'script.py:12: error: Unexpected keyword argument "sede"',
        'script.py:13: error: Unexpected keyword argument "hidden_sise"',
        *(f"script.py:{line}: error: Argument " for line in range(14, 24)),
    ):
        assert line in printed, printed


def test_builders_and_loaders_share_the_arguments_of_the_model():
    """So that editors complete them and type checkers refuse others."""
    parameters = inspect.signature(keras_vit.VisionTransformer.__init__).parameters.values()
    optional = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert optional == set(Building.__annotations__)
    assert stubs.STUB.read_text() == stubs.stub(), "python -m weights.stubs writes it anew"


def test_the_words_of_types_are_those_of_the_code():
    assert {*get_args(arguments.Method), "random", "centre"} == {*METHODS}
    assert get_args(arguments.AugmentationName) == ("none", *AUGREG)


def test_the_options_of_data_sources_equal_the_arguments_of_imagedata():
    """So that editors complete them."""
    parameters = inspect.signature(ImageData.__init__).parameters.values()
    optional = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert optional == set(Options.__annotations__)
