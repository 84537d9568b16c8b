"""Builds the layers of a Vision Transformer from its configuration and calls them (Figure 1)."""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import ops

from keras_vit import kernels, layers
from keras_vit.config import Prediction, ViTConfig
from keras_vit.config.pool import STAGE_POOLINGS
from keras_vit.errors import ConfigError, nearest
from keras_vit.layers.dense import Dense
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.norms import norm_layer
from keras_vit.layers.precision import float32_under_mixed
from keras_vit.models.stages import NO_WEIGHTS, Stages, check_reader
from keras_vit.models.stems import choose_stem, image_shape

if kernels.have_whole_block:
    from keras_vit.layers import torch_block

    call_block: Callable[..., Any] = torch_block.call_block
else:
    call_block = operator.call


class Graph:
    """The layers of a model and the order of their calls.

    `VisionTransformer` calls it once on the symbolic `images`, from which Keras makes a
    functional model, and afterwards on every batch. The layers are in lists, in the order of
    their calls: `stem.layers`, `to_tokens`, `blocks` and `to_output`.

    Keras's own execution of the functional graph would compute the same, but it keeps the output of
    every layer until the last layer has run. A call of this class frees an output when the next
    layer has read it (benchmarks/decisions.md).

    Args:
        config: configuration of the model.
        prediction: task and activation of its outputs.
        data_format: `"channels_last"` or `"channels_first"`.
        policy: dtype policy of the model.
        remat: whether the blocks are recomputed for the gradient.
        normalisation: mean and std of pixels in [0, 1], for a model that rescales, or None.
    """

    def __init__(
        self,
        config: ViTConfig,
        prediction: Prediction,
        data_format: str,
        policy: Any,
        remat: bool,
        normalisation: tuple[Any, Any] | None = None,
    ) -> None:
        float32 = float32_under_mixed(policy)
        self.images = keras.Input(image_shape(config, data_format), name="images")
        # A functional model without layers returns its input, converted and checked by Keras.
        self.standardise = keras.Model(self.images, self.images, name="standardise").call
        self.stem = choose_stem(config)(config, data_format, policy, normalisation)
        self.to_tokens = _to_tokens(config, policy)
        self.rotary_positions = _rotary_positions(config, float32)
        self.position_bias, self.position_biases = _position_biases(config, float32)
        self.blocks = [_block(config, i, policy, remat) for i in range(config.num_layers)]
        norm = None if config.pool.norm == "none" else _norm(config, policy, "encoder_norm")
        # Earlier blocks whose class tokens the head also reads.
        self.further_blocks = self.blocks[-config.pool.blocks : -1]
        self.pool = _pool(config, policy)
        is_normed_after = config.pool.norm == "after"
        self.block_norm: Any = None if is_normed_after else norm
        self.poolings = [
            layers.Pool(
                kind,
                config.num_prefix_tokens,
                config.tokens.class_tokens,
                dtype=float32.name,
                name=kind,
            )
            for kind in config.poolings
        ]
        encoding = [self.pool, norm] if is_normed_after else [norm, self.pool]
        self.to_output = _present(*encoding, *_head_layers(config, prediction, float32))
        self.joins_pre_logits = bool(config.has_two_heads and config.num_classes)
        self.dense = config.dense
        if config.dense is not None:
            own = _dense_map(config, data_format, policy), _probabilities(prediction, float32)
            self.to_output = _present(norm, *own)

    def __call__(
        self, images: Any, training: bool | None = None, stages: Stages | None = None
    ) -> Any:
        """Returns the model's output for `images`, or None if `stages` ends the call early.

        Args:
            images: symbolic or real images, after `standardise`.
            training: whether dropout and stochastic depth are active; None for inference.
            stages: receives the chosen stages; None for no stages.
        """
        stages = stages or Stages(())
        # `stateless_call` sets no call context: layers get `training` only as an argument.
        mode = {} if training is None else {"training": training}
        z, patches, further = self._embed(images, mode, stages)  # Eq. 1
        mask = further.get("mask")
        class_tokens: list[Any] = []
        dense_stages: list[Any] = []
        for i, block in enumerate(self.blocks):  # Eqs. 2 and 3
            z = self._keep_tokens(f"{block.name}/input", z, stages, mask)
            if self.position_biases:
                further["bias"] = self.position_biases[i](z)
            z = self._call_block(block, z, stages, **further, **mode)
            z = self._keep_tokens(block.name, z, stages, mask)
            if any(map(stages.touches, self._with_pooled(f"{block.name}/norm"))):
                self._keep_tokens(f"{block.name}/norm", self._normed(z), stages, mask)
            if block in self.further_blocks:
                class_tokens.append(self._normed(z[:, :1])[:, 0])
            if self.dense is not None and i in self.dense.stages[:-1]:
                dense_stages.append(self._normed(z))
            if stages.end_call():
                return None
        for layer in self.to_output:  # Eq. 4, and the head
            if isinstance(layer, layers.DenseMap):
                z = stages.keep("logits", layer([*dense_stages, z], patches, images, **mode))
                z = stages.keep(layer.name, z)
                continue
            z = self._call_after_blocks(layer, z, stages, mask)
            if layer is self.pool and class_tokens:
                z = ops.concatenate([*(ops.cast(t, z.dtype) for t in class_tokens), z], axis=-1)
        return z

    def stage_names(self) -> list[str]:
        """Lists the names of all stages, in the order of the computation."""
        positions = _present(self.rotary_positions, self.position_bias)
        names = [layer.name for layer in (*self.stem.layers, *self.to_tokens, *positions)]
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
        """Checks names of stages.

        Raises:
            ConfigError: the model has no stage with this name; the message lists the layers.
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
                    f"stage={name!r} is not a stage of the model.{nearest(name, valid)} Its layers "
                    f"are {layer_names}."
                )

    def _embed(
        self, images: Any, mode: dict[str, bool], stages: Stages
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Computes z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos (Eq. 1).

        Returns z_0, the grid of patches, and further arguments of the blocks: the rotary positions,
        the relative position bias and the mask of padding, if there are any.
        """
        grid, of_positions, further = self.stem(images, stages.keep)
        # grid (batch, rows, columns, hidden_size), z (batch, rows * columns, hidden_size)
        arguments = {"embedding_dropout": mode, "position_embedding": of_positions}
        z = grid
        for layer in self.to_tokens:
            z = stages.keep(layer.name, layer(z, **arguments.get(layer.name, {})))
        others = ("rotary", self.rotary_positions, grid), ("bias", self.position_bias, z)
        further |= {
            argument: stages.keep(layer.name, layer(read))
            for argument, layer, read in others
            if layer is not None
        }
        return z, grid, further

    def _call_block(self, block: Any, z: Any, stages: Stages, **arguments: Any) -> Any:
        weights = f"{block.name}/attention"
        reader = stages.reader(weights)
        check_reader(block, reader)
        z = call_block(block, z, **arguments, **reader)
        if weights in stages.names and weights not in stages.values:
            raise ConfigError(NO_WEIGHTS.format(block.name))
        return z

    def _with_pooled(self, stage: str) -> list[str]:
        """Returns the names of a stage of tokens and of its pooled vectors."""
        return [stage, *(f"{stage}/{pooling.kind}" for pooling in self.poolings)]

    def _keep_tokens(self, stage: str, z: Any, stages: Stages, mask: Any) -> Any:
        """Stores tokens and, without padding, their pooled vectors, if they were chosen."""
        z = stages.keep(stage, z)
        for pooling in self.poolings:
            name = f"{stage}/{pooling.kind}"
            if stages.touches(name):
                stages.keep(name, pooling(z, mask=mask))
        return z

    def _normed(self, z: Any) -> Any:
        return z if self.block_norm is None else self.block_norm(z)

    def _call_after_blocks(self, layer: Any, z: Any, stages: Stages, mask: Any) -> Any:
        reader = stages.reader("pool/attention") if layer is self.pool else {}
        check_reader(layer, reader)
        masked = {"mask": mask} if layer is self.pool and mask is not None else {}
        z = layer(z, **masked, **reader)
        if layer.name == "pre_logits" and self.joins_pre_logits:
            # Without its two heads, the model returns the mean of both vectors.
            if stages.touches("pre_logits"):
                stages.keep("pre_logits", ops.mean(z, axis=1))
            return z
        if layer is self.block_norm:
            return self._keep_tokens(layer.name, z, stages, mask)
        z = stages.keep(layer.name, z)
        return stages.keep("logits", z) if layer.name == "head" else z


