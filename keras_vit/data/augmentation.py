"""Settings of random augmentation, and those of AugReg by name."""

import dataclasses
from typing import TypeAlias

from keras_vit.config.views import Views
from keras_vit.errors import ConfigError, nearest
from keras_vit.support.arguments import AugmentationName


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random augmentation of training images, drawn anew for every image of every epoch.

    Args:
        crop: smallest and largest fraction of the image's area that a random crop has
            (Szegedy et al. 2015; `vit_jax/input_pipeline.py`), resized to the model's size
            by bilinear interpolation; None for the whole image by the preprocessor's
            protocol.
        aspect: smallest and largest width / height of that crop.
        flip: whether each image is mirrored left to right with probability 1/2.
        randaugment: number of layers and magnitude (Cubuk et al. 2020), with the operations
            and levels of big_vision; None turns it off. Magnitude 0 still changes images.
        mixup: alpha of the Beta distribution that mixing weights are drawn from (Zhang et
            al. 2018); 0 turns it off. One weight per batch, at least 1/2, as in big_vision.
        cutmix: alpha of the Beta distribution for pasting a box of another image (Yun et al.
            2019); 0 turns it off. With both, a batch gets mixup or cutmix with equal probability.

    Mixed images have mixed labels: mixup and cutmix make labels one-hot.

    Raises:
        ConfigError: a value is out of its range; the message names the argument.

    >>> from keras_vit.data import Augmentation
    >>> Augmentation(crop=(0.3, 1.0), flip=False, randaugment=(2, 10), mixup=0.2).mixes
    True
    """

    crop: tuple[float, float] | None = (0.05, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    randaugment: tuple[int, int] | None = None
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        if self.crop is not None and not 0 < self.crop[0] <= self.crop[1] <= 1:
            raise ConfigError(f"crop={self.crop}, expected (smallest, largest) in (0, 1], or None.")
        if not 0 < self.aspect[0] <= self.aspect[1]:
            raise ConfigError(f"aspect={self.aspect}, expected (smallest, largest) above 0.")
        if self.randaugment is not None and not all(n >= 0 for n in self.randaugment):
            raise ConfigError(
                f"randaugment={self.randaugment}, expected (layers, magnitude), both 0 or more."
            )
        if self.mixup < 0 or self.cutmix < 0:
            raise ConfigError(f"mixup={self.mixup}, cutmix={self.cutmix}: expected 0 or more.")

    @property
    def mixes(self) -> bool:
        """Whether labels are mixed too."""
        return self.mixup > 0 or self.cutmix > 0


AUGREG = {
    "crop_flip": Augmentation(),
    "light1": Augmentation(randaugment=(2, 0)),
    "light2": Augmentation(randaugment=(2, 10), mixup=0.2),
    "medium1": Augmentation(randaugment=(2, 15), mixup=0.2),
    "medium2": Augmentation(randaugment=(2, 15), mixup=0.5),
    "strong1": Augmentation(randaugment=(2, 20), mixup=0.5),
    "strong2": Augmentation(randaugment=(2, 20), mixup=0.8),
}
"""The augmentations of AugReg by name (arXiv 2106.10270, section 3.2 and Figure 4).

They are those of `big_vision/configs/vit_i21k.py`. Every entry has the random crop and the flip.
`"crop_flip"` has only these two: AugReg calls it none, and it is the paper's recipe for transfer.
Here `"none"` always means no augmentation.
"""


AnyAugmentation: TypeAlias = Augmentation | Views | AugmentationName | None
"""Type of the argument `augmentation`."""


def find_augmentation(augmentation: AnyAugmentation) -> Augmentation | Views | None:
    """Returns the augmentation, which may be given by its name in `AUGREG`; None for `"none"`.

    Raises:
        ConfigError: `AUGREG` has no such name, or the value is not an augmentation.
    """
    if augmentation is None or isinstance(augmentation, Augmentation | Views):
        return augmentation
    named = {"none": None, **AUGREG}
    if isinstance(augmentation, str) and augmentation in named:
        return named[augmentation]
    raise ConfigError(
        f"augmentation={augmentation!r}.{nearest(str(augmentation), named)} Expected "
        f"{', '.join(named)}, a keras_vit.data.Augmentation, Views or None."
    )
