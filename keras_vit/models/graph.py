"""Figure 1 of the paper, top to bottom: the layers of a configuration, and their order."""

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
from keras import ops

from keras_vit import kernels, layers
from keras_vit.config import ViTConfig
from keras_vit.config.vit_rules import STAGE_POOLINGS
from keras_vit.errors import ConfigError, nearest
from keras_vit.layers.dense import Dense
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.norms import norm_layer
from keras_vit.layers.packed_patches import UnpackPatches
from keras_vit.layers.precision import float32_under_mixed
from keras_vit.layers.relative_position_bias import RelativePositionBias

if kernels.have_whole_block:
    from keras_vit.layers import torch_block

    call_block: Callable[..., Any] = torch_block.call_block
else:
    call_block = operator.call


class Stages:
    """Intermediate results of one call of a model, chosen by name.

    Names are those of the layers (`patch_embedding`, `block_0`, `encoder_norm`, `pool`,
    `pre_logits`, `head`; see `VisionTransformer`), and:

        logits              output of the head, before softmax or sigmoid
        block_{i}/input     tokens that enter a block, (batch, tokens, hidden_size)
        block_{i}/attention softmax weights (Eq. 6), float32 (batch, heads, tokens, tokens)
        block_{i}/norm      output of a block behind the norm of the last block
        pool/attention      weights of attention pooling, float32 (batch, heads, 1, tokens)
        {stage}/token       class token of `block_{i}`, `block_{i}/input`, `block_{i}/norm` or
                            `encoder_norm`, float32 (batch, hidden_size)
        {stage}/gap         mean of the patches there, without class token and registers
        {stage}/token_and_mean  both beside each other, (batch, 2 * hidden_size)

    Args:
        names: names of the stages to keep.
        changes: `{name: tensor}` that are added to stages. The gradient by a change of zeros is
            the gradient by the stage.
        ends_call: whether the call stops at the last chosen stage, without an output.
    """

    def __init__(
        self,
        names: Iterable[str],
        changes: Mapping[str, Any] | None = None,
        *,
        ends_call: bool = False,
    ) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.ends_call = ends_call
        self.changes = dict(changes or {})
        self.values: dict[str, Any] = {}

    def end_call(self) -> bool:
        """Whether the call can stop, because every stage was computed."""
        return self.ends_call and len(self.values) == len(self.names)

    def touches(self, name: str) -> bool:
        """Whether a stage is kept or changed."""
        return name in self.names or name in self.changes

    def keep(self, name: str, value: Any) -> Any:
        """Keeps the value of a stage if it was chosen; returns the value with its change."""
        if name in self.changes:
            value = value + ops.cast(self.changes[name], value.dtype)
        if name in self.names:
            self.values[name] = value
        return value

    def reader(self, name: str) -> dict[str, Callable[[Any], Any]]:
        """Returns the argument by which a layer passes on its attention weights, if needed."""
        if not self.touches(name):
            return {}
        return {"read_weights": lambda weights: self.keep(name, weights)}


