"""Makes the views of an image: crops at two sizes, each with other colours, on Pillow.

The operations are those of torchvision on Pillow images, which the authors of LeJEPA use.
"""

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from keras_vit.config.views import Views
from keras_vit.data.crops import random_box

_ASPECT = (3 / 4, 4 / 3)
_JITTERED = 0.8
_SIGMA = (0.1, 2.0)


def make_views(
    picture: Image.Image, views: Views, rng: np.random.Generator
) -> dict[str, list[Image.Image]]:
    """Returns the views of a picture of mode L or RGB, by the names of `Views.groups`."""
    return {
        name: [_make_view(picture, size, crop, views, rng) for _ in range(count)]
        for name, (count, size, crop) in views.groups.items()
    }


def _make_view(
    picture: Image.Image,
    size: int,
    crop: tuple[float, float],
    views: Views,
    rng: np.random.Generator,
) -> Image.Image:
    top, left, height, width = random_box((picture.height, picture.width), crop, _ASPECT, rng)
    # Cut first: interpolation must not look beyond the box.
    view = picture.crop((left, top, left + width, top + height))
    view = view.resize((size, size), Image.Resampling.BILINEAR)
    if views.flip and rng.random() < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if rng.random() < _JITTERED:
        view = _jitter(view, views.jitter, rng)
    if rng.random() < views.grey:
        view = ImageOps.grayscale(view).convert(view.mode)
    if rng.random() < views.blur:
        view = view.filter(ImageFilter.GaussianBlur(rng.uniform(*_SIGMA)))
    if rng.random() < views.solarise:
        view = ImageOps.solarize(view, 128)
    return view


def _jitter(
    view: Image.Image, most: tuple[float, float, float, float], rng: np.random.Generator
) -> Image.Image:
    """Returns a view with other brightness, contrast, saturation and hue, in a random order."""
    changes = rng.uniform(-1, 1, 4) * most
    kinds = ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color
    for k in rng.permutation(4 if view.mode == "RGB" else 2):
        if changes[k]:  # a conversion to HSV and back rounds
            view = kinds[k](view).enhance(1 + changes[k]) if k < 3 else _turn_hue(view, changes[3])
    return view


def _turn_hue(view: Image.Image, turn: float) -> Image.Image:
    hue, *others = view.convert("HSV").split()
    steps = round(256 * turn)
    hue = hue.point([(value + steps) % 256 for value in range(256)])
    return Image.merge("HSV", (hue, *others)).convert("RGB")
