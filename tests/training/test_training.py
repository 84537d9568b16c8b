"""`train` trains, logs, plots and saves; after a crash the same call resumes."""

import csv
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.data import from_arrays
from keras_vit.errors import ConfigError
from keras_vit.evaluation.scores import evaluate
from keras_vit.training import TransferRecipe, train
from tests.digits import digits
from tests.helpers import tiny

pytestmark = pytest.mark.every_backend

EPOCHS, STEPS = 3, 2


class Crash(keras.callbacks.Callback):
    """Ends the training in its second epoch, as a crash of the process would."""

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == STEPS + 1:
            raise MemoryError("no memory")


def run(out: Path, callbacks=(), **options) -> dict:
    """Trains a new model on a few digits."""
    keras.utils.set_random_seed(0)
    model = tiny(channels=1, num_classes=2, class_names=("even", "odd"), dropout_rate=0.1)
    images, _, classes, _ = digits()
    data = from_arrays(images[:24], classes[:24] % 2, model, 8, steps_per_epoch=STEPS)
    validation = from_arrays(images[24:34], classes[24:34] % 2, model, 5)
    recipe = TransferRecipe(EPOCHS * STEPS, 8, learning_rate=0.1, steps_per_epoch=STEPS, ema=0.5)
    return train(
        model, data, validation, recipe=recipe, path=out, callbacks=callbacks, verbose=0, **options
    )


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "unbroken"
    return out, run(out)


def test_a_training_writes_log_and_presets(unbroken):
    """The log has a row per epoch; the presets have the class names as labels."""
    out, history = unbroken
    with (out / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["epoch"]), int(row["step"])) for row in rows] == [(1, 2), (2, 4), (3, 6)]
    for name in ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"):
        assert [float(row[name]) for row in rows] == history[name]
    for name in ("best", "last"):
        assert VisionTransformer.from_preset(out / name).class_names == ("even", "odd")
    with pytest.raises(ConfigError, match=r"unbroken: exists already.*resume=True"):
        run(out)


def test_the_best_preset_has_the_best_validation_scores_of_the_history(unbroken):
    """Validation and preset use the averaged weights."""
    out, history = unbroken
    images, _, classes, _ = digits()
    model = VisionTransformer.from_preset(out / "best")
    logits = model.predict(model.preprocessor(images[24:34]), batch_size=5, verbose=0)
    labels = classes[24:34] % 2
    right = (logits.argmax(axis=1) == labels).mean()
    loss = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(10), labels]
    best = max(zip(history["val_accuracy"], -np.array(history["val_loss"]), strict=True))
    assert (right, -loss.mean()) == pytest.approx(best, rel=1e-5)


def test_a_crashed_training_resumes_with_identical_results(unbroken, tmp_path):
    """Log and presets equal those of the uninterrupted training, byte by byte."""
    expected, history = unbroken
    out = tmp_path / "crashed"
    with pytest.raises(MemoryError):
        run(out, [Crash()])
    assert (out / "log.csv").read_text().count("\n") == 2
    assert run(out, resume=True) == history
    for name in ("log.csv", "best/model.safetensors", "last/model.safetensors"):
        assert (out / name).read_bytes() == (expected / name).read_bytes()
    assert {p.name for p in out.iterdir()} == {p.name for p in expected.iterdir()}


@pytest.mark.on_backend("torch")
@pytest.mark.parametrize(
    ("steps", "least"), [(12, 0.9), pytest.param(46, 0.98, marks=pytest.mark.nightly)]
)
def test_fine_tuning_in_bfloat16_is_as_accurate_as_in_float32(steps, least):
    """Within half a point on the test digits: one of 360 may differ (benchmarks/decisions.md)."""
    images, test, classes, test_classes = digits()
    images, classes = images[: 32 * steps], classes[: 32 * steps]
    accuracy = {}
    for dtype in ("float32", "mixed_bfloat16"):
        keras.utils.set_random_seed(0)
        model = VisionTransformer.from_preset("vit_digits", num_classes=2, dtype=dtype)
        recipe = TransferRecipe(steps, 64, learning_rate=0.01, steps_per_epoch=steps // 2)
        model.compile(**recipe.compile_args(model))
        data = model.preprocessor(images), classes % 2
        model.fit(*data, batch_size=64, verbose=0, **recipe.fit_args(model))
        accuracy[dtype] = evaluate(model, (test, test_classes % 2)).top1
    assert accuracy["float32"] > least
    assert accuracy["mixed_bfloat16"] >= accuracy["float32"] - 0.005
