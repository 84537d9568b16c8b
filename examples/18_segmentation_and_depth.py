"""
Semantic segmentation and depth estimation with masks
=====================================================

Train a head that predicts the class or the depth of every pixel::

    python examples/18_segmentation_and_depth.py

The program first draws shapes with their masks, and spheres with their depths. To use your own
photos, start at ``learn``. ``KERAS_VIT_TRAINED`` may name a folder with a trained encoder.
"""

import os
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import keras_vit
from keras_vit.training import train_head

SIDE, COUNT, EPOCHS = 64, 500, 9
NAMES = ("background", "disc", "square", "triangle")
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)


def draw_shapes() -> tuple[np.ndarray, np.ndarray]:
    """Returns gray values and the class index of every pixel, `(64, 64)`."""
    mask = Image.new("L", (SIDE, SIDE))
    draw = ImageDraw.Draw(mask)
    for _ in range(rng.integers(1, 3)):
        size, x, y = map(int, rng.integers((28, -8, -8), (44, 40, 40)))
        box, kind = (x, y, x + size, y + size), int(rng.integers(1, 4))
        if kind == 1:
            draw.ellipse(box, fill=kind)
        elif kind == 2:
            draw.rectangle(box, fill=kind)
        else:
            draw.polygon([(x, y + size), (x + size, y + size), (x + size // 2, y)], fill=kind)
    return np.array([40, 110, 170, 230])[np.array(mask)], np.array(mask)


def draw_spheres() -> tuple[np.ndarray, np.ndarray]:
    """Returns gray values and depths in millimeters, `(64, 64)`, of spheres in a foggy room."""
    down, right = (np.indices((SIDE, SIDE)) - 31.5) / 32  # rays of a camera, 1 forwards
    depth = np.minimum(1.5 / np.maximum(down, 0.01), rng.uniform(6, 10))  # floor and wall
    light = np.full((SIDE, SIDE), 0.8)
    for radius, side, z in rng.uniform((0.4, -0.6, 2.5), (0.9, 0.6, 6), (rng.integers(1, 4), 3)):
        middle = np.array([side * z, 1.5 - radius, z])  # on the floor, 1.5 m below the camera
        squared, along = right**2 + down**2 + 1, right * middle[0] + down * middle[1] + z
        root = along**2 - squared * (middle @ middle - radius**2)
        own = (along - np.sqrt(np.maximum(root, 0))) / squared
        is_seen = (root > 0) & (own < depth)
        shade = 0.6 - 0.4 * (down * own - middle[1]) / radius  # the lamp is above
        depth, light = np.where(is_seen, own, depth), np.where(is_seen, shade, light)
    return 255 * light * np.exp(-depth / 10), (1000 * depth).astype("uint16")


for folder, draw in {"shapes": draw_shapes, "spheres": draw_spheres}.items():
    for part in ("images", "targets"):
        Path(folder, part).mkdir(parents=True, exist_ok=True)
    for k in range(COUNT):
        grey, target = draw()
        noisy = np.clip(grey + rng.normal(0, 8, grey.shape), 0, 255).astype("uint8")
        Image.fromarray(noisy).save(Path(folder, "images", f"{k:03d}.png"))
        Image.fromarray(target).save(Path(folder, "targets", f"{k:03d}.png"))

# %%
# A target file has the name of its image. A mask is a PNG file of class indices; pixels of 255 are
# ignored. A depth map is a 16-bit PNG file, here in millimeters, or an array in ``.npy``; pixels of
# 0 are ignored. A fifth of the images is held out.


def learn(
    folder: str, model: keras_vit.VisionTransformer, epochs: int, unit: float = 1.0
) -> tuple[keras_vit.data.ImageData, dict[str, float]]:
    """Trains a model on a folder; returns the held-out data, and the metrics on them."""
    data = keras_vit.data.from_folder(
        f"{folder}/images", model, 8, targets=f"{folder}/targets", target_unit=unit
    )
    train, held_out = data.hold_out(0.2)
    steps = epochs * len(train)
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=2e-3, warmup_steps=40)
    model.compile(keras.optimizers.AdamW(rate), loss="auto", metrics="auto")
    model.fit(train, epochs=epochs, shuffle=False, verbose=2)
    scores = model.evaluate(held_out, verbose=0, return_dict=True)
    print(folder, {name: round(score, 4) for name, score in scores.items()})
    return held_out, scores


# %%
# The linear head reads the patches of the last block, and its logits are resized to the image. With
# a small encoder every weight is trained; with a pretrained one it is enough to train the head.

trained = os.environ.get("KERAS_VIT_TRAINED")
encoder, size = (f"{trained}/encoder", 224) if trained else ("vit_digits", SIDE)
source = keras_vit.VisionTransformer.from_preset(encoder, image_size=size, num_classes=0)
models = {
    "shapes": source.with_dense_head(len(NAMES), class_names=NAMES),
    "spheres": source.with_dense_head(task="depth"),
}
if trained:
    for model in models.values():
        train_head(model)
shapes, scores = learn("shapes", models["shapes"], epochs=EPOCHS)
spheres, errors = learn("spheres", models["spheres"], epochs=EPOCHS // 3, unit=0.001)  # meters

# %%
# The metrics ``"auto"`` are the mean intersection over union for masks; for depths the error in
# meters, and the fraction of pixels within a factor of 1.25. ``predict`` returns logits or depths;
# ``keras-vit predict photos/ --source shapes_model --path maps`` writes maps at the size of the
# photos.

models["shapes"].save_to_preset("shapes_model")
figure, rows = plt.subplots(2, 6, figsize=(10, 3.6), layout="constrained")
for row, data, model in zip(rows, (shapes, spheres), models.values(), strict=True):
    images, targets = next(iter(data))
    maps = model.predict(images, verbose=0)
    maps = maps.argmax(axis=-1) if model.task == "segmentation" else maps
    for k in range(2):
        axes = dict(zip(("image", "target", "map"), row[3 * k :], strict=False))
        axes["image"].imshow(model.preprocessor.pixels(images)[k], cmap="gray")
        for name, values in {"target": targets, "map": maps}.items():
            axes[name].imshow(values[k], vmin=0, vmax=targets.max())
        for name, axis in axes.items():
            axis.set_title(name)
            axis.axis("off")
