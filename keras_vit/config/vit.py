"""A Vision Transformer: its sizes, its parts, and the grids that follow from them."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from keras_vit.config.fields import Fields, field, known_fields, list_switches
from keras_vit.config.numerics import Numerics
from keras_vit.config.rope import Rope
from keras_vit.config.rules import SHARE, choice, is_any_size, pair
from keras_vit.config.stem import ResNetStem
from keras_vit.config.vit_rules import (
    ACTIVATIONS,
    BIASES,
    CLASS_TOKENS,
    CLASSES,
    COUNT_OR_0,
    FAMILY_POOLINGS,
    MLPS,
    NORMS,
    POOLINGS,
    POSITIONS,
    QK_NORMS,
    REGISTERS,
    STAGE_POOLINGS,
    TASKS,
    TOKEN_POOLINGS,
    UNPOOLED_POOLINGS,
    Task,
    find_faults,
)
from keras_vit.errors import ConfigError, shown

ImageSize: TypeAlias = int | tuple[int | None, int | None] | None
"""Pixels of a square, or a pair (height, width); None for the size that is stored, `(None, None)`
for a model that takes any size per call."""

DEFAULT_IMAGE_SIZE = 224
"""Pretraining resolution of the paper; the positions of an any-size model start there."""


PARTS: dict[str, Any] = {"resnet": ResNetStem, "rope": Rope, "numerics": Numerics}
"""Fields that are dataclasses themselves."""


@dataclasses.dataclass(frozen=True)
class ViTConfig(Fields):
    """A Vision Transformer of Dosovitskiy et al. (2021), table 1 and section 3.

    The defaults are the paper's model. The other values serve other families of Vision
    Transformers; `docs/families.md` lists the values of each family.

    Args:
        patch_size: side of a patch in pixels (in cells of the feature map for a
            hybrid), an int or a pair (rows, columns). P in the paper.
        hidden_size: width of every token. D in the paper.
        mlp_dim: width of the MLP's hidden layer; of the gate and of the value if `mlp` is gated.
        num_heads: attention heads; must divide `hidden_size`. k in the paper.
        num_layers: Transformer blocks. L in the paper.
        image_size: pixels, an int or a pair (height, width); `(None, None)` for a model that takes
            any size per call, of which the field is None.
        native_aspect: whether images keep their aspect ratio (NaFlex: SigLIP 2, NaFlexViT). Each is
            resized to at most as many patches as one of `image_size` has, and a batch is an array
            of packed patches, see `keras_vit.images.packing`.
        channels: input channels of the images.
        num_classes: width of the head; 0 for a model that returns features; 1 also for two classes,
            where the sigmoid of the logit is the probability of the second class (`task`).
        pooling: the input of the head. `"token"`: the class token; `"gap"`: the
            mean of the patches; `"map"`: multi-head attention pooling;
            `"unpooled"`: every token; `"token_unpooled"`: every token, including a
            class token; `"token_and_mean"`: the class token and, behind it, the mean of
            the patches, `2 * hidden_size` numbers (DINOv2), or more by
            `class_token_blocks`; `"token_and_distillation"`: a head each for the class
            token and the distillation token, whose logits are averaged (DeiT).
        class_token: whether a class token stands in front of the patches. None: True for
            the poolings with `token` in their names. `"gap"` and `"map"` may have a
            class token too (timm, keras-hub).
        num_class_tokens: number of class tokens, if there are any. The poolings that read the class
            token read the mean of several (Pixio).
        joined_class_tokens: number of the first class tokens that `"token"` gives beside each
            other, `joined_class_tokens * hidden_size` numbers, in place of the mean of all (RADIO);
            0 for the mean.
        distillation_token: whether a second learned token stands behind the class
            token (DeiT); `"token_and_distillation"` implies it.
        num_registers: number of learned tokens in front of the patches, behind the class
            and distillation tokens (DINOv2, DINOv3).
        mask_token: whether the weights include the token that stood for hidden patches in
            pretraining. Inference does not read it (DINOv2, DINOv3).
        class_token_blocks: number of last blocks, each behind the last norm, whose class tokens
            `"token_and_mean"` reads, from the earliest to the last; the mean is the last block's
            (4 in DINOv2's larger linear classifiers).
        class_token_in_mean: whether `"gap"` averages the tokens before the patches as
            well (keras-hub) or the patches alone (timm).
        prefix_in_map: whether `"map"` attends to the tokens before the patches as well
            (the Perception Encoder) or to the patches alone (SBB).
        map_num_heads: heads of `"map"`; None: `num_heads`.
        map_mlp_dim: width of the hidden layer in the MLP of `"map"`; None: `mlp_dim`.
        representation_size: width of a Dense layer with tanh before the head
            (section 3.1, pretraining); None: no such layer.
        projection_dim: width of a linear layer without bias behind the pooling, whose
            output is the image embedding (CLIP); None: no such layer.
        position: `"learned"`; the fixed `"sincos2d"`, which stores no weight; or `"none"`.
        position_before_class: True: positions are added before the other tokens join the
            patches, so that only patches have a position (big_vision). False: afterwards,
            so that every token has a position (the paper).
        position_before_registers: True: positions are added before the registers join, so
            that class and distillation token have a position and registers do not (DINOv2).
            False: afterwards (timm).
        position_grid: grid (rows, columns) of the stored positions. None: the grid of
            `image_size` (of 224 pixels for an any-size model). The graph resizes positions
            for images with another grid.
        rope: a `Rope`: every block rotates queries and keys of patches by row and column
            (DINOv3, EVA-02), beside `position` or instead of it. None: no rotation.
        relative_position_bias: a learned number for each head and distance between two patches,
            added to the scores of attention: `"block"`, each block has a table of its own (BEiT);
            `"shared"`, one table serves all blocks; None, no such table. It needs an `image_size`.
        patch_bias: whether the projection of patches has a bias (CLIP: False).
        patch_norm: whether a norm follows the projection of patches (AIMv2).
        pre_norm: whether a norm precedes the first block (CLIP).
        norm: every norm of the model: `"layer"`, LayerNorm, or `"rms"`, RMSNorm, which
            neither centres nor has a bias (AIMv2).
        final_norm: whether a norm follows the last block.
        qkv_bias: whether the projections to query, key and value have biases; a triple
            of bools if they differ (EVA-02 and DINOv3 lack the bias of the key).
        projection_bias: whether the projection of the concatenated heads has a bias.
        mlp_bias: whether the products of the MLP have biases.
        mlp: `"plain"`: `W_1 gelu(W_0 x)`; `"gated"`: `W_1 (gate(W_g x) * W_0 x)` (DINOv2-g,
            DINOv3, EVA-02).
        qk_norm: a norm of queries and of keys, before any rotation: `"head"` norms each head of
            them by weights that the heads share (`qk_norm` of timm); `"width"` norms all heads
            together (InternVL 6B); None, no such norm.
        sub_norm_attention: whether a norm precedes the projection of the heads (BEiT-3).
        sub_norm_mlp: whether a norm precedes the MLP's last product (BEiT-3, EVA-02).
        layer_scale: whether a learned number per channel multiplies the output of each
            residual branch (DeiT-III, DINOv2, DINOv3).
        layer_scale_init: initial value of these numbers.
        dropout_rate: dropout after the positions, the attention and both MLP layers.
        attention_dropout_rate: dropout of the attention weights.
        stochastic_depth_rate: chance to skip a residual branch in the last
            block, growing linearly from 0 in the first (AugReg, section 3).
        resnet: a `ResNetStem` for a hybrid (section 3.1, last paragraph).
        unit_pre_logits: whether the pre_logits are scaled to length 1 in front of the head, as
            CLIP and SigLIP compare images with words.
        head_bias_init: initial bias of the head (-10 in big_vision's pretraining).
        classifier_activation: `"softmax"` or `"sigmoid"` for a model that returns probabilities;
            None for logits.
        task: `"single_label"`, one class per image, of two classes with `num_classes=1`;
            `"multi_label"`, any number of classes, each with the sigmoid of its logit as
            probability; `"regression"`, numbers such as an age. A `classifier_activation` of
            `"sigmoid"` and several classes imply `"multi_label"`.
        rescale: True: the model takes pixels in [0, 255], and its first layer brings them to
            the range of its protocol. False: the model takes images in that range.
        numerics: the arithmetic that belongs to the weights.

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    patch_size: tuple[int, int]
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    image_size: tuple[int, int] | None = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    native_aspect: bool = field(False, lacking="packed patches of images of any shape")
    channels: int = 3
    num_classes: int = field(1000, CLASSES)
    pooling: str = field(
        "token",
        choice(*POOLINGS, *FAMILY_POOLINGS),
        lacking={
            "token_and_mean": "a head that reads class token and mean",
            "token_and_distillation": "a distillation head",
        },
    )
    class_token: bool | None = None
    num_class_tokens: int = field(1, CLASS_TOKENS, lacking="several class tokens")
    joined_class_tokens: int = field(0, COUNT_OR_0, lacking="class tokens beside each other")
    distillation_token: bool = field(False, lacking="a distillation token")
    num_registers: int = field(0, REGISTERS, lacking="register tokens")
    mask_token: bool = field(False, lacking="a mask token")
    class_token_blocks: int = field(1, lacking="a head that reads class tokens of several blocks")
    class_token_in_mean: bool = False
    prefix_in_map: bool = field(True, lacking="attention pooling of the patches alone")
    map_num_heads: int | None = field(None, lacking="another number of heads in attention pooling")
    map_mlp_dim: int | None = field(None, lacking="another width in attention pooling")
    representation_size: int | None = None
    projection_dim: int | None = field(None, lacking="a projection behind the pooling")
    position: str = field(
        "learned", choice(*POSITIONS), "a model without positions", plain=("learned", "sincos2d")
    )
    position_before_class: bool = False
    position_before_registers: bool = False
    position_grid: tuple[int, int] | None = None
    rope: Rope | None = field(None, lacking="rotary positions")  # noqa: RUF009
    relative_position_bias: str | None = field(
        None, choice("block", "shared", None), lacking="a relative position bias"
    )
    patch_bias: bool = field(True, lacking="patches without a bias")
    patch_norm: bool = field(False, lacking="a norm behind the patches")
    pre_norm: bool = field(False, lacking="a norm before the blocks")
    norm: str = field("layer", choice(*NORMS), lacking="RMSNorm")
    final_norm: bool = field(True, lacking="an encoder without a last norm")
    qkv_bias: bool | tuple[bool, bool, bool] = field(
        True, BIASES, "biases of some of query, key and value alone", plain=(True, False)
    )
    projection_bias: bool = field(True, lacking="an attention output without a bias")
    mlp_bias: bool = field(True, lacking="an MLP without biases")
    mlp: str = field("plain", choice(*MLPS), lacking="a gated MLP")
    qk_norm: str | None = field(None, choice(*QK_NORMS, None), lacking="norms of queries and keys")
    sub_norm_attention: bool = field(False, lacking="a norm inside the attention")
    sub_norm_mlp: bool = field(False, lacking="a norm inside the MLP")
    layer_scale: bool = field(False, lacking="layer scale")
    layer_scale_init: float = 1e-5
    dropout_rate: float = field(0.0, SHARE)
    attention_dropout_rate: float = field(0.0, SHARE)
    stochastic_depth_rate: float = field(0.0, SHARE)
    resnet: ResNetStem | None = None
    unit_pre_logits: bool = field(False, lacking="pre_logits of length 1")
    head_bias_init: float = 0.0
    classifier_activation: str | None = field(None, choice(*ACTIVATIONS, None))
    task: Task = field("single_label", TASKS)  # noqa: RUF009
    rescale: bool = False
    numerics: Numerics = dataclasses.field(default_factory=Numerics)

    def __post_init__(self) -> None:
        self._normalise()
        self._validate()
        if self.image_size is not None:
            self.compute_grid(self.image_size)
        elif self.position_grid is None:
            self.compute_grid((DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))

    def _faults(self) -> Iterator[str]:
        return find_faults(self)

    def _normalise(self) -> None:
        """Turns ints into pairs, dicts into their dataclasses, and synonyms into one spelling."""
        self._set("patch_size", pair("patch_size", self.patch_size))
        if is_any_size(self.image_size):
            self._set("image_size", None)
        for name in ("image_size", "position_grid"):
            value = getattr(self, name)
            if value is not None:
                self._set(name, pair(name, value))
        for name, kind in PARTS.items():
            value = getattr(self, name)
            if isinstance(value, Mapping):
                self._set(name, kind.from_dict(value))
            elif not isinstance(value, kind) and (name == "numerics" or value is not None):
                raise ConfigError(
                    f"{name} must be a {kind.__name__} or a dict of its fields, "
                    f"found {shown(value)}."
                )
        if self.mlp == "gated_packed":  # version 0.1.0 had the storage of a gated MLP here
            self._set("mlp", "gated")
        if isinstance(self.qkv_bias, (tuple, list)):
            biases = tuple(self.qkv_bias)
            self._set("qkv_bias", biases[0] if len(set(map(repr, biases))) == 1 else biases)
        if self.class_token == (self.pooling in TOKEN_POOLINGS):
            self._set("class_token", None)  # the pooling implies it
        self._reset_fields_without_effect()

    def _reset_fields_without_effect(self) -> None:
        """Resets fields that have no effect, given the others: one network, one configuration."""
        if self.pooling == "token_and_distillation":
            self._set("distillation_token", True)
        has_sigmoids = self.num_classes != 1 and self.classifier_activation == "sigmoid"
        if self.num_classes == 0:
            self._set("task", "single_label")
        elif self.task == "single_label" and has_sigmoids:
            self._set("task", "multi_label")
        if not self.has_class_token:
            self._set("num_class_tokens", 1)
        if self.pooling != "token" or self.num_class_tokens == 1:
            self._set("joined_class_tokens", 0)
        if not self.has_class_token and self.num_registers and self.position_before_class is True:
            self._set("position_before_registers", True)  # registers are the first tokens to join
        if not self.has_class_token or self.position != "learned":
            self._set("position_before_class", False)
        if not self.num_registers or self.position != "learned" or self.position_before_class:
            self._set("position_before_registers", False)
        if self.position == "none":
            self._set("position_grid", None)
        if self.pooling != "map" or not (self.has_class_token or self.num_registers):
            self._set("prefix_in_map", True)
        for name, of_blocks in (("map_num_heads", "num_heads"), ("map_mlp_dim", "mlp_dim")):
            if self.pooling != "map" or getattr(self, name) == getattr(self, of_blocks):
                self._set(name, None)

    def compute_feature_map(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of the patch embedding's input for an image."""
        height, width = image_size
        for _ in range(self.resnet.halvings if self.resnet else 0):
            height, width = -(-height // 2), -(-width // 2)
        return height, width

    def compute_grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the grid of patches (rows, columns) of an image of `(height, width)` pixels.

        Raises:
            ConfigError: the image is smaller than one patch.
        """
        (height, width), (rows, columns) = self.compute_feature_map(image_size), self.patch_size
        if height < rows or width < columns:
            raise ConfigError(
                f"patch_size={self.patch_size}{' behind the stem' if self.resnet else ''} is "
                f"larger than an image of {image_size} pixels."
            )
        return height // rows, width // columns

    def compute_remainder(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the numbers of rows and columns of the image, or feature map, outside patches."""
        (height, width), (rows, columns) = self.compute_feature_map(image_size), self.patch_size
        return height % rows, width % columns

    @property
    def drops_pixels(self) -> bool:
        """Whether pixels at the right or bottom of an image of `image_size` fill no patch.

        The graph crops them, as the reference's VALID convolution does.
        """
        return self.image_size is not None and any(self.compute_remainder(self.image_size))

    @property
    def grid(self) -> tuple[int, int] | None:
        """Patch grid (rows, columns) of `image_size`; None for an any-size model."""
        return None if self.image_size is None else self.compute_grid(self.image_size)

    @property
    def source_grid(self) -> tuple[int, int]:
        """Patch grid (rows, columns) that the position embeddings are stored for."""
        if self.position_grid is not None:
            return self.position_grid
        return self.compute_grid(self.image_size or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))

    @property
    def stride(self) -> tuple[int, int]:
        """Pixels per patch: `patch_size`, times the downscaling of the stem."""
        factor = 2**self.resnet.halvings if self.resnet else 1
        return self.patch_size[0] * factor, self.patch_size[1] * factor

    @property
    def packed_shape(self) -> tuple[int, int]:
        """Shape of one image of a model with `native_aspect`: patches, and numbers for each."""
        return math.prod(self.grid or (0,)), math.prod(self.patch_size) * self.channels + 2

    def demand_prediction(self, what: str, takes_numbers: bool = False) -> None:
        """Refuses models whose output is not one prediction per image.

        Args:
            what: subject of the message, such as `"classify"`.
            takes_numbers: whether the prediction may be the numbers of a regression.

        Raises:
            ConfigError: the model has no head, or an output for each token; or it is for
                regression, and `takes_numbers` is False.
        """
        if not self.has_one_prediction:
            raise ConfigError(
                f"{what} needs one prediction per image; this model has "
                f"num_classes={self.num_classes} and pooling={self.pooling!r}. "
                "embed writes its features; probe fits a head to them."
            )
        if self.task == "regression" and not takes_numbers:
            raise ConfigError(
                f"{what} needs classes; this model has task='regression': "
                "model.predict(model.preprocessor(images)) gives its numbers, `keras-vit embed "
                "--stage logits` writes them, an export has outputs='logits'. If its outputs are "
                "logits of classes, load it with task='single_label'."
            )

    def refuse_packed(self, what: str) -> None:
        """Refuses packed patches where a grid of one size is needed.

        Args:
            what: subject of the message, such as `"An export"`.

        Raises:
            ConfigError: the model has `native_aspect`.
        """
        if self.native_aspect:
            raise ConfigError(
                f"{what} needs images of one size; from_preset(..., native_aspect=False) loads "
                f"these weights for images of {self.image_size} pixels."
            )

    @property
    def has_class_token(self) -> bool:
        """Whether the model has a class token, by `class_token` or by `pooling`."""
        if self.class_token is not None:
            return self.class_token
        return self.pooling in TOKEN_POOLINGS

    @property
    def has_one_class_token(self) -> bool:
        """Whether the model has a single class token."""
        return self.has_class_token and self.num_class_tokens == 1

    @property
    def is_pooled(self) -> bool:
        """Whether the head reads one vector per image; False where it reads every token."""
        return self.pooling not in UNPOOLED_POOLINGS

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings of tokens into one vector that the tokens of this model allow."""
        return STAGE_POOLINGS.words if self.has_class_token else ("gap",)

    @property
    def has_one_prediction(self) -> bool:
        """Whether the model returns one row of logits per image."""
        return self.is_pooled and self.num_classes > 0

    @property
    def returns_logits(self) -> bool:
        """Whether the model returns logits, of which softmax or sigmoid make probabilities."""
        return self.num_classes > 0 and self.task != "regression" and not self.classifier_activation

    @property
    def is_binary(self) -> bool:
        """Whether one logit decides between two classes; its sigmoid is that of the second."""
        return self.num_classes == 1 and self.task == "single_label"

    @property
    def num_answers(self) -> int:
        """Number of classes that labels and answers name: `num_classes`, or 2 for one logit."""
        return 2 if self.is_binary else self.num_classes

    @property
    def has_class_position(self) -> bool:
        """Whether the first position embedding belongs to the class token."""
        return self.has_class_token and not self.position_before_class

    @property
    def num_positions(self) -> int:
        """Rows of the stored position embeddings."""
        rows, columns = self.source_grid
        return rows * columns + self.num_prefix_positions

    @property
    def table_grid(self) -> tuple[int, int]:
        """Patch grid (rows, columns) whose distances the relative position bias knows."""
        return self.grid or self.source_grid

    @property
    def num_distances(self) -> int:
        """Rows of a table of relative position biases; see `layers.RelativePositionBias`."""
        rows, columns = self.table_grid
        return (2 * rows - 1) * (2 * columns - 1) + (3 if self.num_prefix_tokens else 0)

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: class tokens, distillation token, registers, in this order."""
        return self.num_tokens_before_registers + self.num_registers

    @property
    def num_prefix_positions(self) -> int:
        """Number of position embeddings that belong to tokens before the patches."""
        if self.position_before_class:
            return 0
        if self.position_before_registers:
            return self.num_tokens_before_registers
        return self.num_prefix_tokens

    @property
    def num_tokens_before_registers(self) -> int:
        """Class tokens and distillation token."""
        return self.has_class_token * self.num_class_tokens + self.distillation_token

    @property
    def head_dim(self) -> int:
        """Channels of an attention head."""
        return self.hidden_size // self.num_heads

    @property
    def biased_projections(self) -> tuple[str, ...]:
        """The names among query, key and value whose projections have a bias."""
        names = ("query", "key", "value")
        if isinstance(self.qkv_bias, bool):
            return names if self.qkv_bias else ()
        return tuple(name for name, has in zip(names, self.qkv_bias, strict=True) if has)

    @property
    def has_two_heads(self) -> bool:
        """Whether a second head reads the distillation token."""
        return self.pooling == "token_and_distillation"

    @property
    def pooled_size(self) -> int:
        """Width of the pooled vector."""
        has_both = self.pooling == "token_and_mean"
        return self.hidden_size * (self.joined_class_tokens or self.class_token_blocks + has_both)

    @property
    def num_tokens(self) -> int | None:
        """Tokens in the encoder; None for an any-size model."""
        if self.grid is None:
            return None
        return self.grid[0] * self.grid[1] + self.num_prefix_tokens

    def replace(self, **fields: Any) -> "ViTConfig":
        """Returns a copy with other fields. Raises `ConfigError` on an unknown one."""
        return dataclasses.replace(self, **known_fields(type(self), fields))


SWITCHES = list_switches(ViTConfig)
"""What other families add to the paper's model, by field or by value of `pooling`.

A dialect names the switches that its library has. Files are read without the others, and models
that use one of those are refused.
"""
