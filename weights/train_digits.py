"""Trains the embedded preset vit_digits on scikit-learn's handwritten digits.

    KERAS_BACKEND=torch python -m weights.train_digits keras_vit/presets/vit_digits

The 1,797 images of 8x8 pixels (UCI, Alpaydin and Kaynak 1998) come in the
scikit-learn wheel. 1,437 train, 360 test, split by class with a fixed seed; the
test images are looked at once, at the end.
"""

import argparse
import math
from typing import Any

import keras
import numpy as np
import sklearn
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_vit

SEED = 0
IMAGE_SIZE = 16
MODEL: dict[str, Any] = {
    "image_size": IMAGE_SIZE,
    "channels": 1,
    "patch_size": 4,
    "hidden_size": 64,
    "mlp_dim": 192,
    "num_heads": 4,
    "num_layers": 5,
    "num_classes": 10,
    "stochastic_depth_rate": 0.1,
    "dropout_rate": 0.05,
}


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training and test images, uint8 `(count, 8, 8, 1)`, and their digits."""
    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype("uint8")[..., None]
    train, test, train_digits, test_digits = train_test_split(
        images, data.target, test_size=360, stratify=data.target, random_state=SEED
    )
    return train, test, train_digits, test_digits


class Augmented(keras.utils.PyDataset):
    """Batches of training digits, turned, scaled and moved a little, anew in every epoch."""

    def __init__(self, images: np.ndarray, classes: np.ndarray, batch_size: int = 128) -> None:
        super().__init__()
        self.images = images.astype("float32")  # (count, 16, 16, 1) in [-1, 1]
        self.classes = classes
        self.batch_size = batch_size
        self.random = np.random.default_rng(SEED)
        self.order = self.random.permutation(len(images))

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.batch_size)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = self.order[index * self.batch_size : (index + 1) * self.batch_size]
        return np.stack([self._moved(self.images[i]) for i in chosen]), self.classes[chosen]

    def on_epoch_end(self) -> None:
        self.order = self.random.permutation(len(self.images))

    def _moved(self, image: np.ndarray) -> np.ndarray:
        angle = np.deg2rad(self.random.uniform(-12, 12))
        shear = self.random.uniform(-0.15, 0.15)
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = rotation @ np.diag(self.random.uniform(0.88, 1.14, 2)) @ [[1, shear], [0, 1]]
        centre = np.array(image.shape[:2]) / 2 - 0.5
        offset = centre - matrix @ centre + self.random.uniform(-1.5, 1.5, 2)
        moved = ndimage.affine_transform(
            image[..., 0], matrix, offset, order=1, mode="constant", cval=-1.0
        )
        return moved[..., None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="where the preset is written")
    parser.add_argument("--epochs", type=int, default=250)
    arguments = parser.parse_args()

    keras.utils.set_random_seed(SEED)
    train, test, train_digits, test_digits = digits()
    model = keras_vit.VisionTransformer(
        **MODEL, name="vit_digits", class_names=[str(digit) for digit in range(10)]
    )
    batches = Augmented(model.preprocessor(train), np.eye(10, dtype="float32")[train_digits])
    steps = arguments.epochs * len(batches)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=1.5e-3, warmup_steps=steps // 20
    )
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=0.05, global_clipnorm=1.0),
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        metrics=["accuracy"],
    )
    model.fit(batches, epochs=arguments.epochs, verbose=2)

    logits = model.predict(model.preprocessor(test), verbose=0)
    right = int((logits.argmax(axis=1) == test_digits).sum())
    print(f"{right} of {len(test)} test digits right: {right / len(test):.4f}")
    published = keras_vit.VisionTransformer(
        model.config.replace(dropout_rate=0.0, stochastic_depth_rate=0.0),
        name="vit_digits",
        class_names=model.class_names,
        provenance={
            "source": "weights/train_digits.py",
            "data": f"load_digits of scikit-learn {sklearn.__version__} (UCI), CC BY 4.0",
            "split": f"1437 train, 360 test, stratified, seed {SEED}",
            "test_top1": round(right / len(test), 4),
            "backend": f"{keras.backend.backend()}, keras {keras.__version__}",
            "epochs": arguments.epochs,
            "license": "Apache-2.0",
        },
    )
    published.set_weights(model.get_weights())
    published.save_to_preset(arguments.folder)


if __name__ == "__main__":
    main()
