"""`python -m weights.release`: goldens, a training, a save, a load and an export, on one backend.

`make test-floors` and `make test-versions` run it with other versions than those of
`constraints.txt`. It needs what `pip install keras-vit-zoo[...]` installs and nothing else.
"""

import importlib.metadata
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

import keras_vit
from tests import golden

BACKEND = keras.backend.backend()


def main() -> None:
    """Prints the versions and what was run; fails where an answer differs."""
    passed = [f"{_compare_goldens()} goldens"]
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (16, 8, 8), dtype="uint8")
    model = keras_vit.VisionTransformer.from_preset("vit_digits")
    assert len(model.classify(list(pictures), top=3)) == 16
    images = model.preprocessor(pictures)
    if BACKEND != "openvino":  # which only predicts
        recipe = keras_vit.training.TransferRecipe(4, 8, learning_rate=0.003)
        model.compile(**recipe.compile_args(model))
        fit = {**recipe.fit_args(model), "epochs": 2, "steps_per_epoch": None}
        model.fit(images, np.arange(16) % 10, batch_size=8, verbose=0, **fit)
        passed.append("fit")
    with tempfile.TemporaryDirectory() as folder:
        _save_and_load(model, images, Path(folder))
        passed.append("save and load")
        if BACKEND == "torch":  # the only one whose format needs no further package
            keras_vit.export(model, Path(folder) / "exported", format="torch")
            passed.append("export to torch")
    names = ("keras", BACKEND)
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    print(f"{versions}: {', '.join(passed)}: right")


def _compare_goldens() -> int:
    """Compares logits or tokens of every fourth case of the official code with its own."""
    names = sorted(golden.OFFICIAL)[::4]
    for name in names:
        want = golden.expected(name)
        output = "logits" if "logits" in want else "encoded"
        got = golden.outputs(golden.load_case(name), want["image"], [output])[output]
        error = golden.relative_error(got, want[output])
        assert error <= golden.CASES[name]["tolerance"], (name, error)
    return len(names)


def _save_and_load(model: keras_vit.VisionTransformer, images: np.ndarray, folder: Path) -> None:
    expected = keras_vit.evaluation.features(model, images, "logits", prepared=True).values
    model.save_to_preset(folder / "preset")
    model.save(folder / "model.keras")
    loaded = (
        keras_vit.VisionTransformer.from_preset(folder / "preset"),
        keras.saving.load_model(folder / "model.keras"),
    )
    for other in loaded:
        logits = keras_vit.evaluation.features(other, images, "logits", prepared=True).values
        np.testing.assert_allclose(logits, expected, atol=1e-5)


def _version(name: str) -> str:
    """The version of the package that is imported; a checkout of Keras has no metadata."""
    module = sys.modules.get(name.replace("-", "_"))
    if isinstance(version := getattr(module, "__version__", None), str):
        return version
    return importlib.metadata.version(name)


if __name__ == "__main__":
    main()