def _present(*parts: Any) -> list[Any]:
    return [part for part in parts if part is not None]


def _norm(config: ViTConfig, policy: Any, name: str) -> Any:
    return norm_layer(config.block, policy, name)


def _to_tokens(config: ViTConfig, policy: Any) -> list[Any]:
    """Returns the layers that turn patches into z_0, `(batch, tokens, hidden_size)` (Eq. 1)."""
    return _present(
        keras.layers.Reshape((-1, config.hidden_size), dtype=policy, name="patch_tokens"),
        _norm(config, policy, "patch_norm") if config.block.input_norm == "patches" else None,
        layers.MaskToken(dtype=policy, name="mask_token") if config.tokens.mask else None,
        *_assembly(config, policy),
        Dropout(config.dropout_rate, dtype=policy, name="embedding_dropout"),
        _norm(config, policy, "pre_norm") if config.block.input_norm == "tokens" else None,
    )


def _assembly(config: ViTConfig, policy: Any) -> list[Any]:
    """Returns the layers that add positions and learned tokens, in the order of their calls."""
    tokens, count = config.tokens, config.tokens.class_tokens
    class_position = bool(config.num_prefix_positions and count)
    add_positions = layers.AddPositionEmbs(
        config.source_grid,
        class_token=class_position,
        other_tokens=config.num_prefix_positions - class_position,
        position="learned" if config.has_learned_positions else config.position,
        resize=config.position_resize,
        dtype=policy,
        name="position_embedding",
    )
    are_later = config.position == "learned_except_registers"
    after = tokens.num_before_registers if are_later else 0
    registers = [
        layers.RegisterTokens(tokens.registers, after, dtype=policy, name="register_tokens")
    ]
    parts: list[Any] = [] if are_later or not tokens.registers else [*registers]
    if tokens.distillation:
        parts.append(layers.ClassToken(dtype=policy, name="distillation_token"))
    if count == 1:
        parts.append(layers.ClassToken(dtype=policy, name="class_token"))
    elif count:
        parts.append(layers.RegisterTokens(count, dtype=policy, name="class_tokens"))
    positions = [] if config.position == "none" else [add_positions]
    if config.position == "learned_patches":
        return [*positions, *parts]
    return [*parts, *positions, *(registers if are_later else [])]


