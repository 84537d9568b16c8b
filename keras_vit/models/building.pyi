"""Types of the arguments of builders and `from_preset`, for type checkers and editors.

`VisionTransformer` documents and checks the arguments, which these functions pass to it. The
fields of `Architecture` and the names of `Family` are in the stub `building.pyi`, which
`python -m weights.stubs` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from keras_vit.config import Block, DenseHead, LearnedTokens, Pool, Rope, Stem, Task
from keras_vit.images.class_names import ClassNames, Thresholds
from keras_vit.images.protocols import ProtocolSpec

Family: TypeAlias = Literal["keras_vit", "google", "google_linen", "big_vision", "big_vision_scan", "timm", "timm/eva", "timm/naflex", "transformers", "transformers/deit", "transformers/vit_mae", "transformers/vit_msn", "transformers/ijepa", "transformers/dpt", "transformers/flava_image_model", "transformers/beit", "transformers/data2vec-vision", "transformers/dinov2", "transformers/dinov2_with_registers", "transformers/tipsv2_vision_model", "transformers/pixio", "transformers/dinov3_vit", "transformers/clip", "transformers/altclip_vision_model", "transformers/chinese_clip_vision_model", "transformers/clipseg_vision_model", "transformers/git_vision_model", "transformers/kosmos_2_vision_model", "transformers/metaclip_2_vision_model", "transformers/metaclip_2_classifier", "transformers/owlvit_vision_model", "transformers/owlv2_vision_model", "transformers/siglip", "transformers/idefics3_vision", "transformers/smolvlm_vision", "transformers/siglip2", "transformers/aimv2_vision_model", "transformers/blip_vision_model", "transformers/blip_2_vision_model", "transformers/instructblip_vision_model", "transformers/internvl_vision", "transformers/radio", "transformers/dpt_depth", "transformers/dpt_segmentation", "transformers/depth_anything", "transformers/dpt_dinov2", "keras_hub", "keras_hub/deit", "keras_hub/clip", "keras_hub/siglip", "keras_hub/dinov2", "keras_hub/dinov3", "torchvision", "facebook", "open_clip"]
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


class LearnedTokensFields(TypedDict, total=False):
    class_tokens: int
    distillation: bool
    registers: int
    mask: bool


class RopeFields(TypedDict, total=False):
    form: Literal["dinov3", "axial", "axial_xy", "axial_xy_from_1", "mixed", "mixed_xy"]
    theta: float
    reference_grid: tuple[int, int] | None


class BlockFields(TypedDict, total=False):
    norm: Literal["layer", "rms"]
    epsilon: float
    activation: Literal["gelu_tanh", "gelu", "quick_gelu", "silu"]
    gated: bool
    qkv_bias: bool | tuple[bool, bool, bool]
    projection_bias: bool
    mlp_bias: bool
    qk_norm: Literal["head", "width"] | None
    sub_norm: Literal["mlp", "attention", "both"] | None
    layer_scale: float | None
    input_norm: Literal["patches", "tokens"] | None


class StemFields(TypedDict, total=False):
    kind: Literal["none", "resnet", "resnet_timm", "packed"]
    units: tuple[int, ...]
    width_factor: float


class PoolFields(TypedDict, total=False):
    kind: Literal["token", "tokens", "gap", "mean", "map", "map_of_patches", "unpooled", "token_and_mean", "token_and_distillation"]
    blocks: int
    norm: Literal["before", "after", "none"]
    num_heads: int | None
    mlp_dim: int | None


class DenseHeadFields(TypedDict, total=False):
    stages: tuple[int, ...]
    kind: Literal["linear", "dpt"]
    output: Literal["logits", "exp", "relu", "sigmoid"]
    max_depth: float
    ignore_label: int | None
    widths: tuple[int, ...]
    fusion_size: int
    depth_size: int
    readout: Literal["add", "project"] | None
    batch_norm: bool
    residual_bias: bool
    projection: bool
    doubles: bool


class Architecture(TypedDict, total=False):
    """The fields of `ViTConfig` except `image_size` and `num_classes`."""

    patch_size: int | tuple[int, int]
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    channels: int
    representation_size: int | None
    dropout_rate: float
    attention_dropout_rate: float
    stochastic_depth_rate: float
    tokens: LearnedTokens | LearnedTokensFields
    position: Literal["learned", "learned_except_registers", "learned_patches", "sincos2d", "none"]
    position_grid: tuple[int, int] | None
    position_resize: Literal["bilinear_align_corners", "bilinear_half_pixel", "bilinear_longer_side", "bilinear_antialias", "bicubic", "bicubic_catmull_rom", "bicubic_antialias"]
    rope: Rope | RopeFields | None
    relative_position_bias: Literal["block", "shared"] | None
    patch_bias: bool
    block: Block | BlockFields
    stem: Stem | StemFields
    pool: Pool | PoolFields
    head: Literal["linear", "cosine"]
    projection_size: int | None
    dense: DenseHead | DenseHeadFields | None


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
