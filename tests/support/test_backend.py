"""keras_vit takes the only installed backend, respects the user's choice, and explains failures."""

import importlib.metadata
import importlib.util
import json
import os
import sys
from types import SimpleNamespace

import keras
import pytest

from keras_vit.support import backend
from keras_vit.support.components import components
from tests.processes import python

MINE = keras.backend.backend()
ALL = "tensorflow jax torch openvino"
CHOICES = [
    # installed, keras.json, KERAS_BACKEND; what is set, or a part of the refusal
    ("jax", None, None, "jax"),
    ("torch", "tensorflow", None, "torch"),  # the default that Keras writes on its first import
    ("torch openvino", None, None, "torch"),  # one that trains, as before openvino was installed
    (ALL, None, "jax", "jax"),
    (ALL, "tensorflow", "torch", "torch"),
    (ALL, None, None, None),
    ("", None, None, "is installed. Install one: pip install 'keras-vit-zoo[jax]' (or"),
    ("jax torch", None, None, "set KERAS_BACKEND to jax or torch"),
    ("torch", None, "pytorch", "Did you mean 'torch'? KERAS_BACKEND takes"),
    ("torch", "jax", None, "keras.json), which is not installed; set KERAS_BACKEND"),
]


@pytest.mark.parametrize(("names", "in_file", "in_environment", "expected"), CHOICES)
def test_the_choice_of_a_backend(names, in_file, in_environment, expected, monkeypatch, tmp_path):
    """By the user, by environment or file, or the only one that is installed."""
    packages = {package for name in names.split() for package in backend.BACKENDS[name]}
    monkeypatch.setattr(backend, "is_installed", lambda package: package in packages)
    monkeypatch.setattr(backend, "_set_here", set())
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", in_environment or "")
    if not in_environment:
        monkeypatch.delenv("KERAS_BACKEND")
    if in_file:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": in_file}))
    backend.choose()
    if expected and " " in expected:
        assert expected in str(backend.refusal())
        assert isinstance(backend.refusal(), ImportError)  # for code that tries to import Keras
        return
    assert backend.refusal() is None
    assert os.environ.get("KERAS_BACKEND") == expected


def test_openvino_needs_another_package_from_keras_3_16_on(monkeypatch, tmp_path):
    """Keras names its package only in a long traceback, and doctor before that."""
    kept = {"openvino", "torch"}
    monkeypatch.setattr(backend, "is_installed", lambda package: package in kept)
    monkeypatch.setenv("KERAS_BACKEND", "openvino")
    keras_316 = tmp_path / "keras" / "__init__.py"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=keras_316))
    monkeypatch.setattr(importlib.metadata, "version", {}.get)
    assert backend.installed() == ["torch"]
    assert str(backend.refusal()).endswith("another package for it: pip install keras-openvino.")
    notes = {part.name: part.note for part in components()}
    assert "pip install keras-openvino" in notes["openvino"]
    kept.add("keras_openvino")
    assert backend.installed() == ["torch", "openvino"] and backend.refusal() is None
    kept.remove("keras_openvino")
    (tmp_path / "keras" / "src" / "backend" / "openvino").mkdir(parents=True)  # as in 3.15
    assert backend.installed() == ["torch", "openvino"] and backend.refusal() is None


BLOCKED = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {missing!r}:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
from keras_vit import cli
"""


def run_without(names, code, home):
    """Runs code in a process without a chosen backend, where some backends are not installed."""
    missing = {package for name in names for package in backend.BACKENDS[name]}
    if "tensorflow" not in names:  # it imports JAX if that is installed
        missing -= {"jax", "jaxlib"}
    return python(BLOCKED.format(missing=missing) + code, KERAS_BACKEND=None, KERAS_HOME=str(home))


def test_a_process_with_one_installed_backend_uses_it_and_says_so_once(tmp_path):
    """Only commands that need a backend say so."""
    code = """
import keras_vit
cli.main(["list"])
digit = keras_vit.__path__[0] + "/data/digit.png"
status = cli.main(["explain", digit, "--source", "vit_digits", "--target", "no digit"])
import keras
print(status, keras.backend.backend())
"""
    result = run_without(backend.BACKENDS.keys() - {MINE}, code, tmp_path)
    assert result.stdout.endswith(f"2 {MINE}\n"), result.stderr
    assert result.stderr.count(f"keras-vit: computes with {MINE}") == 1


def test_without_a_backend_images_are_prepared_and_models_are_refused(tmp_path):
    """The command line prints the message first; the exception has it in its last line."""
    code = """
import keras_vit
print(keras_vit.Preprocessor.from_preset("vit_digits").image_size)
print(cli.main(["evaluate", ".", "--source", "vit_digits"]))
keras_vit.VisionTransformer
"""
    result = run_without(backend.BACKENDS, code, tmp_path)
    assert result.stdout == "(16, 16)\n2\n"
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("keras-vit: No backend of Keras is installed. Install one")
    assert last.startswith("keras_vit.errors.BackendError: No backend of Keras")
