"""The configuration of the views (random crops) that self-supervised training compares."""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import Values, is_int, is_number
from keras_vit.errors import ConfigError

if TYPE_CHECKING:  # the command line does not need it
    from keras_vit.config.vit import ViTConfig

_COUNT = Values(lambda value: is_int(value) and value >= 0, "a non-negative int")
_CHANCE = Values(lambda value: is_number(value) and 0 <= value <= 1, "a number in [0, 1]")
_CROP = Values(
    lambda crop: len(crop) == 2 and 0 < crop[0] <= crop[1] <= 1, "two increasing area fractions"
)
_JITTER = Values(
    lambda jitter: len(jitter) == 4 and min(jitter) >= 0 and max(jitter) <= 1 and jitter[3] <= 0.5,
    "four numbers in [0, 1], the last one at most 0.5",
)
_GLOBAL, _LOCAL = 224, 98  # pixels of the authors' views


@dataclasses.dataclass(frozen=True)
class Views(Fields):
    """The augmentation of self-supervised training: global and local views of each image.

    A view is a random crop with random colour changes, drawn independently for every view. The
    defaults are those of LeJEPA (arXiv 2511.08544) for ImageNet.

    Args:
        global_size, local_size: sides of global and local views in pixels, multiples of the patch
            size. None fits the model: global views have its image size, but at most 224
            pixels, and local views 98/224 of that.
        global_views, local_views: number of views per image. The centre of an image, in the loss,
            is the mean of its global views.
        global_crop, local_crop: smallest and largest fraction of the image's area in a view.
        flip: whether a view is flipped left to right with probability 0.5; False for images
            such as text, which flipping would change.
        jitter: largest changes of brightness, contrast and saturation, as fractions, and of hue, as
            a fraction of the colour circle. A view is changed with probability 0.8.
        grey, blur, solarise: probability that a view is converted to greyscale, is blurred (a
            Gaussian of 0.1 to 2 pixels), and has its values from 128 on inverted.

    Raises:
        ConfigError: a field is invalid; the message names it and the valid values.

    >>> from keras_vit.data import Views
    >>> Views(224, 98, flip=False).groups["local_views"]
    (6, 98, (0.05, 0.3))
    """

    global_size: int | None = None
    local_size: int | None = None
    _: dataclasses.KW_ONLY
    global_views: int = 2
    local_views: int = field(6, _COUNT)
    global_crop: tuple[float, float] = field((0.3, 1.0), _CROP)
    local_crop: tuple[float, float] = field((0.05, 0.3), _CROP)
    flip: bool = True
    jitter: tuple[float, float, float, float] = field((0.4, 0.4, 0.2, 0.1), _JITTER)
    grey: float = field(0.2, _CHANCE)
    blur: float = field(0.5, _CHANCE)
    solarise: float = field(0.2, _CHANCE)

    def _validate(self) -> None:
        super()._validate()
        for name in ("global_crop", "local_crop", "jitter"):  # lists of JSON
            self._set(name, tuple(map(float, getattr(self, name))))

    def _faults(self) -> Iterator[str]:
        if self.global_views + self.local_views < 2:
            yield "global_views=1, local_views=0: the loss needs at least two views."

    @property
    def groups(self) -> dict[str, tuple[int, Any, tuple[float, float]]]:
        """Number, size and crop of global and local views, by the name of their array."""
        groups = {
            "global_views": (self.global_views, self.global_size, self.global_crop),
            "local_views": (self.local_views, self.local_size, self.local_crop),
        }
        return {name: group for name, group in groups.items() if group[0]}

    def fit(self, config: "ViTConfig | None") -> "Views":
        """Returns the views with the sizes that fit a model.

        Raises:
            ConfigError: the model has a head; or a size is None, and `config` is None.
        """
        if config is not None and config.num_classes:
            raise ConfigError(
                "Views train an encoder without labels: load the model with num_classes=0, found "
                f"num_classes={config.num_classes}."
            )
        if None not in [size for _, size, _ in self.groups.values()]:
            return self
        if config is None:
            raise ConfigError(
                "Views without global_size and local_size need a model: pass the model to "
                "from_folder as preprocessor, or give Views both sizes."
            )
        patch = math.lcm(*config.stride)
        most = min(*(config.image_size or ()), _GLOBAL, _GLOBAL)
        side = self.global_size or max(round(most / patch), 1) * patch
        local = self.local_size or max(round(side * _LOCAL / _GLOBAL / patch), 1) * patch
        return self.replace(global_size=side, local_size=local)
