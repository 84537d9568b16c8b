"""Importing keras_vit: the modules it loads, and the classes it registers with Keras."""

import os
import subprocess
import sys

import keras
import pytest

from tests.helpers import tiny


def modules_after(code: str) -> set[str]:
    """Names of the modules that a fresh process holds after running the code."""
    code += "\nimport sys; print(' '.join(sys.modules))"
    environment = {**os.environ, "KERAS_BACKEND": keras.backend.backend()}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_one_backend_is_imported():
    """On JAX or torch, the whole public API imports no other backend."""
    loaded = modules_after("import keras_vit; [getattr(keras_vit, n) for n in keras_vit.__all__]")
    mine = keras.backend.backend()
    # Modules that `import keras` loads do not count: its torch backend may import others.
    foreign = {"tensorflow", "torch", "jax"} - {mine} - modules_after("import keras")
    assert mine in loaded
    # On TensorFlow, Keras and TensorFlow themselves may import jax.
    if mine != "tensorflow":
        assert not loaded & foreign


def test_inspect_and_the_command_line_import_no_backend_and_no_extra():
    """Neither Keras nor matplotlib, scikit-learn, scipy or huggingface_hub."""
    loaded = modules_after("from keras_vit import checkpoints, cli; checkpoints.inspect")
    assert not loaded & {"keras", "jax", "torch", "tensorflow"}
    assert not loaded & {"matplotlib", "sklearn", "scipy", "huggingface_hub"}


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, keras_vit",
        "import keras_vit.model, keras",
        "import keras_vit, keras; keras_vit.VisionTransformer",
    ],
)
def test_saved_models_load_without_custom_objects(imports, tmp_path):
    """Keras finds the classes after `import keras, keras_vit`, or once a class was used."""
    tiny().save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    loaded = modules_after(f"{imports}; keras.saving.load_model({path!r})")
    assert "keras_vit.model" in loaded


def test_importing_keras_vit_installs_no_import_hook():
    """`sys.meta_path` stays the same."""
    code = "import sys; before = [*sys.meta_path]; import keras_vit; print(sys.meta_path == before)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "True"


@pytest.mark.parametrize(
    "imports", ["import keras, keras_vit", "import keras_vit, keras; keras_vit.VisionTransformer"]
)
def test_a_model_trained_by_an_optimizer_of_keras_vit_loads(imports, tmp_path):
    """The optimizer's class is registered together with the model's."""
    from keras_vit.finetune import LayerwiseSGD

    model = tiny()
    model.compile(LayerwiseSGD(0.1), "mse")
    model.save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    assert "keras_vit.finetune" in modules_after(f"{imports}; keras.saving.load_model({path!r})")
