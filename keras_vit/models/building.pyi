"""The arguments that every way to a model shares, for type checkers and editors.

`VisionTransformer` documents and checks them; builders and `from_preset` pass them on to it. The
fields of `Architecture` and the names of `Family` are in the stub `building.pyi`, which
`python -m weights.stubs` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from keras_vit.config import Numerics, ResNetStem, Rope
from keras_vit.images.class_names import ClassNames, Thresholds
from keras_vit.images.protocols import ProtocolSpec

Family: TypeAlias = Literal["keras_vit", "google", "google_linen", "big_vision", "big_vision_scan", "timm", "timm/eva", "timm/naflex", "transformers", "transformers/deit", "transformers/vit_mae", "transformers/vit_msn", "transformers/ijepa", "transformers/dpt", "transformers/flava_image_model", "transformers/beit", "transformers/data2vec-vision", "transformers/dinov2", "transformers/dinov2_with_registers", "transformers/dinov3_vit", "transformers/clip_vision_model", "transformers/clip_vision_model_with_projection", "transformers/clip_classifier", "transformers/clip", "transformers/siglip_vision_model", "transformers/siglip_encoder", "transformers/siglip_classifier", "transformers/siglip", "transformers/siglip2_vision_model", "transformers/siglip2_encoder", "transformers/siglip2_classifier", "transformers/siglip2", "transformers/aimv2_vision_model", "transformers/blip_vision_model", "transformers/blip_2_vision_model", "transformers/instructblip_vision_model", "transformers/altclip_vision_model", "transformers/chinese_clip_vision_model", "transformers/clipseg_vision_model", "transformers/git_vision_model", "transformers/kosmos_2_vision_model", "transformers/metaclip_2_vision_model", "transformers/metaclip_2_classifier", "transformers/owlvit_vision_model", "transformers/owlv2_vision_model", "transformers/idefics3_vision", "transformers/smolvlm_vision", "transformers/internvl_vision", "transformers/pixio", "transformers/radio", "transformers/tipsv2_vision_model", "keras_hub", "keras_hub/deit", "keras_hub/dinov2", "keras_hub/dinov3", "keras_hub/clip_vision", "keras_hub/clip_backbone", "keras_hub/siglip_vision", "keras_hub/siglip_backbone", "torchvision", "facebook", "open_clip", "open_clip/timm_trunk", "open_clip/timm_eva_trunk"]
"""The name of a format of checkpoints."""


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
    pooling: Literal["token", "gap", "map", "unpooled", "token_unpooled", "token_and_mean", "token_and_distillation"]
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
    position: Literal["learned", "sincos2d", "none"]
    position_before_class: bool
    position_before_registers: bool
    position_grid: tuple[int, int] | None
    rope: Rope | Mapping[str, Any] | None
    relative_position_bias: Literal["block", "shared"] | None
    patch_bias: bool
    patch_norm: bool
    pre_norm: bool
    norm: Literal["layer", "rms"]
    final_norm: bool
    qkv_bias: bool | tuple[bool, bool, bool]
    projection_bias: bool
    mlp_bias: bool
    mlp: Literal["plain", "gated"]
    qk_norm: Literal["head", "width"] | None
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
    classifier_activation: Literal["softmax", "sigmoid"] | None
    task: Literal["single_label", "multi_label", "regression"]
    rescale: bool
    numerics: Numerics | Mapping[str, Any]


class Arguments(Building, Architecture, total=False):
    """Arguments of builders beside `image_size` and `num_classes`."""


class Reading(Arguments, total=False):
    """Arguments of `from_preset`, with those on how to read files."""

    family: Family
    variant: str
    prefix: str
    ignore: str | Sequence[str]
    weights: str
    timm: str | Mapping[str, Any]
    checksum: bool
    allow_pickle_weights: bool
