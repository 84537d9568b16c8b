"""The arguments that every way to a model shares, for type checkers and editors.

`VisionTransformer` documents and checks them; builders and `from_preset` pass them on to it. The
fields of `Architecture` are in the stub `building.pyi`, which `python -m weights.stubs` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from keras_vit.config import Numerics, ResNetStem, Rope
from keras_vit.images.class_names import ClassNames, Thresholds
from keras_vit.images.protocols import ProtocolSpec


class Building(TypedDict, total=False):
    """Arguments of `VisionTransformer` beside the fields of its configuration."""

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

    patch_size: int | tuple[int, int]
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    native_aspect: bool
    channels: int
    pooling: str
    class_token: bool | None
    num_class_tokens: int
    joined_class_tokens: int
    distillation_token: bool
    num_registers: int
    mask_token: bool
    class_token_blocks: int
    class_token_in_mean: bool
    prefix_in_map: bool
    map_num_heads: int | None
    map_mlp_dim: int | None
    representation_size: int | None
    projection_dim: int | None
    position: str
    position_before_class: bool
    position_before_registers: bool
    position_grid: tuple[int, int] | None
    rope: Rope | Mapping[str, Any] | None
    relative_position_bias: str | None
    patch_bias: bool
    patch_norm: bool
    pre_norm: bool
    norm: str
    final_norm: bool
    qkv_bias: bool | tuple[bool, bool, bool]
    projection_bias: bool
    mlp_bias: bool
    mlp: str
    qk_norm: str | None
    sub_norm_attention: bool
    sub_norm_mlp: bool
    layer_scale: bool
    layer_scale_init: float
    dropout_rate: float
    attention_dropout_rate: float
    stochastic_depth_rate: float
    resnet: ResNetStem | Mapping[str, Any] | None
    unit_pre_logits: bool
    head_bias_init: float
    classifier_activation: str | None
    task: Literal["single_label", "multi_label", "regression"]
    rescale: bool
    numerics: Numerics | Mapping[str, Any]


class Arguments(Building, Architecture, total=False):
    """Arguments of builders beside `image_size` and `num_classes`."""


class Reading(Arguments, total=False):
    """Arguments of `from_preset`, with those on how to read files."""

    family: str
    variant: str
    prefix: str
    ignore: str | Sequence[str]
    weights: str
    timm: str | Mapping[str, Any]
    checksum: bool
    allow_pickle_weights: bool