class Graph:
    """The only description of the model's graph.

    `VisionTransformer` calls it once on the symbolic `images`, from which Keras makes a
    functional model, and afterwards on every batch. Its layers stand in lists, in the order of
    their calls: `to_grid`, `to_tokens`, `blocks` and `to_output`.

    Keras's own execution of a functional graph would compute the same, but it keeps the output of
    every layer until the last layer has run. A call of this class frees an output when the next
    layer has read it (benchmarks/decisions.md).

    Args:
        config: configuration of the model.
        data_format: `"channels_last"` or `"channels_first"`.
        policy: dtype policy of the model.
        remat: whether the blocks are computed again for the gradient.
        normalisation: mean and std of pixels in [0, 1], for a model that rescales.
    """

    def __init__(
        self,
        config: ViTConfig,
        data_format: str,
        policy: Any,
        remat: bool,
        normalisation: tuple[Any, Any] = (0.5, 0.5),
    ) -> None:
        float32 = float32_under_mixed(policy)
        data_format = "channels_last" if config.native_aspect else data_format
        self.images = keras.Input(image_shape(config, data_format), name="images")
        # A functional model without layers returns its input as Keras converts and checks it.
        self.standardise = keras.Model(self.images, self.images, name="standardise").call
        self.unpack = _unpacking(config)
        self.to_grid = _to_grid(config, data_format, policy, normalisation)
        self.to_tokens = _to_tokens(config, policy)
        self.resizes_positions = config.grid != config.source_grid
        self.rotary_positions = _rotary_positions(config, float32)
        self.position_bias = (
            _position_bias(config, float32, "relative_position_bias")
            if config.relative_position_bias == "shared"
            else None
        )
        self.blocks = [_block(config, i, policy, remat, float32) for i in range(config.num_layers)]
        norm = _norm(config, policy, "encoder_norm") if config.final_norm else None
        # Blocks before the last one whose class tokens the head reads too.
        self.further_blocks = self.blocks[-config.class_token_blocks : -1]
        self.pool = _pool(config, policy)
        self.pool_reads_mask = config.native_aspect and config.is_pooled
        self.block_norm: Any = None if config.numerics.pool_before_norm else norm
        self.poolings = [
            layers.Pool(
                kind,
                config.num_prefix_tokens,
                config.num_class_tokens,
                dtype=float32.name,
                name=kind,
            )
            for kind in config.poolings
        ]
        encoding = [self.pool, norm] if config.numerics.pool_before_norm else [norm, self.pool]
        self.to_output = _present(*encoding, *_head_layers(config, float32))
        self.joins_pre_logits = bool(config.has_two_heads and config.num_classes)

    def __call__(
        self, images: Any, training: bool | None = None, stages: Stages | None = None
    ) -> Any:
        """Returns the model's output for `images`, or None if `stages` ends the call before it.

        Args:
            images: symbolic or real images, after `standardise`.
            training: whether dropout and stochastic depth are active; None for inference.
            stages: holds the chosen stages after the call; None for no stages.
        """
        stages = stages or Stages(())
        # `stateless_call` sets no context of a call: layers get `training` only as an argument.
        mode = {} if training is None else {"training": training}
        z, positions = self._embed(images, mode, stages)  # Eq. 1
        mask = positions.get("mask")
        class_tokens: list[Any] = []
        for block in self.blocks:  # Eqs. 2 and 3
            z = self._keep_tokens(f"{block.name}/input", z, stages, mask)
            z = self._call_block(block, z, stages, **positions, **mode)
            z = self._keep_tokens(block.name, z, stages, mask)
            if any(map(stages.touches, self._with_pooled(f"{block.name}/norm"))):
                self._keep_tokens(f"{block.name}/norm", self._normed(z), stages, mask)
            if block in self.further_blocks:
                class_tokens.append(self._normed(z[:, :1])[:, 0])
            if stages.end_call():
                return None
        for layer in self.to_output:  # Eq. 4, and the head
            z = self._call_behind_blocks(layer, z, stages, mask)
            if layer is self.pool and class_tokens:
                z = ops.concatenate([*(ops.cast(t, z.dtype) for t in class_tokens), z], axis=-1)
        return z

    def stage_names(self) -> list[str]:
        """Returns the name of every stage, in the order of the computation."""
        positions = _present(self.rotary_positions, self.position_bias)
        names = [layer.name for layer in (*self.to_grid, *self.to_tokens, *positions)]
        for block in self.blocks:
            names += [
                *self._with_pooled(f"{block.name}/input"),
                f"{block.name}/attention",
                *self._with_pooled(block.name),
                *self._with_pooled(f"{block.name}/norm"),
            ]
        for layer in self.to_output:
            names += self._with_pooled(layer.name) if layer is self.block_norm else [layer.name]
        names += ["logits"] if "head" in names else []
        return names + (["pool/attention"] if isinstance(self.pool, layers.MAPHead) else [])

    def check_stages(self, names: Iterable[str]) -> None:
        """Refuses names that are no stages.

        Raises:
            ConfigError: a name is no stage of the model; the message lists the layers.
        """
        valid = self.stage_names()
        for name in names:
            tokens, _, pooling = str(name).rpartition("/")
            if name not in valid and tokens in valid and pooling in STAGE_POOLINGS.words:
                kinds = " or ".join(each.kind for each in self.poolings)
                raise ConfigError(
                    f"stage={tokens!r} has no pooling={pooling!r}. This model pools the tokens of "
                    f"stages such as block_0 and block_0/norm, by {kinds}; 'token' and "
                    "'token_and_mean' need a class token."
                )
            if name not in valid:
                layer_names = ", ".join(each for each in valid if "/" not in each)
                raise ConfigError(
                    f"stage={name!r} is no stage of the model.{nearest(name, valid)} Its layers "
                    f"are {layer_names}."
                )

    def _embed(
        self, images: Any, mode: dict[str, bool], stages: Stages
    ) -> tuple[Any, dict[str, Any]]:
        """Returns z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos (Eq. 1), and arguments of blocks.

        The arguments are the rotary positions, the relative position bias and the mask of padding,
        if there are any.
        """
        grid, of_positions, beside = images, {}, {}
        if self.unpack is not None:
            grid, of_positions["places"], beside["mask"] = self.unpack(images)
        for layer in self.to_grid:
            grid = stages.keep(layer.name, layer(grid))
        # grid (batch, rows, columns, hidden_size), z (batch, rows * columns, hidden_size)
        arguments: dict[str, dict[str, Any]] = {"embedding_dropout": mode}
        if self.resizes_positions and self.unpack is None:
            of_positions["patches"] = grid
        arguments["position_embedding"] = of_positions
        z = grid
        for layer in self.to_tokens:
            z = stages.keep(layer.name, layer(z, **arguments.get(layer.name, {})))
        others = ("rotary", self.rotary_positions, grid), ("bias", self.position_bias, z)
        return z, beside | {
            argument: stages.keep(layer.name, layer(read))
            for argument, layer, read in others
            if layer is not None
        }

    def _call_block(self, block: Any, z: Any, stages: Stages, **arguments: Any) -> Any:
        weights = f"{block.name}/attention"
        reader = stages.reader(weights)
        _check_reader(block, reader)
        z = call_block(block, z, **arguments, **reader)
        if weights in stages.names and weights not in stages.values:
            raise ConfigError(_NO_WEIGHTS.format(block.name))
        return z

    def _with_pooled(self, stage: str) -> list[str]:
        """Returns the name of a stage of tokens, and those of its pooled vectors."""
        return [stage, *(f"{stage}/{pooling.kind}" for pooling in self.poolings)]

    def _keep_tokens(self, stage: str, z: Any, stages: Stages, mask: Any) -> Any:
        """Keeps tokens and, without padding, their pooled vectors, if they were chosen."""
        z = stages.keep(stage, z)
        for pooling in self.poolings:
            name = f"{stage}/{pooling.kind}"
            if stages.touches(name):
                stages.keep(name, pooling(z, mask=mask))
        return z

    def _normed(self, z: Any) -> Any:
        return z if self.block_norm is None else self.block_norm(z)

    def _call_behind_blocks(self, layer: Any, z: Any, stages: Stages, mask: Any) -> Any:
        reader = stages.reader("pool/attention") if layer is self.pool else {}
        _check_reader(layer, reader)
        masked = {"mask": mask} if layer is self.pool and self.pool_reads_mask else {}
        z = layer(z, **masked, **reader)
        if layer.name == "pre_logits" and self.joins_pre_logits:
            # Two heads read two vectors; without heads, the model returns their mean.
            if stages.touches("pre_logits"):
                stages.keep("pre_logits", ops.mean(z, axis=1))
            return z
        if layer is self.block_norm:
            return self._keep_tokens(layer.name, z, stages, mask)
        z = stages.keep(layer.name, z)
        return stages.keep("logits", z) if layer.name == "head" else z


