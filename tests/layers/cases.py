"""Small cases of every layer: its arguments, the shapes of its inputs, and its output shape."""

import dataclasses
from typing import Any

import keras

from keras_vit import layers
from keras_vit.layers import blank_weights
from tests.helpers import normal, randomise

BATCH, TOKENS, WIDTH = 2, 6, 8


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer class, its arguments, the shapes of its inputs by name, and its output shape.

    `free` has the input shapes with None for every axis that may differ per call; `other` has a
    second set of input shapes, and `other_output` their output shape. `weights` counts the
    trainable weights, `fixed` the other weights. `batched` tells whether the output has a batch
    axis.
    """

    name: str
    layer: type
    arguments: dict[str, Any]
    inputs: dict[str, tuple]
    output: tuple
    free: dict[str, tuple]
    other: dict[str, tuple]
    other_output: tuple
    weights: int = 0
    fixed: int = 0
    seeds: int = 0
    batched: bool = True

    @property
    def image(self) -> bool:
        return "data_format" in self.arguments

    def make(self, **arguments: Any):
        """A new, unbuilt layer."""
        return self.layer(**{**self.arguments, "name": "layer", **arguments})

    def made(self, **arguments: Any):
        """A built layer with `randomise`d weights."""
        layer = self.make(**arguments)
        with blank_weights():
            layer.build(*self.inputs.values())
        return randomise(layer)

    def data(self, shapes: dict[str, tuple] | None = None) -> dict[str, Any]:
        """An array for each input, by name."""
        shapes = shapes or self.inputs
        return {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}

    def symbols(self, shapes: dict[str, tuple]) -> dict[str, keras.KerasTensor]:
        """A symbolic input for each shape, by name."""
        return {name: keras.Input(batch_shape=shape, name=name) for name, shape in shapes.items()}


def _tokens(name: str, layer: type, arguments: dict, output=(BATCH, TOKENS, WIDTH), **rest) -> Case:
    """A case with an input `(batch, tokens, width)`; `other_output` follows from `output`."""
    shapes = {
        "inputs": {"inputs": (BATCH, TOKENS, WIDTH)},
        "free": {"inputs": (None, None, WIDTH)},
        "other": {"inputs": (3, 4, WIDTH)},
        "other_output": (3, *(side - 2 if side < WIDTH else side for side in output[1:])),
    }
    return Case(name, layer, arguments, output=output, **{**shapes, **rest})


def _images(
    name: str, layer: type, arguments: dict, output: tuple, *, channels: int = 3, **rest
) -> Case:
    """A case with channels-last images of an odd height."""
    return Case(
        name,
        layer,
        {**arguments, "data_format": "channels_last"},
        inputs={"inputs": (BATCH, 9, 6, channels)},
        output=output,
        free={"inputs": (None, None, None, channels)},
        other={"inputs": (3, 8, 12, channels)},
        **rest,
    )


CASES = (
    _tokens("LayerNorm", layers.LayerNorm, {"epsilon": 1e-6}, weights=2),
    _tokens("MLP", layers.MLP, {"mlp_dim": 16, "dropout_rate": 0.5}, weights=4, seeds=1),
    _tokens(
        "Attention", layers.Attention, {"num_heads": 2, "dropout_rate": 0.5}, weights=8, seeds=1
    ),
    Case(
        "Attention-cross",
        layers.Attention,
        {"num_heads": 2, "dropout_rate": 0.5},
        inputs={"inputs": (BATCH, 3, WIDTH), "context": (BATCH, TOKENS, 5)},
        output=(BATCH, 3, WIDTH),
        free={"inputs": (None, None, WIDTH), "context": (None, None, 5)},
        other={"inputs": (3, 1, WIDTH), "context": (3, 4, 5)},
        other_output=(3, 1, WIDTH),
        weights=8,
        seeds=1,
    ),
    _tokens("RMSNorm", layers.RMSNorm, {"epsilon": 1e-6}, weights=1),
    _tokens("LayerScale", layers.LayerScale, {"initial_value": 0.5}, weights=1),
    _tokens("MaskToken", layers.MaskToken, {}, fixed=1),
    _tokens(
        "MLP-gated",
        layers.MLP,
        {"mlp_dim": 12, "gate_activation": "silu", "sub_norm": "rms", "use_bias": False},
        weights=4,
    ),
    _tokens(
        "Attention-sub-norm",
        layers.Attention,
        {"num_heads": 2, "qkv_bias": (True, False, True), "sub_norm": "layer"},
        weights=9,
    ),
    _tokens(
        "RegisterTokens",
        layers.RegisterTokens,
        {"num_tokens": 1, "after": 1},
        (BATCH, TOKENS + 1, WIDTH),
        weights=1,
    ),
    _images(
        "Rescale",
        layers.Rescale,
        {"mean": [0.1, 0.2, 0.3], "std": 0.25},
        (BATCH, 9, 6, 3),
        other_output=(3, 8, 12, 3),
    ),
    _tokens("ClassToken", layers.ClassToken, {}, (BATCH, TOKENS + 1, WIDTH), weights=1),
    _tokens("Pool-token", layers.Pool, {"kind": "token"}, (BATCH, WIDTH)),
    _tokens("Pool-gap", layers.Pool, {"kind": "gap"}, (BATCH, WIDTH)),
    _tokens(
        "Pool-token_and_mean",
        layers.Pool,
        {"kind": "token_and_mean", "skip": 2},
        (BATCH, 2 * WIDTH),
    ),
    Case(
        "DistilledHead",
        layers.DistilledHead,
        {"num_classes": 5},
        inputs={"inputs": (BATCH, 2, WIDTH)},
        output=(BATCH, 5),
        free={"inputs": (None, 2, WIDTH)},
        other={"inputs": (3, 2, WIDTH)},
        other_output=(3, 5),
        weights=4,
    ),
    _tokens("MAPHead", layers.MAPHead, {"num_heads": 2, "mlp_dim": 16}, (BATCH, WIDTH), weights=15),
    _tokens("StochasticDepth", layers.StochasticDepth, {"rate": 0.5}, seeds=1),
    _tokens(
        "TransformerBlock",
        layers.TransformerBlock,
        {
            "num_heads": 2,
            "mlp_dim": 16,
            "dropout_rate": 0.5,
            "attention_dropout_rate": 0.5,
            "stochastic_depth_rate": 0.5,
        },
        weights=16,
        seeds=4,
    ),
    _tokens(
        "TransformerBlock-layer-scale",
        layers.TransformerBlock,
        {"num_heads": 2, "mlp_dim": 16, "layer_scale": 0.5, "norm": "rms", "mlp_bias": False},
        weights=14,
    ),
    *(
        Case(
            f"TransformerBlock-{form}",
            layers.TransformerBlock,
            {"num_heads": 2, "mlp_dim": 16, "rope": form},
            inputs={"inputs": (BATCH, TOKENS, WIDTH), "rotary": table(TOKENS)},
            output=(BATCH, TOKENS, WIDTH),
            free={"inputs": (None, None, WIDTH), "rotary": table(None)},
            other={"inputs": (3, 4, WIDTH), "rotary": table(4)},
            other_output=(3, 4, WIDTH),
            weights=16 + (form == "mixed"),
        )
        for form, table in (
            ("dinov3", lambda tokens: (2, tokens, WIDTH // 2)),
            ("axial", lambda tokens: (2, tokens, WIDTH // 2)),
            ("mixed", lambda tokens: (tokens, 2)),
        )
    ),
    Case(
        "RelativePositionBias",
        layers.RelativePositionBias,
        {"num_heads": 3, "grid": (2, 3)},
        inputs={"inputs": (BATCH, 7, WIDTH)},
        output=(1, 3, 7, 7),
        free={"inputs": (None, 7, None)},
        other={"inputs": (3, 7, WIDTH)},
        other_output=(1, 3, 7, 7),
        weights=1,
        batched=False,
    ),
    *(
        Case(
            f"RotaryPositions-{form}",
            layers.RotaryPositions,
            {"head_dim": 4, "form": form, "num_prefix_tokens": 1},
            inputs={"patches": (BATCH, 2, 3, WIDTH)},
            output=output(7),
            free={"patches": (None, None, None, WIDTH)},
            other={"patches": (3, 1, 4, WIDTH)},
            other_output=output(5),
            batched=False,
        )
        for form, output in (
            ("dinov3", lambda tokens: (2, tokens, 4)),
            ("mixed", lambda tokens: (tokens, 2)),
        )
    ),
    _tokens(
        "AddPositionEmbs",
        layers.AddPositionEmbs,
        {"grid": (2, 3)},
        free={"inputs": (None, TOKENS, WIDTH)},
        other={"inputs": (3, TOKENS, WIDTH)},
        other_output=(3, TOKENS, WIDTH),
        weights=1,
    ),
    *(
        Case(
            f"AddPositionEmbs-{position}-resized",
            layers.AddPositionEmbs,
            {"grid": (2, 3), "class_token": True, "position": position},
            inputs={"inputs": (BATCH, 13, WIDTH), "patches": (BATCH, 3, 4, WIDTH)},
            output=(BATCH, 13, WIDTH),
            free={"inputs": (None, None, WIDTH), "patches": (None, None, None, WIDTH)},
            other={"inputs": (3, 7, WIDTH), "patches": (3, 2, 3, WIDTH)},
            other_output=(3, 7, WIDTH),
            weights=int(position == "learned"),
        )
        for position in ("learned", "sincos2d")
    ),
    _images(
        "PatchEmbedding",
        layers.PatchEmbedding,
        {"hidden_size": WIDTH, "patch_size": (2, 3)},
        (BATCH, 8, WIDTH),
        other_output=(3, 16, WIDTH),
        weights=2,
    ),
    _images(
        "PatchEmbedding-grid",
        layers.PatchEmbedding,
        {"hidden_size": WIDTH, "patch_size": (2, 3), "flatten": False},
        (BATCH, 4, 2, WIDTH),
        other_output=(3, 4, 4, WIDTH),
        weights=2,
    ),
    _images(
        "StdConv2D",
        layers.StdConv2D,
        {"filters": 4, "kernel_size": 3, "strides": 2},
        (BATCH, 5, 3, 4),
        other_output=(3, 4, 6, 4),
        weights=1,
    ),
    _images(
        "ResNetRoot",
        layers.ResNetRoot,
        {"filters": 64},
        (BATCH, 3, 2, 64),
        other_output=(3, 2, 3, 64),
        weights=3,
    ),
    _images(
        "BottleneckUnit",
        layers.BottleneckUnit,
        {"filters": 32, "strides": 2},
        (BATCH, 5, 3, 128),
        other_output=(3, 4, 6, 128),
        channels=16,
        weights=12,
    ),
)

IMAGE_CASES = tuple(case for case in CASES if case.image)
RANDOM_CASES = tuple(case for case in CASES if case.seeds)
