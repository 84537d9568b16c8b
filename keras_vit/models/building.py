"""The arguments that every way to a model shares, for type checkers and editors.

`VisionTransformer` documents and checks them; builders and `from_preset` pass them on to it. The
fields of `Architecture` and the names of `Family` are in the stub `building.pyi`, which
`python -m weights.stubs` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from keras_vit.config import Task
from keras_vit.images.class_names import ClassNames, Thresholds
from keras_vit.images.protocols import ProtocolSpec

Family: TypeAlias = str
"""The name of a format of checkpoints."""


class Building(TypedDict, total=False):
    """Arguments of `VisionTransformer` that are not fields of its configuration."""

    task: Task
    classifier_activation: Literal["softmax", "sigmoid"] | None
    rescale: bool
    dtype: Any
    data_format: str | None
    remat: bool
    name: str | None
    trainable: bool
    class_names: ClassNames | None
    protocol: ProtocolSpec | None
    provenance: Mapping[str, Any] | None
    thresholds: Thresholds | None


class Architecture(TypedDict, total=False):
    """The fields of `ViTConfig`, but for `image_size` and `num_classes`."""


class Arguments(Building, Architecture, total=False):
    """Arguments of builders other than `image_size` and `num_classes`."""


class Reading(TypedDict, total=False):
    """How the files of a source are read: the keys of `read` of `from_preset`."""

    family: Family
    variant: str
    prefix: str
    ignore: str | Sequence[str]
    weights: str
    timm: str | Mapping[str, Any]
    checksum: bool
    allow_pickle_weights: bool
