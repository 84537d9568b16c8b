"""RandAugment (Cubuk et al. 2020) with the operations and levels of big_vision, on Pillow.

The reference is `distort_image_with_randaugment` in `big_vision/pp/autoaugment.py`: 16 operations
with equal probability; each operation that is drawn is applied. keras_vit differs in two points.
Lengths of translation and cutout are fractions of the side, equal to the reference's at 224 pixels.
Contrast pivots on the image's mean grey; the reference's pivot depends on the image's size.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Operation = Callable[[Image.Image, float, np.random.Generator], Image.Image]

_GREY = 128
_SIDE = 224


def randaugment(
    image: Image.Image, layers: int, magnitude: float, rng: np.random.Generator
) -> Image.Image:
    """Applies `layers` random operations out of sixteen to an image.

    Args:
        image: an image of mode L or RGB.
        layers: number of operations in a row; N in the paper.
        magnitude: strength of each operation; M in the paper. 10 is the strongest level of
            AutoAugment.
        rng: draws the operations, their signs and their places.
    """
    names = list(OPERATIONS)
    for _ in range(layers):
        image = OPERATIONS[names[rng.integers(len(names))]](image, magnitude / 10, rng)
    return image


def _either(value: float, rng: np.random.Generator) -> float:
    return value if rng.random() < 0.5 else -value


def _rotate(image: Image.Image, level: float, rng: np.random.Generator) -> Image.Image:
    return image.rotate(_either(30 * level, rng), fillcolor=_fill(image))


def _affine(image: Image.Image, coefficients: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, fillcolor=_fill(image))


def _fill(image: Image.Image) -> int | tuple[int, ...]:
    return _GREY if image.mode == "L" else (_GREY,) * len(image.getbands())


def _translate_x(image: Image.Image, level: float, rng: np.random.Generator) -> Image.Image:
    return _affine(image, (1, 0, _either(100 * level, rng) * image.width / _SIDE, 0, 1, 0))


def _translate_y(image: Image.Image, level: float, rng: np.random.Generator) -> Image.Image:
    return _affine(image, (1, 0, 0, 0, 1, _either(100 * level, rng) * image.height / _SIDE))


def _cutout(image: Image.Image, level: float, rng: np.random.Generator) -> Image.Image:
    x, y = rng.integers(image.width), rng.integers(image.height)
    across, down = (int(40 * level * side / _SIDE) for side in image.size)
    image = image.copy()
    image.paste(_fill(image), (x - across, y - down, x + across, y + down))
    return image


def _posterize(image: Image.Image, level: float, rng: np.random.Generator) -> Image.Image:
    # Magnitudes 0 to 2 would keep 0 bits; the top bit stays, because TensorFlow shifts by 7 instead
    # of 8. Above magnitude 20 all bits stay. Pillow's own posterize refuses both cases.
    lost = min(max(8 - int(4 * level), 0), 7)
    return image.point([v >> lost << lost for v in range(256)] * len(image.getbands()))


def _solarize_add(image: Image.Image, level: float, rng: np.random.Generator) -> Image.Image:
    table = [min(v + int(110 * level), 255) if v < 128 else v for v in range(256)]
    return image.point(table * len(image.getbands()))


def _enhance(kind: Any) -> Operation:
    return lambda image, level, rng: kind(image).enhance(1.8 * level + 0.1)


OPERATIONS: dict[str, Operation] = {
    "AutoContrast": lambda image, level, rng: ImageOps.autocontrast(image),
    "Equalize": lambda image, level, rng: ImageOps.equalize(image),
    "Invert": lambda image, level, rng: ImageOps.invert(image),
    "Rotate": _rotate,
    "Posterize": _posterize,
    "Solarize": lambda image, level, rng: ImageOps.solarize(image, int(256 * level)),
    "Color": _enhance(ImageEnhance.Color),
    "Contrast": _enhance(ImageEnhance.Contrast),
    "Brightness": _enhance(ImageEnhance.Brightness),
    "Sharpness": _enhance(ImageEnhance.Sharpness),
    "ShearX": lambda image, level, rng: _affine(image, (1, _either(0.3 * level, rng), 0, 0, 1, 0)),
    "ShearY": lambda image, level, rng: _affine(image, (1, 0, 0, _either(0.3 * level, rng), 1, 0)),
    "TranslateX": _translate_x,
    "TranslateY": _translate_y,
    "Cutout": _cutout,
    "SolarizeAdd": _solarize_add,
}
"""The operations by big_vision's names: (image, magnitude / 10, rng) -> image."""