_NO_WEIGHTS = (
    "{} computed no attention weights in the way of keras_vit's Attention: its attention was "
    "replaced, so that its weights cannot be read."
)


def _check_reader(layer: Any, reader: Mapping[str, Any]) -> None:
    """Refuses to read the attention weights of a block or head that was replaced."""
    for part in (layer, getattr(layer, "attention", None)) if reader else ():
        parameters = {} if part is None else inspect.signature(part.call).parameters
        if not any(
            p.name == "read_weights" or p.kind is p.VAR_KEYWORD for p in parameters.values()
        ):
            raise ConfigError(_NO_WEIGHTS.format(layer.name))


def image_shape(config: ViTConfig, data_format: str) -> tuple[int | None, ...]:
    """Returns the shape of an image, without the batch, or of its packed patches."""
    if config.native_aspect:
        if config.image_size is None:
            raise ConfigError(
                "native_aspect=True needs an image_size, whose number of patches is the most of an "
                "image; found image_size=(None, None)."
            )
        return config.packed_shape
    height, width = config.image_size or (None, None)
    if data_format == "channels_last":
        return height, width, config.channels
    return config.channels, height, width


def _unpacking(config: ViTConfig) -> Any:
    """Returns the layer that takes apart packed patches, or None."""
    if not config.native_aspect:
        return None
    sizes = (config.patch_size, config.channels, config.num_prefix_tokens)
    return UnpackPatches(*sizes, dtype="float32", name="unpack_patches")


