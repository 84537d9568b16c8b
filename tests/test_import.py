"""What importing costs."""

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
    """Under JAX or torch, the whole public API imports neither TensorFlow nor the other one."""
    loaded = modules_after("import keras_vit; [getattr(keras_vit, n) for n in keras_vit.__all__]")
    mine = keras.backend.backend()
    # What Keras itself brings is Keras's: its torch backend may import others that are installed.
    foreign = {"tensorflow", "torch", "jax"} - {mine} - modules_after("import keras")
    assert mine in loaded
    # Keras's TensorFlow backend and TensorFlow itself may bring jax; never the other way round.
    if mine != "tensorflow":
        assert not loaded & foreign


def test_headers_are_read_without_a_backend():
    """`checkpoints.inspect` and the command line's module import no keras, and no extras."""
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
    """Keras knows the classes after `import keras, keras_vit`, or once one of them was used."""
    tiny().save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    loaded = modules_after(f"{imports}; keras.saving.load_model({path!r})")
    assert "keras_vit.model" in loaded


def test_nothing_is_hooked_into_the_import_of_other_packages():
    """`import keras_vit` adds no finder to `sys.meta_path`."""
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
