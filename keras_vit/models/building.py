"""Types of the arguments of builders and `from_preset`, for type checkers and editors.

`VisionTransformer` documents and checks the arguments, which these functions pass to it. The
fields of `Architecture` and the names of `Family` are in the stub `building.pyi`, which
`python -m weights.stubs` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from keras_vit.config import Task
from keras_vit.images.class_names import ClassNames, Thresholds
from keras_vit.images.protocols import ProtocolSpec

Family: TypeAlias = str
"""The name of a checkpoint format."""


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
    """The fields of `ViTConfig` except `image_size` and `num_classes`."""


class Arguments(Building, Architecture, total=False):
    """The arguments of builders except `image_size` and `num_classes`."""


class Reading(TypedDict, total=False):
    """The keys of the argument `read` of `from_preset`: how the files of a source are read."""

    family: Family
    variant: str
    prefix: str
    ignore: str | Sequence[str]
    weights: str
    timm: str | Mapping[str, Any]
    checksum: bool
    allow_pickle_weights: bool
