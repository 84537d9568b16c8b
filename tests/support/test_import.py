"""Importing keras_vit: the modules it loads, and the classes it registers with Keras."""

import ast
import importlib
from pathlib import Path

import keras
import pytest

from tests.forks import Nursery
from tests.helpers import tiny
from tests.processes import python


@pytest.fixture(scope="module")
def without_keras():
    """Runs programs in forks of a process that has imported torch, and not Keras."""
    process = Nursery("torch torch._dynamo sklearn.utils.validation pandas")
    yield process
    process.close()


def modules_after(code: str) -> set[str]:
    """Names of the modules that a fresh process holds after running the code."""
    code += "\nimport sys; print(' '.join(sys.modules))"
    process = python(code, KERAS_BACKEND=keras.backend.backend())
    assert process.returncode == 0, process.stderr
    return set(process.stdout.split())


def test_one_backend_is_imported():
    """The whole public API imports no other backend than `import keras` has imported."""
    api = "import keras_vit; [getattr(keras_vit, n) for n in keras_vit.__all__]"
    code = "import keras, sys; before = {*sys.modules}"
    loaded = modules_after(f"{code}; {api}; [sys.modules.pop(n) for n in before - {{'sys'}}]")
    assert "keras_vit.models.vision_transformer" in loaded
    assert not loaded & {"tensorflow", "torch", "jax"}


HEAVY = {"keras", "jax", "torch", "tensorflow", "matplotlib", "sklearn", "scipy", "huggingface_hub"}
UNNEEDED = [
    ("import keras_vit; from keras_vit import checkpoints, cli; keras_vit.info", HEAVY),
    # `keras-vit --help` then takes two thirds of the processor time.
    ("from keras_vit import cli", {"numpy", "PIL", "rich.progress", "keras_vit.config.vit"}),
]


@pytest.mark.parametrize(("code", "modules"), UNNEEDED)
def test_what_needs_no_model_imports_no_backend_and_no_extra(code, modules):
    """And no import hook: `sys.meta_path` stays the same."""
    hooks = "import sys; before = [*sys.meta_path]"
    assert not modules_after(f"{hooks}; {code}; assert sys.meta_path == before") & modules


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, keras_vit",
        "import keras_vit, keras; keras_vit.VisionTransformer",
    ],
)
def test_saved_models_load_without_custom_objects(imports, tmp_path, without_keras):
    """Keras finds the classes after `import keras, keras_vit`, or once a class was used.

    That of an optimizer is registered together with the model's.
    """
    from keras_vit.training import LayerwiseSGD

    model = tiny()
    model.compile(LayerwiseSGD(0.1), "mse")
    model.save(tmp_path / "model.keras")
    load = f"{imports}; model = keras.saving.load_model({str(tmp_path / 'model.keras')!r})"
    process = without_keras.run("-c", f"{load}; print(type(model), vars(model))")
    assert "VisionTransformer" in process.stdout, process.stderr
    assert "LayerwiseSGD" in process.stdout


@pytest.mark.parametrize("room", ["", ".models", ".training"])
def test_every_name_of_a_stub_resolves(room):
    """`__all__` has each name of the stub once, and each is an attribute."""
    module = importlib.import_module(f"keras_vit{room}")
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in nodes for alias in node.names]
    assert sorted(names) == module.__all__
    assert all(hasattr(module, name) for name in names) and set(names) <= set(dir(module))


def test_a_second_import_in_a_process_gives_the_same_answers():
    """Notebooks and Streamlit remove modules from `sys.modules` to load them anew."""
    use = (
        "import keras_vit, numpy; model = keras_vit.VisionTransformer.from_preset('vit_digits')\n"
        "answers.append(model.predict(numpy.ones((1, 16, 16, 1), 'float32'), verbose=0))\n"
        "[getattr(keras_vit, name) for name in keras_vit.__all__]\n"
    )
    purge = "[sys.modules.pop(n) for n in [*sys.modules] if n.split('.')[0] == 'keras_vit']\n"
    check = "assert (answers[0] == answers[1]).all()"
    modules_after(f"import sys; answers = []\n{use}{purge}{use}{check}")
