"""Measures what an encoder learns without labels from digits that are moved in their frame.

    KERAS_BACKEND=jax python -m weights.moved_digits

The digits of scikit-learn, 12x12 pixels, lie at random places in a frame of 20x20. An encoder of
the size of vit_digits trains on 1,437 of them without labels; 360 others are classified by their
nearest neighbours and by a linear probe. The table of docs/pretraining.md has the means over five
seeds with their 95 % intervals; a seed takes some ten minutes on one core.
"""

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit.data import Views, from_arrays
from keras_vit.evaluation import features, knn_accuracy, linear_probe
from keras_vit.training import PretrainRecipe, SelfSupervised
from weights.train_digits import MODEL, digits

SIDE, DIGIT, SEEDS = 20, 12, 5
STUDENT = 2.776
"""Of Student's t for five values, two-sided 95 %."""
RECIPE = PretrainRecipe(
    1500,
    64,
    learning_rate=2e-3,
    projector=(256, 64),
    directions=256,
    steps_per_epoch=375,
    views=Views(
        SIDE,
        global_views=4,
        local_views=0,
        global_crop=(0.4, 1.0),
        flip=False,
        blur=0.0,
        solarise=0.0,
    ),
)


def move(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns the digits in larger frames, uint8 `(count, 20, 20, 1)`."""
    frames = np.zeros((len(images), SIDE, SIDE, 1), "uint8")
    places = rng.integers(0, SIDE - DIGIT + 1, (len(images), 2))
    for frame, image, (y, x) in zip(frames, images, places, strict=True):
        digit = Image.fromarray(image[..., 0]).resize((DIGIT, DIGIT), Image.Resampling.BILINEAR)
        frame[y : y + DIGIT, x : x + DIGIT, 0] = np.array(digit)
    return frames


def measure(seed: int) -> dict[str, tuple[float, float]]:
    """Returns the accuracy of neighbours and of a linear probe, for each kind of features."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    train, test, train_digits, test_digits = digits()
    train, test = move(train, rng), move(test, rng)
    fields = {**MODEL, "dropout_rate": 0.0, "stochastic_depth_rate": 0.0, "num_classes": 0}
    fields |= {"image_size": SIDE, "position": "sincos2d", "pool": {"kind": "gap"}}
    encoder = keras_vit.VisionTransformer(**fields)

    def score(train: np.ndarray, test: np.ndarray) -> tuple[float, float]:
        probe = linear_probe(train, train_digits)
        return knn_accuracy(test, test_digits), probe.accuracy(test, test_digits)

    def embedded() -> tuple[float, float]:
        return score(*(features(encoder, images).values for images in (train, test)))

    pixels = score(*(images.reshape(len(images), -1) / 255 for images in (train, test)))
    scores = {"fresh weights": embedded(), "raw pixels": pixels}
    recipe = RECIPE.replace(seed=seed)
    model = SelfSupervised(encoder, recipe.views, **recipe.loss_args)
    data = from_arrays(train, np.zeros(len(train), int), encoder, **recipe.data_args)
    model.compile(**recipe.compile_args(model))
    model.fit(data, verbose=2, shuffle=False, **recipe.fit_args(model))
    return {**scores, "after training without labels": embedded()}


def main() -> None:
    """Prints the table."""
    runs = [measure(seed) for seed in range(SEEDS)]
    print("| | k-NN | linear probe |\n|---|---|---|")
    for name in runs[0]:
        values = 100 * np.array([run[name] for run in runs])
        spread = STUDENT * values.std(axis=0, ddof=1) / SEEDS**0.5
        cells = (f"{m:.1f} % ± {s:.1f}" for m, s in zip(values.mean(axis=0), spread, strict=True))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
