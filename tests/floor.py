"""`python -m tests.floor`: the first answer, a training, a save and a load, on one backend.

`make test-floors` runs it with the oldest promised version of every dependency.
"""

import tempfile
from importlib import metadata
from pathlib import Path

import keras
import numpy as np

import keras_vit


def main() -> None:
    """Prints the versions, and fails where an answer differs."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (16, 8, 8), dtype="uint8")
    model = keras_vit.VisionTransformer.from_preset("vit_digits")
    assert len(model.classify(list(pictures), top=3)) == 16
    images = model.preprocessor(pictures)
    recipe = keras_vit.finetune.transfer_recipe(model, 4, 8, learning_rate=0.003)
    model.compile(**recipe.compile_args)
    fit = {**recipe.fit_args, "epochs": 2, "steps_per_epoch": None}
    model.fit(images, np.arange(16) % 10, batch_size=8, verbose=0, **fit)
    expected = keras_vit.features(model, images, "logits").values
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(Path(folder) / "preset")
        model.save(Path(folder) / "model.keras")
        loaded = (
            keras_vit.VisionTransformer.from_preset(Path(folder) / "preset"),
            keras.saving.load_model(Path(folder) / "model.keras"),
        )
        for other in loaded:
            logits = keras_vit.features(other, images, "logits").values
            np.testing.assert_allclose(logits, expected, atol=1e-5)
    backend = keras.backend.backend()
    package = {"openvino": "openvino"}.get(backend, backend)
    print(f"keras {keras.__version__}, {package} {metadata.version(package)}: right")


if __name__ == "__main__":
    main()
