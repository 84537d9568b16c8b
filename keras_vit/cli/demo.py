"""The command `keras-vit demo`: vit_digits predicts, is fine-tuned and explained."""

import time
from pathlib import Path

import keras
import numpy as np
from rich.text import Text

from keras_vit.cli.console import console
from keras_vit.cli.digits import load_digits
from keras_vit.evaluation.scores import evaluate
from keras_vit.explanation.report import write_report
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.backend import require_training
from keras_vit.support.files import failure_named
from keras_vit.training import TransferRecipe


def run(folder: Path) -> None:
    """Runs the demonstration and writes a preset and a page of maps into `folder`.

    Raises:
        BackendError: the backend is OpenVINO, which cannot fine-tune.
        ConfigError: scikit-learn, which contains the digits, is not installed.
    """
    require_training()
    start = time.perf_counter()
    keras.utils.set_random_seed(0)
    with failure_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    train, test, train_digits, test_digits = load_digits()
    console.rule(f"keras_vit on {keras.backend.backend()}")

    _step("1. Load", " the preset vit_digits")
    model = VisionTransformer.from_preset("vit_digits")
    console.print(f"   {model.count_params():,} parameters, {model.config.image_size} pixels")

    _step("2. Predict", f" {len(test)} digits it has never seen")
    score = evaluate(model, (test, test_digits))
    (label, probability), *_ = model.classify(test[:1])[0]
    console.print(f"   {score.top1:.1%} right; the first is a {label} ({probability:.1%})")

    _step("3. Fine-tune", " at twice the resolution: is the digit odd or even?")
    height, width = model.config.image_size or (0, 0)
    tuned = VisionTransformer.from_preset(
        "vit_digits", image_size=(2 * height, 2 * width), num_classes=2, class_names=("even", "odd")
    )
    steps = -(-len(train) // 64)
    recipe = TransferRecipe(2 * steps, 64, learning_rate=0.01, steps_per_epoch=steps)
    tuned.compile(**recipe.compile_args(tuned))
    parities = test_digits % 2
    before = evaluate(tuned, (test, parities)).top1
    fit = {"batch_size": 64, "verbose": 2, **recipe.fit_args(tuned)}
    tuned.fit(tuned.preprocessor(train), train_digits % 2, **fit)
    after = evaluate(tuned, (test, parities)).top1
    console.print(f"   {before:.1%} right before (a zero head), {after:.1%} after")

    _step("4. Save", " and reload")
    tuned.save_to_preset(folder / "vit_digits_odd_even")
    reloaded = VisionTransformer.from_preset(folder / "vit_digits_odd_even")
    difference = np.abs(reloaded.probabilities(test) - tuned.probabilities(test))
    console.print(f"   largest difference of a probability: {difference.max():.1e}")

    _step("5. Explain", ": attention, and the parts of two images that decide")
    console.print(f"   {write_report(tuned, folder, list(test[:2]))} written")
    console.rule(f"done in {time.perf_counter() - start:.0f} s")


def _step(name: str, purpose: str) -> None:
    console.print(Text.assemble((name, "bold"), purpose))
