"""Table 4: the highest learning rate that is best on held-out images.

python examples/paper/table4_rates.py vit_b16.augreg_i21k_224 flowers
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_vit.data import ImageData, from_folder
from keras_vit.errors import CheckpointError, ConfigError, shown
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.files import write_json
from keras_vit.training import TransferRecipe

RATES = (0.001, 0.003, 0.01, 0.03)
"""The highest learning rates that table 4 tries for data sets other than ImageNet and VTAB."""

FINE_TUNING = {
    "imagenet": (20_000, (0.003, 0.01, 0.03, 0.06)),
    "cifar100": (10_000, RATES),
    "cifar10": (10_000, RATES),
    "oxford_iiit_pet": (500, RATES),
    "oxford_flowers102": (500, RATES),
    "vtab": (2_500, (0.01,)),
}
"""The rows of table 4: the updates, in batches of 512, and the learning rates that are tried."""


def sweep(
    build: Callable[[], VisionTransformer],
    data: ImageData,
    steps: int,
    learning_rates: Sequence[float] = RATES,
    *,
    validation_split: float = 0.1,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    keep: Path | None = None,
    **options: Any,
) -> dict[float, float]:
    """Trains once per learning rate on a share of the data, and scores on the rest.

    The rate for the training on all data is `max(scores, key=scores.get)` of the result `scores`,
    as in the paper (appendix B.1.1).

    Args:
        build: returns a new model for a training, such as
            `lambda: VisionTransformer.from_preset(name, num_classes=n)`.
        data: training data.
        steps: weight updates of each training.
        learning_rates: highest learning rates to try.
        validation_split: share of the data that is held out.
        callbacks: callbacks for each `fit`.
        keep: a JSON file that receives the score of each rate. An interrupted sweep continues
            after the rates in this file.
        **options: other arguments of `TransferRecipe`.

    Returns:
        The accuracy on the held-out images for each learning rate.

    Raises:
        ConfigError: `learning_rates` is empty, or as `TransferRecipe`.
        CheckpointError: `keep` is damaged.
    """
    if not learning_rates:
        raise ConfigError("learning_rates=(): expected at least one.")
    known = _read(keep) if keep is not None and keep.exists() else {}
    train, validation = data.hold_out(validation_split)
    options = {"batch_size": train.batch_size, "one_hot": train.one_hot, **options}
    options["steps_per_epoch"] = len(train)
    for learning_rate in learning_rates:
        if learning_rate in known:
            continue
        model, train.epoch = build(), 0
        recipe = TransferRecipe(steps, learning_rate=learning_rate, **options)
        fit = recipe.fit_args(model)
        fit["callbacks"] += callbacks
        model.compile(**recipe.compile_args(model))
        model.fit(train, **fit, shuffle=False, verbose=0)
        scores = model.evaluate(validation, verbose=0, return_dict=True)
        known[learning_rate] = scores["accuracy"]
        if keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            write_json(keep, [{"learning_rate": r, "accuracy": a} for r, a in known.items()])
    return {rate: known[rate] for rate in learning_rates}


def _read(path: Path) -> dict[float, float]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {float(row["learning_rate"]): float(row["accuracy"]) for row in rows}
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: expected the scores of a sweep ({shown(str(error), quoted=False)}). Remove "
            "the file to begin the sweep anew."
        ) from error


def main(preset: str, folder: str, steps: int = 500, batch_size: int = 64) -> None:
    """Prints the accuracy of each rate on a tenth of the images of a folder."""
    names = [path.name for path in Path(folder).iterdir() if path.is_dir()]

    def build() -> VisionTransformer:
        keras.utils.set_random_seed(0)
        return VisionTransformer.from_preset(preset, num_classes=len(names))

    data = from_folder(folder, build(), batch_size, steps_per_epoch=steps)
    for rate, accuracy in sweep(build, data, steps).items():
        print(f"{rate:g}: {accuracy:.1%}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