def _present(*parts: Any) -> list[Any]:
    return [part for part in parts if part is not None]


def _to_grid(
    config: ViTConfig, data_format: str, policy: Any, normalisation: tuple[Any, Any]
) -> list[Any]:
    """Returns the layers from images to the grid of patches `(batch, rows, columns, width)`."""
    rescale = layers.Rescale(*normalisation, data_format, dtype=policy, name="rescale")
    patch_embedding = layers.PatchEmbedding(
        config.hidden_size,
        config.patch_size,
        flatten=False,
        data_format=data_format,
        use_bias=config.patch_bias,
        dtype=policy,
        name="patch_embedding",
    )
    stem = _stem(config, data_format, policy)
    return [*([rescale] if config.rescale else []), *stem, patch_embedding]


def _stem(config: ViTConfig, data_format: str, policy: Any) -> list[Any]:
    """Returns the ResNet of a hybrid (section 3.1), from images to a feature map, by stage."""
    if config.resnet is None:
        return []
    resnet, numerics = config.resnet, config.numerics
    common = {
        "std_conv": numerics.std_conv,
        "std_conv_epsilon": numerics.std_conv_epsilon,
        "group_norm_epsilon": numerics.group_norm_epsilon,
        "data_format": data_format,
        "dtype": policy,
    }
    root = layers.ResNetRoot(resnet.width, **common, name="root")
    units = (
        layers.BottleneckUnit(unit.filters, unit.strides, **common, name=unit.name)
        for unit in resnet.units()
    )
    return [root, *units]


def _norm(config: ViTConfig, policy: Any, name: str) -> Any:
    return norm_layer(config.norm, config.numerics.layer_norm_epsilon, policy, name)


def _to_tokens(config: ViTConfig, policy: Any) -> list[Any]:
    """Returns the layers from patches to z_0, `(batch, tokens, hidden_size)` (Eq. 1)."""
    return _present(
        keras.layers.Reshape((-1, config.hidden_size), dtype=policy, name="patch_tokens"),
        _norm(config, policy, "patch_norm") if config.patch_norm else None,
        layers.MaskToken(dtype=policy, name="mask_token") if config.mask_token else None,
        *_assembly(config, policy),
        Dropout(config.dropout_rate, dtype=policy, name="embedding_dropout"),
        _norm(config, policy, "pre_norm") if config.pre_norm else None,
    )


def _assembly(config: ViTConfig, policy: Any) -> list[Any]:
    """Returns the layers that add positions, registers and class token, in their order."""
    front = config.num_tokens_before_registers
    add_positions = layers.AddPositionEmbs(
        config.source_grid,
        class_token=config.has_class_position,
        other_tokens=config.num_prefix_positions - config.has_class_position,
        position=config.position,
        resize=config.numerics.position_resize,
        dtype=policy,
        name="position_embedding",
    )
    tokens: list[Any] = []
    if config.num_registers and not config.position_before_registers:
        tokens.append(_registers(config, policy, after=0))
    if config.distillation_token:
        tokens.append(layers.ClassToken(dtype=policy, name="distillation_token"))
    if config.has_one_class_token:
        tokens.append(layers.ClassToken(dtype=policy, name="class_token"))
    elif config.has_class_token:
        count = config.num_class_tokens
        tokens.append(layers.RegisterTokens(count, dtype=policy, name="class_tokens"))
    positions = [] if config.position == "none" else [add_positions]
    assembly = positions + tokens if config.position_before_class else tokens + positions
    if config.position_before_registers:
        assembly.append(_registers(config, policy, after=front))
    return assembly


def _registers(config: ViTConfig, policy: Any, after: int) -> Any:
    return layers.RegisterTokens(config.num_registers, after, dtype=policy, name="register_tokens")


def _rotary_positions(config: ViTConfig, float32: Any) -> Any:
    """Returns the layer from the grid of patches to the angles of all blocks, or None."""
    rope = config.rope
    if rope is None:
        return None
    return layers.RotaryPositions(
        config.head_dim,
        **rope.to_dict(),
        num_prefix_tokens=config.num_prefix_tokens,
        dtype=float32,
        name="rotary_positions",
    )


