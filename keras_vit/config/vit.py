"""A Vision Transformer: its sizes, its parts, and the grids that follow from them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.config.numerics import Numerics
from keras_vit.config.rules import (
    Rule,
    choice,
    each,
    enforce,
    is_bool,
    is_int,
    is_number,
    is_positive_int,
    is_share,
    known_fields,
    pair,
)
from keras_vit.config.stem import ResNetStem
from keras_vit.errors import ConfigError, shown

CLASSIFIERS = ("token", "gap", "map", "unpooled", "token_unpooled")
POSITIONS = ("learned", "sincos2d")
TOKEN_CLASSIFIERS = ("token", "token_unpooled")
"""Classifiers that have a class token by their name."""
UNPOOLED_CLASSIFIERS = ("unpooled", "token_unpooled")

DEFAULT_IMAGE_SIZE = 224
"""Pretraining resolution of the paper; the positions of an any-size model start there."""

MOST_LAYERS = 1024
"""Transformer blocks of a model. The deepest published Transformers have 1,000 (DeepNet)."""

_SIZES = "hidden_size mlp_dim num_heads num_layers channels"
_RATES = "dropout_rate attention_dropout_rate stochastic_depth_rate"
_SWITCHES = "position_before_class crop_remainder class_token_in_mean qkv_bias"

RULES: tuple[Rule, ...] = (
    *each(_SIZES, is_positive_int, "a positive int"),
    Rule(
        "num_layers",
        lambda blocks: blocks <= MOST_LAYERS,
        f"num_layers={{num_layers}} is more than {MOST_LAYERS}, the most that keras_vit builds.",
    ),
    *each(
        "representation_size", lambda v: v is None or is_positive_int(v), "a positive int or None"
    ),
    *each("num_classes", lambda v: is_int(v) and v >= 0, "an int, 0 for features alone"),
    Rule(
        "hidden_size num_heads",
        lambda width, heads: width % heads == 0,
        "hidden_size={hidden_size} is not divisible by num_heads={num_heads}.",
    ),
    choice("classifier", CLASSIFIERS),
    choice("position", POSITIONS),
    Rule(
        "position hidden_size",
        lambda kind, width: kind != "sincos2d" or (width % 4 == 0 and width >= 8),
        "position='sincos2d' needs a hidden_size that is a multiple of 4 and at least 8, "
        "found {hidden_size}.",
    ),
    *each(_RATES, is_share, "a number in [0, 1)"),
    *each("head_bias_init", is_number, "a number"),
    *each(_SWITCHES, is_bool, "a bool"),
    *each("class_token", lambda v: v is None or is_bool(v), "a bool or None"),
    Rule(
        "classifier class_token",
        lambda kind, token: not (kind in TOKEN_CLASSIFIERS and token is False),
        "classifier={classifier} needs class_token=True or None.",
    ),
    Rule(
        "class_token_in_mean classifier has_class_token",
        lambda pooled, kind, token: not pooled or (kind == "gap" and token),
        "class_token_in_mean=True needs classifier='gap' and a class token.",
    ),
    Rule(
        "numerics classifier",
        lambda numerics, kind: not numerics.pool_before_norm or kind == "gap",
        "numerics.pool_before_norm=True needs classifier='gap'.",
    ),
)
"""What every model must fulfil. A new field has its row here, and its default in `ViTConfig`."""


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """A Vision Transformer of Dosovitskiy et al. (2021), table 1 and section 3.

    Args:
        patch_size: side of a patch in pixels (in cells of the feature map for a
            hybrid), an int or a pair (rows, columns). P in the paper.
        hidden_size: width of every token. D in the paper.
        mlp_dim: width of the MLP's hidden layer.
        num_heads: attention heads; must divide `hidden_size`. k in the paper.
        num_layers: Transformer blocks. L in the paper.
        image_size: pixels, an int, a pair (height, width), or None for a model
            that takes any size per call.
        channels: input channels of the images.
        num_classes: width of the head; 0 for a model that returns features.
        classifier: what the head reads. `"token"`: the class token; `"gap"`: the
            mean of all tokens; `"map"`: multi-head attention pooling;
            `"unpooled"`: every token; `"token_unpooled"`: every token, with a
            class token among them.
        class_token: whether a class token stands in front of the patches; None:
            where `classifier` has one by its name. A mean or an attention pooling
            may have one too (timm, keras-hub).
        class_token_in_mean: whether `"gap"` averages the class token as well
            (keras-hub) or the patches alone (timm).
        qkv_bias: whether the projections to query, key and value have biases.
        representation_size: width of a Dense layer with tanh before the head
            (section 3.1, pretraining), or None.
        dropout_rate: after the positions, the attention and both MLP layers.
        attention_dropout_rate: on the attention weights.
        stochastic_depth_rate: chance to skip a residual branch in the last
            block, growing linearly from 0 in the first (AugReg, section 3).
        position: `"learned"`, or the fixed `"sincos2d"`, which stores no weight.
        position_before_class: whether positions are added before the class token
            joins (big_vision) or after, so that it has one too (the paper).
        position_grid: grid (rows, columns) that the stored positions belong to.
            None: that of `image_size` (of 224 pixels for an any-size model).
            Another grid is resized in the graph.
        resnet: a `ResNetStem` for a hybrid (section 3.1, last paragraph).
        crop_remainder: drop the pixels right and below that fill no patch, as
            the reference's VALID convolution does, instead of refusing them.
        head_bias_init: initial bias of the head (-10 in big_vision's pretraining).
        numerics: the arithmetic that belongs to the weights.

    Raises:
        ConfigError: names the field, what was found and what was expected.
    """

    patch_size: tuple[int, int]
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    image_size: tuple[int, int] | None = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    channels: int = 3
    num_classes: int = 1000
    classifier: str = "token"
    class_token: bool | None = None
    class_token_in_mean: bool = False
    qkv_bias: bool = True
    representation_size: int | None = None
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    position: str = "learned"
    position_before_class: bool = False
    position_grid: tuple[int, int] | None = None
    resnet: ResNetStem | None = None
    crop_remainder: bool = False
    head_bias_init: float = 0.0
    numerics: Numerics = dataclasses.field(default_factory=Numerics)

    def __post_init__(self) -> None:
        self._normalise()
        self._validate()

    def _normalise(self) -> None:
        """Turns ints into pairs, dicts into their dataclasses, and synonyms into one spelling."""
        object.__setattr__(self, "patch_size", pair("patch_size", self.patch_size))
        for field in ("image_size", "position_grid"):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, pair(field, value))
        for field, kind in (("resnet", ResNetStem), ("numerics", Numerics)):
            value = getattr(self, field)
            if isinstance(value, Mapping):
                object.__setattr__(self, field, kind.from_dict(value))
            elif not isinstance(value, kind) and not (field == "resnet" and value is None):
                raise ConfigError(
                    f"{field} must be a {kind.__name__} or a dict of its fields, "
                    f"found {shown(value)}."
                )

        if self.class_token == (self.classifier in TOKEN_CLASSIFIERS):
            object.__setattr__(self, "class_token", None)  # the classifier's name says as much

        if not self.has_class_token or self.position == "sincos2d":
            object.__setattr__(self, "position_before_class", False)  # makes no difference

    def _validate(self) -> None:
        enforce(self, RULES)
        for field in _RATES.split():
            object.__setattr__(self, field, float(getattr(self, field)))
        if self.image_size is not None:
            self._validate_image(self.image_size)
        elif self.position_grid is None:
            self.grid_of((DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))

    def _validate_image(self, image_size: tuple[int, int]) -> None:
        self.grid_of(image_size)
        rest = self.remainder_of(image_size)
        if any(rest) and not self.crop_remainder:
            what = "the stem's feature map" if self.resnet else "the image"
            raise ConfigError(
                f"image_size={image_size} is not divisible by patch_size={self.patch_size}: "
                f"{rest[0]} rows and {rest[1]} columns of {what} would fill no patch. "
                "Choose another image_size, or crop_remainder=True to drop them as the "
                "reference does."
            )

    def feature_map_of(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns that the patch embedding sees for an image."""
        height, width = image_size
        for _ in range(self.resnet.halvings if self.resnet else 0):
            height, width = -(-height // 2), -(-width // 2)
        return height, width

    def grid_of(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Patches per column and row of an image of `(height, width)` pixels.

        Raises:
            ConfigError: the image is smaller than one patch.
        """
        rows, columns = (
            side // patch
            for side, patch in zip(self.feature_map_of(image_size), self.patch_size, strict=True)
        )
        if rows == 0 or columns == 0:
            raise ConfigError(
                f"patch_size={self.patch_size}{' behind the stem' if self.resnet else ''} is "
                f"larger than an image of {image_size} pixels."
            )
        return rows, columns

    def remainder_of(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of the image, or feature map, that fill no patch."""
        rows, columns = (
            side % patch
            for side, patch in zip(self.feature_map_of(image_size), self.patch_size, strict=True)
        )
        return rows, columns

    @property
    def grid(self) -> tuple[int, int] | None:
        """Patch grid (rows, columns) of `image_size`; None for an any-size model."""
        return None if self.image_size is None else self.grid_of(self.image_size)

    @property
    def source_grid(self) -> tuple[int, int]:
        """Patch grid (rows, columns) that the position embeddings are stored for."""
        if self.position_grid is not None:
            return self.position_grid
        return self.grid_of(self.image_size or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))

    @property
    def stride(self) -> tuple[int, int]:
        """Pixels per patch: `patch_size`, times the downscaling of the stem."""
        factor = 2**self.resnet.halvings if self.resnet else 1
        return self.patch_size[0] * factor, self.patch_size[1] * factor

    @property
    def has_class_token(self) -> bool:
        """Whether a learned class token stands in front of the patches."""
        if self.class_token is not None:
            return self.class_token
        return self.classifier in TOKEN_CLASSIFIERS

    @property
    def is_pooled(self) -> bool:
        """Whether the head reads one vector per image; False where it reads every token."""
        return self.classifier not in UNPOOLED_CLASSIFIERS

    @property
    def has_one_prediction(self) -> bool:
        """Whether the model returns one row of logits per image."""
        return self.is_pooled and self.num_classes > 0

    @property
    def has_class_position(self) -> bool:
        """Whether the first position embedding belongs to the class token."""
        return self.has_class_token and not self.position_before_class

    @property
    def num_positions(self) -> int:
        """Rows of the stored position embeddings."""
        rows, columns = self.source_grid
        return rows * columns + self.has_class_position

    @property
    def num_tokens(self) -> int | None:
        """Tokens in the encoder; None for an any-size model."""
        if self.grid is None:
            return None
        return self.grid[0] * self.grid[1] + self.has_class_token

    def replace(self, **fields: Any) -> "ViTConfig":
        """Returns a copy with other fields. Raises `ConfigError` on an unknown one."""
        return dataclasses.replace(self, **known_fields(type(self), fields))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain JSON types; `from_dict` is its inverse."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in values.items():
            if isinstance(value, (ResNetStem, Numerics)):
                values[name] = value.to_dict()
            elif isinstance(value, tuple):
                values[name] = list(value)
        return values

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ViTConfig":
        """Builds from `to_dict()`'s output.

        Raises:
            ConfigError: a field is unknown, missing or cannot be.
        """
        known = known_fields(cls, fields)
        required = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is f.default_factory is dataclasses.MISSING
        ]
        if absent := [name for name in required if name not in known]:
            raise ConfigError(f"A ViTConfig needs {', '.join(absent)}.")
        return cls(**known)
