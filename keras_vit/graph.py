"""Figure 1 of the paper, top to bottom: the layers of a configuration, and the way through them."""

from typing import Any

import keras

from keras_vit import layers
from keras_vit.config import ViTConfig
from keras_vit.layers.precision import float32_under_mixed


class Graph:
    """The one description of the model's graph.

    `VisionTransformer` calls it once on the symbolic `images`, from which Keras makes a
    functional model, and afterwards on every batch. A part that the configuration lacks is None.

    Keras's own walk through a functional graph would compute the same. It keeps the output of
    every layer until the last one is done; a call of this class lets an output go when the next
    layer has read it (benchmarks/README.md, "Memory").

    Args:
        config: of the model.
        data_format: `"channels_last"` or `"channels_first"`.
        policy: dtype policy of the model.
        remat: whether the blocks are computed again for the gradient.
    """

    def __init__(self, config: ViTConfig, data_format: str, policy: Any, remat: bool) -> None:
        numerics = config.numerics
        float32 = float32_under_mixed(policy)
        self.images = keras.Input(_image_shape(config, data_format), name="images")
        # A functional model without layers: what it returns is what Keras makes of its input.
        self.standardise = keras.Model(self.images, self.images, name="standardise").call
        self.stem = _stem(config, data_format, policy)
        self.patch_embedding = layers.PatchEmbedding(
            config.hidden_size,
            config.patch_size,
            flatten=False,
            data_format=data_format,
            dtype=policy,
            name="patch_embedding",
        )
        self.patch_tokens = keras.layers.Reshape(
            (-1, config.hidden_size), dtype=policy, name="patch_tokens"
        )
        self.add_positions = layers.AddPositionEmbs(
            config.source_grid,
            class_token=config.has_class_position,
            position=config.position,
            resize=numerics.position_resize,
            dtype=policy,
            name="position_embedding",
        )
        self.resizes_positions = config.grid != config.source_grid
        self.position_before_class = config.position_before_class
        self.class_token = (
            layers.ClassToken(dtype=policy, name="class_token") if config.has_class_token else None
        )
        self.dropout = keras.layers.Dropout(
            config.dropout_rate, dtype=policy, name="embedding_dropout"
        )
        last = max(config.num_layers - 1, 1)  # the rate grows linearly to the last block
        self.blocks = [
            layers.TransformerBlock(
                config.num_heads,
                config.mlp_dim,
                dropout_rate=config.dropout_rate,
                attention_dropout_rate=config.attention_dropout_rate,
                stochastic_depth_rate=config.stochastic_depth_rate * i / last,
                gelu=numerics.gelu,
                layer_norm_epsilon=numerics.layer_norm_epsilon,
                qkv_bias=config.qkv_bias,
                remat=remat,
                dtype=policy,
                name=f"block_{i}",
            )
            for i in range(config.num_layers)
        ]
        self.norm = layers.LayerNorm(
            epsilon=numerics.layer_norm_epsilon, dtype=float32, name="encoder_norm"
        )
        self.pool = _pool(config, policy)
        self.pool_before_norm = numerics.pool_before_norm
        self.pre_logits = _pre_logits(config, float32)
        self.head = _head(config, float32)

    def __call__(self, images: Any, training: bool | None = None) -> Any:
        """Returns the logits of `images`, symbolic or real, standardised before."""
        # `stateless_call` opens no context of a call: layers know `training` by argument alone.
        mode = {} if training is None else {"training": training}
        z = self._embed(images, mode)  # Eq. 1
        for block in self.blocks:  # Eqs. 2 and 3
            z = block(z, **mode)
        y = self._encode(z)  # Eq. 4
        y = self.pre_logits(y)
        return y if self.head is None else self.head(y)

    def _embed(self, images: Any, mode: dict[str, bool]) -> Any:
        """z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos  (Eq. 1)."""
        for stage in self.stem:
            images = stage(images)
        grid = self.patch_embedding(images)  # (batch, rows, columns, hidden_size)
        z = self.patch_tokens(grid)  # (batch, rows * columns, hidden_size)
        patches = {"patches": grid} if self.resizes_positions else {}
        if self.position_before_class:
            z = self.add_positions(z, **patches)
        if self.class_token is not None:
            z = self.class_token(z)
        if not self.position_before_class:
            z = self.add_positions(z, **patches)
        return self.dropout(z, **mode)

    def _encode(self, z: Any) -> Any:
        """y = LN(z_L^0)  (Eq. 4); the reference norms every token, and pools then."""
        return self.norm(self.pool(z)) if self.pool_before_norm else self.pool(self.norm(z))


def _image_shape(config: ViTConfig, data_format: str) -> tuple[int | None, ...]:
    height, width = config.image_size or (None, None)
    if data_format == "channels_last":
        return height, width, config.channels
    return config.channels, height, width


def _stem(config: ViTConfig, data_format: str, policy: Any) -> list[Any]:
    """The ResNet of a hybrid (section 3.1), from images to a feature map, stage by stage."""
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
    stages: list[Any] = [layers.ResNetRoot(resnet.width, **common, name="root")]
    for s, units in enumerate(resnet.num_layers, start=1):
        for u in range(1, units + 1):
            strides = 2 if s > 1 and u == 1 else 1
            filters = resnet.width * 2 ** (s - 1)
            name = f"stage{s}_unit{u}"
            stages.append(layers.BottleneckUnit(filters, strides, **common, name=name))
    return stages


def _pool(config: ViTConfig, policy: Any) -> Any:
    """The layer from encoded tokens to what the head reads."""
    if config.classifier == "map":
        return layers.MAPHead(
            config.num_heads,
            config.mlp_dim,
            gelu=config.numerics.gelu,
            layer_norm_epsilon=config.numerics.layer_norm_epsilon,
            dtype=policy,
            name="pool",
        )
    if not config.is_pooled:
        return keras.layers.Identity(dtype=float32_under_mixed(policy).name, name="pool")
    kind = config.classifier
    if kind == "gap" and config.has_class_token and not config.class_token_in_mean:
        kind = "gap_without_first"
    return layers.Pool(kind, dtype=float32_under_mixed(policy), name="pool")


def _pre_logits(config: ViTConfig, float32: Any) -> Any:
    """The hidden layer of the pre-training head (section 3.1), where there is one."""
    if config.representation_size is None:
        return keras.layers.Identity(dtype=float32.name, name="pre_logits")
    return keras.layers.Dense(
        config.representation_size,
        activation="tanh",
        kernel_initializer=layers.LecunNormal(),
        dtype=float32,
        name="pre_logits",
    )


def _head(config: ViTConfig, float32: Any) -> Any:
    """The linear classifier, or None for a model of features."""
    if config.num_classes == 0:
        return None
    return keras.layers.Dense(
        config.num_classes,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(config.head_bias_init),
        dtype=float32,
        name="head",
    )