def _position_bias(config: ViTConfig, float32: Any, name: str) -> Any:
    """Returns the layer with a table of biases for the distances between patches."""
    if config.grid is None:
        raise ConfigError(
            f"relative_position_bias={config.relative_position_bias!r} has a table for the grid of "
            "one image_size, found image_size=(None, None). Give image_size=(height, width); "
            "`from_preset` resizes the table to it."
        )
    return RelativePositionBias(
        config.num_heads, config.grid, config.num_prefix_tokens, dtype=float32, name=name
    )


def _block(config: ViTConfig, i: int, policy: Any, remat: bool, float32: Any) -> Any:
    numerics = config.numerics
    has_table = config.relative_position_bias == "block"
    table = _position_bias(config, float32, "attention_bias") if has_table else None
    gate = {"silu": "silu", "gelu": numerics.gelu}[numerics.gate]
    return layers.TransformerBlock(
        config.num_heads,
        config.mlp_dim,
        dropout_rate=config.dropout_rate,
        attention_dropout_rate=config.attention_dropout_rate,
        stochastic_depth_rate=config.stochastic_depth_rate * i / max(config.num_layers - 1, 1),
        gelu=numerics.gelu,
        layer_norm_epsilon=numerics.layer_norm_epsilon,
        qkv_bias=config.qkv_bias,
        projection_bias=config.projection_bias,
        mlp_bias=config.mlp_bias,
        gate_activation=None if config.mlp == "plain" else gate,
        norm=config.norm,
        qk_norm=config.qk_norm,
        sub_norm_attention=config.sub_norm_attention,
        sub_norm_mlp=config.sub_norm_mlp,
        layer_scale=config.layer_scale_init if config.layer_scale else None,
        rope=config.rope and config.rope.form,
        rope_theta=config.rope.theta if config.rope else 10.0,
        attention_bias=table and keras.layers.serialize(table),
        remat=remat,
        dtype=policy,
        name=f"block_{i}",
    )


def _pool(config: ViTConfig, policy: Any) -> Any:
    """Returns the layer from encoded tokens to the input of the head."""
    kind, skip = config.pooling, config.num_prefix_tokens
    if kind == "map":
        return layers.MAPHead(
            config.map_num_heads or config.num_heads,
            config.map_mlp_dim or config.mlp_dim,
            gelu=config.numerics.gelu,
            layer_norm_epsilon=config.numerics.layer_norm_epsilon,
            skip=0 if config.prefix_in_map else skip,
            dtype=policy,
            name="pool",
        )
    float32 = float32_under_mixed(policy)
    if not config.is_pooled:
        return keras.layers.Identity(dtype=float32.name, name="pool")
    if kind == "token_and_distillation":
        kind = "two_tokens" if config.num_classes else "mean_of_two_tokens"
    skip = 0 if config.class_token_in_mean else skip
    counts = config.num_class_tokens, config.joined_class_tokens
    return layers.Pool(kind, skip, *counts, dtype=float32, name="pool")


def _head_layers(config: ViTConfig, float32: Any) -> list[Any]:
    """Returns the layers from the pooled vector to the logits; without classes, to pre_logits."""
    parts: list[Any] = []
    if config.projection_dim is not None:  # the image embedding of CLIP
        projection = Dense(
            config.projection_dim,
            use_bias=False,
            kernel_initializer=layers.LecunNormal(),
            dtype=float32,
            name="projection",
        )
        parts.append(projection)
    if config.representation_size is None:
        parts.append(keras.layers.Identity(dtype=float32.name, name="pre_logits"))
    else:  # the hidden layer of the pre-training head (section 3.1)
        hidden = keras.layers.Dense(
            config.representation_size,
            activation="tanh",
            kernel_initializer=layers.LecunNormal(),
            dtype=float32,
            name="pre_logits",
        )
        parts.append(hidden)
    if config.unit_pre_logits:
        parts.append(keras.layers.UnitNormalization(dtype=float32, name="unit_norm"))
    if config.num_classes:
        parts.append(_head(config, float32))
    if config.num_classes and config.classifier_activation is not None:
        activation = config.classifier_activation
        parts.append(keras.layers.Activation(activation, dtype=float32, name="probabilities"))
    return parts


def _head(config: ViTConfig, float32: Any) -> Any:
    """Returns the linear classifier, or two for a class token and a distillation token."""
    if config.pooling == "token_and_distillation":
        return layers.DistilledHead(
            config.num_classes, config.head_bias_init, dtype=float32, name="head"
        )
    return keras.layers.Dense(
        config.num_classes,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(config.head_bias_init),
        dtype=float32,
        name="head",
    )
