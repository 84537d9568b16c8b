"""Draws the pictures of docs/look_inside.md by the encoder that `weights.trained` makes.

    KERAS_BACKEND=torch python -m weights.look_inside .venv/trained/encoder docs/look_inside

The photographs are those of scikit-image, in the public domain or CC0: astronaut (NASA), chelsea
(S. van der Walt), coffee (R. Michetti) and rocket (SpaceX). Half a minute on two cores.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit import VisionTransformer
from keras_vit.explanation import attention_maps, brightness, foreground, patch_colours
from keras_vit.explanation.report import overlay

NAMES = ("astronaut", "chelsea", "coffee", "rocket")
EYE = (12, 9)
"""Row and column of a patch on an eye of the cat, in a grid of 32x32."""
SIDE = 224


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("encoder", type=Path, help="folder of transformers")
    parser.add_argument("folder", type=Path, help="where the pictures are written")
    arguments = parser.parse_args()
    import skimage.data

    model = VisionTransformer.from_preset(arguments.encoder, image_size=448)
    batch = model.preprocessor([getattr(skimage.data, name)() for name in NAMES])
    photos = model.preprocessor.pixels(batch)
    patches = model.tokens(batch, prepared=True).patches
    arguments.folder.mkdir(parents=True, exist_ok=True)

    mask = foreground(patches)
    save(arguments.folder / "components.webp", [*photos, *patch_colours(patches, mask)])

    unit = patches / np.linalg.norm(patches, axis=-1, keepdims=True)
    likeness = unit @ unit[1][EYE]
    marked = photos[1].copy()
    top, left = (14 * place for place in EYE)
    marked[top : top + 14, left : left + 14] = (1, 0, 0)
    shown = [
        overlay(photo, enlarged(brightness(map_)))
        for photo, map_ in zip(photos, likeness, strict=True)
    ]
    save(arguments.folder / "similarity.webp", [marked, shown[1], shown[0], shown[2]])

    last = f"block_{model.config.num_layers - 1}/attention"
    weights = attention_maps(model, batch[1:2], last, prepared=True)[last]
    heads = weights[0, :, 0, 1:].reshape(-1, *patches.shape[1:3])
    shown = [overlay(photos[1], enlarged(brightness(head))) for head in heads[:4]]
    save(arguments.folder / "attention.webp", shown)


def enlarged(map_: np.ndarray) -> np.ndarray:
    """Returns a map of patches as a map of pixels."""
    return map_.repeat(14, axis=0).repeat(14, axis=1)


def save(path: Path, pictures: Sequence[np.ndarray]) -> None:
    """Writes pictures in [0, 1], four in a row, as one WebP file."""
    small = [
        Image.fromarray(np.round(255 * picture).astype("uint8")).resize(
            (SIDE, SIDE), Image.Resampling.NEAREST if len(picture) < SIDE else None
        )
        for picture in pictures
    ]
    sheet = Image.new("RGB", (4 * SIDE, SIDE * -(-len(small) // 4)))
    for k, picture in enumerate(small):
        sheet.paste(picture, (SIDE * (k % 4), SIDE * (k // 4)))
    sheet.save(path, quality=75, method=6)


if __name__ == "__main__":
    main()
