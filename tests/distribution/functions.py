"""Every public function that runs a model, for programs that compare devices."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit import training
from keras_vit.models.inference import run
from tests.distribution.training import make_model

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((16, 8, 8, 3)).astype("float32")
LABELS = np.arange(16) % 3
PICTURES = list(RNG.integers(0, 256, (9, 8, 8, 3)).astype("uint8"))


def compiled() -> keras_vit.VisionTransformer:
    """A small model with SGD."""
    model = make_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(training.LayerwiseSGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return model


def write_pictures(folder: Path) -> None:
    """Writes the images that `outputs` embeds."""
    folder.mkdir(exist_ok=True)
    for k, picture in enumerate(PICTURES):
        Image.fromarray(picture).save(folder / f"{k}.png")


def outputs(model: Any, count: int, folder: Path, out: Path) -> list[np.ndarray]:
    """What each function gives for the same `count` images in every process.

    Args:
        folder: where `write_pictures` has written them.
        out: a new file, beside which a cache is made.
    """
    images, labels = IMAGES[:count], LABELS[:count]
    scores = keras_vit.evaluate(model, (images, labels), batch_size=8, prepared=True)
    keras_vit.embed(model, [folder / f"{k}.png" for k in range(count)], out, batch_size=8)
    return [
        run(model, images, batch_size=8),
        np.array([[p for _, p in sorted(row)] for row in model.classify(PICTURES[:count])]),
        model.tokens(images, batch_size=8, prepared=True).patches,
        keras_vit.evaluation.features(
            model, images, batch_size=8, cache=out.with_suffix(".cache"), prepared=True
        ).values,
        np.array([scores.top1, scores.loss, scores.calibration_error]),
        np.load(out),
        keras_vit.explanation.attention_maps(model, images, prepared=True)["block_0/attention"],
        keras_vit.explain(model, images, prepared=True).patches,
    ]
