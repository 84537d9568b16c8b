"""Types of the arguments that all sources of images share, for editors and type checkers."""

from typing import TYPE_CHECKING, TypeAlias, TypedDict

from keras_vit.data.augmentation import Augmentation

if TYPE_CHECKING:
    from keras_vit.images import Preprocessor
    from keras_vit.model import VisionTransformer

Prepares: TypeAlias = "Preprocessor | VisionTransformer"
"""Type of the argument `preprocessor`: a preprocessor, or a model that has one."""


class Options(TypedDict, total=False):
    """Optional arguments of `ImageData`, which the `from_*` functions pass on."""

    augmentation: Augmentation | str | None
    shuffle: bool | None
    steps_per_epoch: int | None
    one_hot: bool
    seed: int
    unreadable: str
    cache: bool | str
    min_size: int | None
    threads: int | None
    shard: tuple[int, int] | None
