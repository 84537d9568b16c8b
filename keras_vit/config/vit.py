"""The configuration of a Vision Transformer: sizes, parts, and the grids that follow from them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from keras_vit.config.block import Block
from keras_vit.config.dense import DenseHead
from keras_vit.config.fields import Fields, field, list_switches
from keras_vit.config.pool import TOKEN_POOLINGS, Pool
from keras_vit.config.prediction import DENSE_TASKS
from keras_vit.config.rotary import Rope
from keras_vit.config.rules import CLASSES, SHARE, choice, is_any_size, pair
from keras_vit.config.stem import Stem
from keras_vit.config.tokens import LearnedTokens
from keras_vit.errors import ConfigError, shown

ImageSize: TypeAlias = int | tuple[int | None, int | None] | None
"""Side of a square in pixels, or a pair (height, width); None for the stored size, `(None, None)`
for a model that takes images of any size."""

DEFAULT_IMAGE_SIZE = 224
"""Pretraining resolution of the paper, and initial grid of the positions of an any-size model."""

LEARNED_POSITIONS = ("learned", "learned_except_registers", "learned_patches")
POSITIONS = (*LEARNED_POSITIONS, "sincos2d", "none")
"""Kinds of absolute position embeddings, and the tokens that have one."""
POSITION_RESIZES = (
    "bilinear_align_corners",
    "bilinear_half_pixel",
    "bilinear_longer_side",
    "bilinear_antialias",
    "bicubic",
    "bicubic_catmull_rom",
    "bicubic_antialias",
)
"""Ways to resize position embeddings to another grid."""

MOST_LAYERS = 1024
"""Most Transformer blocks of a model. The deepest published ones have 1,000 (DeepNet)."""


@dataclass(frozen=True)
class ViTConfig(Fields):
    """The configuration of a Vision Transformer (Dosovitskiy et al. 2021, table 1 and section 3).

    The defaults give the paper's model; other values give other families of Vision Transformers,
    which `docs/families.md` lists. A part may be given as a dict of the fields that differ from its
    defaults.

    Args:
        patch_size: side of a patch in pixels (for a hybrid, in cells of the feature map), an int
            or a pair (rows, columns). P in the paper.
        hidden_size: width of every token. D in the paper.
        mlp_dim: width of the MLP's hidden layer; for a gated MLP, width of gate and value.
        num_heads: attention heads; must divide `hidden_size`. k in the paper.
        num_layers: Transformer blocks. L in the paper.
        image_size: pixels, an int or a pair (height, width); `(None, None)` for a model that takes
            images of any size, whose field is then None.
        channels: input channels of the images.
        num_classes: width of the head; 0 for a model that returns features; 1 also for binary
            classification, where the sigmoid of the logit is the second class's probability.
        representation_size: width of a Dense layer with tanh before the head
            (section 3.1, pretraining); None for no such layer.
        dropout_rate: dropout after the positions, the attention and both MLP layers.
        attention_dropout_rate: dropout of the attention weights.
        stochastic_depth_rate: probability of skipping a residual branch in the last
            block, growing linearly from 0 in the first (AugReg, section 3).
        tokens: the learned tokens, a `LearnedTokens`.
        position: position embeddings: `"learned"` for every token (the paper);
            `"learned_except_registers"` (DINOv2); `"learned_patches"`, for the patches only
            (big_vision); `"sincos2d"`, a fixed function without weights; or `"none"`.
        position_grid: grid (rows, columns) of the stored positions. None: the grid of
            `image_size` (of 224 pixels for an any-size model). The model resizes positions
            for images with another grid.
        position_resize: interpolation of positions to another grid: `"bilinear_align_corners"` (the
            official `scipy.ndimage.zoom` of order 1), `"bilinear_half_pixel"`,
            `"bilinear_longer_side"` (the same, to a square of the longer side, cropped to the
            grid: RADIO), `"bilinear_antialias"` (NaFlex), `"bicubic"` (transformers),
            `"bicubic_catmull_rom"` (keras-hub on JAX) or `"bicubic_antialias"` (timm).
        rope: rotary position embeddings (RoPE), a `Rope`: every block rotates queries and keys by
            the row and column of their patch (DINOv3, EVA-02), with or without `position`. None
            for no rotation.
        relative_position_bias: a learned value for each head and distance between two patches,
            added to the attention scores: `"block"`, one table per block (BEiT); `"shared"`, one
            table for all blocks; None for no such bias. It needs an `image_size`.
        patch_bias: whether the patch embedding has a bias (CLIP: False).
        block: the Transformer block, a `Block`.
        stem: the layers before the patch embedding, a `Stem`: a ResNet (section 3.1, last
            paragraph), or packed patches of images that keep their aspect ratio (NaFlex).
        pool: the pooling of tokens into the input of the head, a `Pool`.
        head: `"linear"`; or `"cosine"`, a linear layer on pre_logits of unit length, as CLIP
            compares images with texts.
        projection_size: width of a linear layer without bias after the pooling, whose
            output is the image embedding (CLIP); None for no such layer.
        dense: a `DenseHead`: the model predicts a map, `num_classes` values for every pixel of
            the image, and has no pooling; None for no such head.

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    _prefix = ""

    patch_size: tuple[int, int]
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    image_size: tuple[int, int] | None = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    channels: int = 3
    num_classes: int = field(1000, CLASSES)
    representation_size: int | None = None
    dropout_rate: float = field(0.0, SHARE)
    attention_dropout_rate: float = field(0.0, SHARE)
    stochastic_depth_rate: float = field(0.0, SHARE)
    tokens: LearnedTokens = LearnedTokens()
    position: str = field(
        "learned",
        choice(*POSITIONS),
        "a model without positions",
        plain=tuple(word for word in POSITIONS if word != "none"),
    )
    position_grid: tuple[int, int] | None = None
    position_resize: str = field("bilinear_align_corners", choice(*POSITION_RESIZES))
    rope: Rope | None = field(None, lacking="rotary positions")  # noqa: RUF009
    relative_position_bias: str | None = field(
        None, choice("block", "shared", None), lacking="a relative position bias"
    )
    patch_bias: bool = field(True, lacking="patches without a bias")
    block: Block = Block()
    stem: Stem = Stem()
    pool: Pool = Pool()
    head: str = field(
        "linear", choice("linear", "cosine"), lacking={"cosine": "pre_logits of unit length"}
    )
    projection_size: int | None = field(None, lacking="a projection after the pooling")
    dense: DenseHead | None = field(None, lacking="a segmentation or depth head")  # noqa: RUF009

    def __post_init__(self) -> None:
        self._set("patch_size", pair("patch_size", self.patch_size))
        if is_any_size(self.image_size):
            self._set("image_size", None)
        for name in ("image_size", "position_grid"):
            value = getattr(self, name)
            if value is not None:
                self._set(name, pair(name, value))
        self._read_parts()
        self._normalise()
        self._validate()
        if self.image_size is not None:
            self.compute_grid(self.image_size)
        elif self.position_grid is None:
            self.compute_grid((DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))

    def _normalise(self) -> None:
        """Replaces equivalent configurations of one network by a single form, with four rules."""
        tokens, pool = self.tokens, self.pool
        # 1. A position that mentions tokens the model lacks becomes the one without them.
        if not self.num_prefix_tokens:
            plain = {"learned_patches": "learned", "learned_except_registers": "learned"}
            self._set("position", plain.get(self.position, self.position))
            kinds = {"mean": "gap", "map_of_patches": "map"}
            self._set("pool", pool.replace(kind=kinds.get(pool.kind, pool.kind)))
        elif self.position == "learned_except_registers":
            if tokens.num_before_registers == tokens.num_before_patches:
                self._set("position", "learned")
            elif not tokens.num_before_registers:
                self._set("position", "learned_patches")
        if pool.kind == "tokens" and tokens.class_tokens == 1:
            self._set("pool", pool.replace(kind="token"))
        # 2. A model without positions has no position grid.
        if self.position == "none":
            self._set("position_grid", None)
        # 3. Sizes of attention pooling that equal those of the blocks become None.
        for name, of_blocks in (("num_heads", self.num_heads), ("mlp_dim", self.mlp_dim)):
            if getattr(pool, name) == of_blocks and pool.is_map:
                self._set("pool", self.pool.replace(**{name: None}))
        # 4. A dense head reads tokens, each after the last norm, instead of a pooled vector.
        if not self.num_classes:
            self._set("dense", None)
        if self.dense is not None:
            norm = "before" if pool.norm == "before" else "none"
            self._set("pool", Pool(kind="unpooled", norm=norm))

    def _faults(self) -> Iterator[str]:
        width, tokens, pool = self.hidden_size, self.tokens, self.pool
        if self.num_layers > MOST_LAYERS:
            blocks = shown(self.num_layers)
            yield f"num_layers={blocks} is more than {MOST_LAYERS}, the most that keras_vit builds."
        for name, heads in (("num_heads", self.num_heads), ("pool.num_heads", pool.num_heads)):
            if heads is not None and width % heads:
                yield f"hidden_size={shown(width)} is not divisible by {name}={shown(heads)}."
        if self.position == "sincos2d" and (width % 4 or width < 8):
            yield (
                "position='sincos2d' needs a hidden_size that is a multiple of 4 and at least 8, "
                f"found {shown(width)}."
            )
        if tokens.distillation and tokens.class_tokens != 1:
            yield "tokens.distillation=True needs one class token."
        if self.rope is not None and self.head_dim % 4:
            yield (
                "rope needs heads of a multiple of 4 channels; hidden_size / num_heads is "
                f"{shown(self.head_dim)}."
            )
        resize = self.position_resize == "bilinear_longer_side"
        others = (self.rope, self.relative_position_bias, resize, self.position == "sincos2d")
        if self.stem.is_packed and any(others):
            yield (
                "stem.kind='packed' supports learned positions or none; it excludes rope, "
                "relative_position_bias, position='sincos2d' and position_resize="
                "'bilinear_longer_side'."
            )
        yield from self._find_head_faults()

    def _find_head_faults(self) -> Iterator[str]:
        tokens, pool = self.tokens, self.pool
        if pool.kind in TOKEN_POOLINGS and not tokens.class_tokens:
            yield f"pool.kind={pool.kind!r} needs a class token, found tokens.class_tokens=0."
        if pool.kind == "token_and_distillation" and not tokens.distillation:
            yield f"pool.kind={pool.kind!r} needs tokens.distillation=True."
        if pool.norm == "after" and not pool.is_mean:
            yield f"pool.norm='after' needs pool.kind='gap' or 'mean', found {pool.kind!r}."
        if not pool.is_map and (pool.num_heads or pool.mlp_dim):
            yield f"pool.num_heads and pool.mlp_dim need pool.kind='map', found {pool.kind!r}."
        is_mean_of_one = pool.kind == "token_and_mean" and tokens.class_tokens == 1
        if pool.blocks > 1 and (not is_mean_of_one or pool.blocks > self.num_layers):
            yield (
                f"pool.blocks={shown(pool.blocks)} needs pool.kind='token_and_mean', one class "
                f"token and at least as many blocks, found pool.kind={pool.kind!r}, "
                f"{tokens.class_tokens} class tokens and {self.num_layers} blocks."
            )
        layers = self.representation_size, self.projection_size
        if self.dense is not None:
            if self.dense.stages[-1] != self.num_layers - 1:
                yield (
                    f"dense.stages={self.dense.stages} must end with the last block, "
                    f"{self.num_layers - 1}."
                )
            if (self.num_classes > 1) is not self.dense.is_segmentation:
                words = "2 or more classes" if self.dense.is_segmentation else "one output"
                yield f"{self.dense_task} needs {words}, found {shown(self.num_classes)}."
            if self.dense.readout and not tokens.class_tokens:
                yield f"dense.readout={self.dense.readout!r} needs a class token."
            if self.stem.is_packed or layers != (None, None) or self.head != "linear":
                yield (
                    "dense excludes stem.kind='packed', representation_size, projection_size and "
                    "head='cosine'."
                )
        if pool.kind in ("token_and_mean", "token_and_distillation") and layers != (None, None):
            yield f"pool.kind={pool.kind!r} excludes representation_size and projection_size."
        if None not in layers:
            yield "representation_size={} and projection_size={} exclude each other.".format(
                *map(shown, layers)
            )

    def compute_feature_map(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of the patch embedding's input for an image."""
        height, width = image_size
        for _ in range(self.stem.halvings):
            height, width = -(-height // 2), -(-width // 2)
        return height, width

    def compute_grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the grid of patches (rows, columns) of an image of `(height, width)` pixels.

        Raises:
            ConfigError: the image is smaller than one patch.
        """
        (height, width), (rows, columns) = self.compute_feature_map(image_size), self.patch_size
        if height < rows or width < columns:
            after = " after the stem" if self.stem.is_resnet else ""
            raise ConfigError(
                f"patch_size={self.patch_size}{after} is larger than an image of {image_size} "
                "pixels."
            )
        return height // rows, width // columns

    def compute_remainder(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns how many rows and columns of the image, or feature map, fill no patch."""
        (height, width), (rows, columns) = self.compute_feature_map(image_size), self.patch_size
        return height % rows, width % columns

    @property
    def drops_pixels(self) -> bool:
        """Whether pixels at the right or bottom of an image of `image_size` are cropped.

        They fill no patch; the VALID convolution of the reference drops them too.
        """
        return self.image_size is not None and any(self.compute_remainder(self.image_size))

    @property
    def grid(self) -> tuple[int, int] | None:
        """Patch grid (rows, columns) of `image_size`; None for an any-size model."""
        return None if self.image_size is None else self.compute_grid(self.image_size)

    @property
    def source_grid(self) -> tuple[int, int]:
        """Patch grid (rows, columns) of the stored position embeddings."""
        if self.position_grid is not None:
            return self.position_grid
        return self.compute_grid(self.image_size or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))

    @property
    def stride(self) -> tuple[int, int]:
        """Pixels per patch: `patch_size` times the downscaling of the stem."""
        factor = 2**self.stem.halvings
        return self.patch_size[0] * factor, self.patch_size[1] * factor

    @property
    def packed_shape(self) -> tuple[int, int]:
        """Shape of one packed image, (patches, values per patch), of a model with a packed stem."""
        return math.prod(self.grid or (0,)), math.prod(self.patch_size) * self.channels + 2

    def demand_prediction(self, what: str) -> None:
        """Refuses models whose output is not one prediction per image.

        Args:
            what: subject of the message, such as `"classify"`.

        Raises:
            ConfigError: the model has no head, or one output per token.
        """
        self.refuse_map(what)
        if not self.has_one_prediction:
            raise ConfigError(
                f"{what} needs one prediction per image; this model has "
                f"num_classes={self.num_classes} and pool.kind={self.pool.kind!r}. "
                "embed writes its features; probe trains a head on them."
            )

    def refuse_map(self, what: str) -> None:
        """Refuses dense heads where one prediction per image is needed.

        Args:
            what: subject of the message, such as `"finetune"`.

        Raises:
            ConfigError: the model predicts a map.
        """
        if self.dense is not None:
            raise ConfigError(
                f"{what} needs one output per image; this model predicts a map "
                f"({self.dense.task}): model.predict(model.preprocessor(images)) returns it."
            )

    def refuse_packed(self, what: str) -> None:
        """Refuses packed patches where images of one size are needed.

        Args:
            what: subject of the message, such as `"An export"`.

        Raises:
            ConfigError: the model has a packed stem.
        """
        if self.stem.is_packed:
            raise ConfigError(
                f'{what} needs images of one size; from_preset(..., stem={{"kind": "none"}}) loads '
                f"the weights for images of {self.image_size} pixels."
            )

    @property
    def dense_task(self) -> Any:
        """The task of the dense head, or None without a dense head."""
        return self.dense and self.dense.task

    def choose_task(self, task: Any) -> Any:
        """Returns the task of the model's dense head if it has one, or else the caller's task.

        Raises:
            ConfigError: the caller's task does not fit the head.
        """
        own = self.dense_task
        if task not in (own, "single_label") and (own or task in DENSE_TASKS):
            raise ConfigError(
                f"task={task!r} does not fit the head, whose task is {own or 'single_label'!r}. "
                "model.with_dense_head(...) makes a model for segmentation or depth; num_classes= "
                "makes a classifier."
            )
        return own or task

    @property
    def is_pooled(self) -> bool:
        """Whether the head reads one vector per image; False where it reads every token."""
        return self.pool.kind != "unpooled"

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings into one vector that the tokens of this model allow."""
        return ("token", "gap", "token_and_mean") if self.tokens.class_tokens else ("gap",)

    @property
    def has_one_prediction(self) -> bool:
        """Whether the model returns one row of outputs per image."""
        return self.is_pooled and self.num_classes > 0

    @property
    def has_learned_positions(self) -> bool:
        """Whether position embeddings are a weight."""
        return self.position in LEARNED_POSITIONS

    @property
    def num_positions(self) -> int:
        """Rows of the stored position embeddings."""
        rows, columns = self.source_grid
        return rows * columns + self.num_prefix_positions

    @property
    def table_grid(self) -> tuple[int, int]:
        """Patch grid (rows, columns) of the relative position bias."""
        return self.grid or self.source_grid

    @property
    def num_distances(self) -> int:
        """Rows of a table of relative position biases, see `layers.RelativePositionBias`."""
        rows, columns = self.table_grid
        return (2 * rows - 1) * (2 * columns - 1) + (3 if self.num_prefix_tokens else 0)

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patches, see `LearnedTokens`."""
        return self.tokens.num_before_patches

    @property
    def num_prefix_positions(self) -> int:
        """Number of position embeddings that belong to tokens before the patches."""
        if self.position == "learned_patches":
            return 0
        if self.position == "learned_except_registers":
            return self.tokens.num_before_registers
        return self.num_prefix_tokens

    @property
    def head_dim(self) -> int:
        """Channels of an attention head."""
        return self.hidden_size // self.num_heads

    @property
    def has_two_heads(self) -> bool:
        """Whether a second head classifies the distillation token."""
        return self.pool.kind == "token_and_distillation"

    @property
    def pooled_size(self) -> int:
        """Width of the pooled vector."""
        vectors = {"tokens": self.tokens.class_tokens, "token_and_mean": self.pool.blocks + 1}
        return self.hidden_size * vectors.get(self.pool.kind, 1)

    @property
    def num_tokens(self) -> int | None:
        """Tokens in the encoder; None for an any-size model."""
        if self.grid is None:
            return None
        return self.grid[0] * self.grid[1] + self.num_prefix_tokens


SWITCHES = list_switches(ViTConfig)
"""The features that families add to the paper's model, by path of the field, or `"path=value"`.

A family lists the switches that its library supports. When a model is written, features that the
library lacks are refused.
"""
