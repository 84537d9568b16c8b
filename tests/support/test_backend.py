"""keras_vit takes the only installed backend, respects the user's choice, and explains failures."""

import json
import os
import sys

import keras
import pytest

from keras_vit.support import backend
from tests.processes import python

MINE = keras.backend.backend()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine on which no backend is chosen; returns a function that installs backends."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setattr(backend, "_set_here", set())

    def install(*names, in_file=None, in_environment=None):
        packages = {package for name in names for package in backend.BACKENDS[name]}
        monkeypatch.setattr(backend, "is_installed", lambda package: package in packages)
        if in_file:
            (tmp_path / "keras.json").write_text(json.dumps({"backend": in_file}))
        if in_environment:
            monkeypatch.setenv("KERAS_BACKEND", in_environment)
        backend.choose()

    yield install
    os.environ.pop("KERAS_BACKEND", None)


@pytest.mark.parametrize("name", ["jax", "torch", "openvino"])
@pytest.mark.parametrize("in_file", [None, "tensorflow"])
def test_the_only_installed_backend_is_taken(name, in_file, machine):
    """Also if keras.json names TensorFlow, the default that Keras writes on its first import."""
    machine(name, in_file=in_file)
    assert os.environ["KERAS_BACKEND"] == name
    assert backend.chosen_backend() == (name, backend._ONLY_ONE)
    assert backend.note() == f"computes with {name}, {backend._ONLY_ONE}."
    assert backend.refusal() is None


def test_a_backend_that_trains_is_chosen_before_openvino(machine):
    """An installation with openvino for export computes as before."""
    machine("torch", "openvino")
    assert backend.chosen_backend() == ("torch", backend._ONLY_ONE)


@pytest.mark.parametrize(
    "words",
    [
        {"in_environment": "jax"},
        {"in_file": "jax"},
        {"in_file": "tensorflow", "in_environment": "torch"},
        {"in_environment": "openvino"},
        {},
    ],
)
def test_a_backend_chosen_by_the_user_is_kept(words, machine):
    """By environment or file; without a choice, an installed TensorFlow stays the default."""
    machine("tensorflow", "jax", "torch", "openvino", **words)
    assert os.environ.get("KERAS_BACKEND") == words.get("in_environment")
    assert backend.note() is None
    assert backend.refusal() is None


@pytest.mark.parametrize(
    ("names", "words", "message"),
    [
        ((), {}, "no backend to compute with; install one: pip install 'keras-vit[jax]'"),
        (("jax",), {"in_environment": "torch"}, "takes torch (KERAS_BACKEND), which is not"),
        (("jax", "torch"), {}, "set KERAS_BACKEND to jax or torch"),
        (("torch",), {"in_environment": "pytorch"}, "Did you mean 'torch'? KERAS_BACKEND takes"),
        (("torch",), {"in_file": "jax"}, "keras.json), which is not installed; set KERAS_BACKEND"),
    ],
)
def test_a_missing_or_ambiguous_backend_is_refused_in_one_sentence(names, words, message, machine):
    """The error is also an ImportError, for code that tests whether Keras can be imported."""
    machine(*names, **words)
    assert message in str(backend.refusal())
    assert isinstance(backend.refusal(), ImportError)


BLOCKED = """
import importlib.util, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {missing!r}:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
"""


def run_without(missing: set[str], code: str, home):
    """Runs code in a process without a chosen backend, where some packages cannot be imported."""
    program = BLOCKED.format(missing=missing) + code
    return python(program, KERAS_BACKEND=None, KERAS_HOME=str(home))


def test_a_process_with_one_installed_backend_uses_it_and_says_so_once(tmp_path):
    """Only commands that need a backend say so."""
    missing = {p for name, ps in backend.BACKENDS.items() if name != MINE for p in ps}
    if MINE == "tensorflow":
        missing -= {"jax", "jaxlib"}  # TensorFlow imports JAX if it is installed
    code = """
from pathlib import Path
import keras_vit
from keras_vit import cli
cli.main(["list"])
digit = str(Path(keras_vit.__file__).parent / "data" / "digit.png")
status = cli.main(["explain", digit, "--source", "vit_digits", "--target", "no digit"])
import keras
print(status, keras.backend.backend())
"""
    result = run_without(missing, code, tmp_path)
    assert result.stdout.endswith(f"2 {MINE}\n"), result.stderr
    assert result.stderr.count(f"keras-vit: computes with {MINE}") == (MINE != "tensorflow")


def test_without_a_backend_images_are_prepared_and_models_are_refused(tmp_path):
    """The command line prints the message first; the exception has it in its last line."""
    missing = {p for packages in backend.BACKENDS.values() for p in packages}
    code = """
import keras_vit
print(keras_vit.Preprocessor.from_preset("vit_digits").image_size)
from keras_vit import cli
print(cli.main(["evaluate", ".", "--source", "vit_digits"]))
keras_vit.VisionTransformer
"""
    result = run_without(missing, code, tmp_path)
    assert result.stdout == "(16, 16)\n2\n"
    first, last = result.stderr.splitlines()[0], result.stderr.splitlines()[-1]
    assert first.startswith("keras-vit: Keras has no backend to compute with; install one")
    assert last.startswith("keras_vit.errors.BackendError: Keras has no backend")