def _rotary_positions(config: ViTConfig, float32: Any) -> Any:
    """Returns the layer that computes the rotary positions for all blocks, or None."""
    if config.rope is None:
        return None
    return layers.RotaryPositions(
        config.head_dim,
        **config.rope.to_dict(),
        num_prefix_tokens=config.num_prefix_tokens,
        dtype=float32,
        name="rotary_positions",
    )


def _position_biases(config: ViTConfig, float32: Any) -> tuple[Any, list[Any]]:
    """Returns the relative position bias that all blocks share, or None, and that of each block."""
    kind = config.relative_position_bias
    if kind is None:
        return None, []
    if config.grid is None:
        raise ConfigError(
            f"relative_position_bias={kind!r} has a table for the grid of "
            "one image_size, found image_size=(None, None). Give image_size=(height, width); "
            "`from_preset` resizes the table to it."
        )
    sizes = config.num_heads, config.grid, config.num_prefix_tokens
    shared = ["relative_position_bias"] if kind == "shared" else []
    names = shared or [f"position_bias_{i}" for i in range(config.num_layers)]
    tables = [layers.RelativePositionBias(*sizes, dtype=float32, name=name) for name in names]
    return (tables[0], []) if shared else (None, tables)


def _block(config: ViTConfig, i: int, policy: Any, remat: bool) -> Any:
    return layers.TransformerBlock(
        config.num_heads,
        config.mlp_dim,
        config.block,
        dropout_rate=config.dropout_rate,
        attention_dropout_rate=config.attention_dropout_rate,
        stochastic_depth_rate=config.stochastic_depth_rate * i / max(config.num_layers - 1, 1),
        rope=config.rope,
        remat=remat,
        dtype=policy,
        name=f"block_{i}",
    )


def _pool(config: ViTConfig, policy: Any) -> Any:
    """Returns the layer that pools encoded tokens into the input of the head."""
    pool, skip = config.pool, config.num_prefix_tokens
    if pool.is_map:
        return layers.MAPHead(
            pool.num_heads or config.num_heads,
            pool.mlp_dim or config.mlp_dim,
            config.block,
            skip=0 if pool.kind == "map" else skip,
            dtype=policy,
            name="pool",
        )
    kinds = {"mean": "gap", "token_and_distillation": "two_tokens"}
    kind = kinds.get(pool.kind, pool.kind)
    if kind == "two_tokens" and not config.num_classes:
        kind = "mean_of_two_tokens"
    skip = 0 if pool.kind == "mean" else skip
    float32 = float32_under_mixed(policy)
    return layers.Pool(kind, skip, config.tokens.class_tokens, dtype=float32, name="pool")


def _head_layers(config: ViTConfig, prediction: Prediction, float32: Any) -> list[Any]:
    """Returns the layers from the pooled vector to the logits, or without a head to pre_logits."""
    parts: list[Any] = []
    if config.projection_size is not None:  # the image embedding of CLIP
        projection = Dense(
            config.projection_size,
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
    if config.head == "cosine":
        parts.append(keras.layers.UnitNormalization(dtype=float32, name="unit_norm"))
    if config.num_classes:
        kind = layers.DistilledHead if config.has_two_heads else keras.layers.Dense
        zeros = {} if config.has_two_heads else {"kernel_initializer": "zeros"}
        parts.append(kind(config.num_classes, **zeros, dtype=float32, name="head"))
    return [*parts, *_present(_probabilities(prediction, float32))]


def _probabilities(prediction: Prediction, float32: Any) -> Any:
    activation = prediction.classifier_activation
    if activation is None:
        return None
    return keras.layers.Activation(activation, dtype=float32, name="probabilities")


def _dense_map(config: ViTConfig, data_format: str, policy: Any) -> Any:
    return layers.DenseMap(
        config.dense,
        config.num_classes,
        config.num_prefix_tokens,
        config.stride,
        config.block.activation,
        data_format,
        dtype=policy,
        name="head",
    )
