"""Small cases of every layer: its arguments, the shapes of its inputs, and its output shape."""

import dataclasses
from typing import Any

import keras

from keras_vit import layers
from keras_vit.layers import blank_weights
from tests.helpers import randomise
from tests.plain import normal

BATCH, TOKENS, WIDTH = 2, 6, 8


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer class, its arguments, the shapes of its inputs by name, and its output shape.

    `other` has a second set of input shapes; axes that differ between the two may differ per call.
    `batched` tells whether the output has a batch axis.
    """

    name: str
    layer: type
    arguments: dict[str, Any]
    inputs: dict[str, tuple]
    output: tuple
    other: dict[str, tuple]
    batched: bool = True

    @property
    def image(self) -> bool:
        return "data_format" in self.arguments

    @property
    def random(self) -> bool:
        return any(name.endswith("rate") for name in self.arguments)

    @property
    def free(self) -> dict[str, tuple]:
        """The input shapes with None for every axis that may differ per call."""
        return {
            name: tuple(a if a == b else None for a, b in zip(shape, self.other[name], strict=True))
            for name, shape in self.inputs.items()
        }

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


def _tokens(name: str, arguments: dict, output=(BATCH, TOKENS, WIDTH), other=(3, 4, WIDTH)) -> Case:
    """A case with an input `(batch, tokens, width)`; a name begins with that of its class."""
    inputs = {"inputs": (BATCH, TOKENS, WIDTH)}
    return _case(name, arguments, inputs, output, {"inputs": other})


def _images(name: str, arguments: dict, output: tuple, channels: int = 3) -> Case:
    """A case with channels-last images of an odd height."""
    inputs, other = {"inputs": (BATCH, 9, 6, channels)}, {"inputs": (3, 8, 12, channels)}
    return _case(name, {**arguments, "data_format": "channels_last"}, inputs, output, other)


def _case(name: str, *fields: Any, **more: Any) -> Case:
    return Case(name, getattr(layers, name.partition("-")[0]), *fields, **more)


RATES = dict.fromkeys(("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"), 0.5)
BLOCK = {"num_heads": 2, "mlp_dim": 16}
SWIGLU = {"gated": True, "activation": "silu", "mlp_bias": False}
RMS = {"norm": "rms"}
SUB_NORM = {"qkv_bias": (True, False, True), "sub_norm": "attention"}
SCALED = {**RMS, "mlp_bias": False, "layer_scale": 0.5}

CASES = (
    _tokens("LayerNorm", {"epsilon": 1e-6}),
    _tokens("MLP", {"mlp_dim": 16, "dropout_rate": 0.5}),
    _tokens("Attention", {"num_heads": 2, "dropout_rate": 0.5}),
    _case(
        "Attention-cross",
        {"num_heads": 2, "dropout_rate": 0.5},
        inputs={"inputs": (BATCH, 3, WIDTH), "context": (BATCH, TOKENS, 5)},
        output=(BATCH, 3, WIDTH),
        other={"inputs": (3, 1, WIDTH), "context": (3, 4, 5)},
    ),
    _tokens("RMSNorm", {"epsilon": 1e-6}),
    _tokens("LayerScale", {"initial_value": 0.5}),
    _tokens("MaskToken", {}),
    _tokens("MLP-gated", {"mlp_dim": 12, "block": {**SWIGLU, "sub_norm": "mlp", **RMS}}),
    _tokens("Attention-sub-norm", {"num_heads": 2, "block": SUB_NORM}),
    _tokens("Attention-qk-norm-rms", {"num_heads": 2, "block": {"qk_norm": "width", **RMS}}),
    _tokens("RegisterTokens", {"num_tokens": 1, "after": 1}, (BATCH, TOKENS + 1, WIDTH)),
    _images("Rescale", {"mean": [0.1, 0.2, 0.3], "std": 0.25}, (BATCH, 9, 6, 3)),
    _tokens("ClassToken", {}, (BATCH, TOKENS + 1, WIDTH)),
    _tokens("Pool-token", {"kind": "token"}, (BATCH, WIDTH)),
    _tokens("Pool-joined", {"kind": "tokens", "num_class_tokens": 2}, (BATCH, 2 * WIDTH)),
    _tokens("Pool-gap", {"kind": "gap"}, (BATCH, WIDTH)),
    _tokens("Pool-token_and_mean", {"kind": "token_and_mean", "skip": 2}, (BATCH, 2 * WIDTH)),
    _case(
        "DistilledHead",
        {"num_classes": 5},
        inputs={"inputs": (BATCH, 2, WIDTH)},
        output=(BATCH, 5),
        other={"inputs": (3, 2, WIDTH)},
    ),
    _tokens("MAPHead", BLOCK, (BATCH, WIDTH)),
    _tokens("StochasticDepth", {"rate": 0.5}),
    _tokens("TransformerBlock", {**BLOCK, **RATES}),
    _tokens("TransformerBlock-layer-scale", {**BLOCK, "block": SCALED}),
    *(
        _case(
            f"TransformerBlock-{form}",
            {**BLOCK, "rope": {"form": form}},
            inputs={"inputs": (BATCH, TOKENS, WIDTH), "rotary": (*before, TOKENS, *after)},
            output=(BATCH, TOKENS, WIDTH),
            other={"inputs": (3, 4, WIDTH), "rotary": (*before, 4, *after)},
        )
        for form, before, after in (("dinov3", [2], [4]), ("axial", [2], [4]), ("mixed", [], [2]))
    ),
    _case(
        "RelativePositionBias",
        {"num_heads": 3, "grid": (2, 3)},
        inputs={"inputs": (BATCH, 7, WIDTH)},
        output=(1, 3, 7, 7),
        other={"inputs": (3, 7, WIDTH)},
        batched=False,
    ),
    *(
        _case(
            f"RotaryPositions-{form}",
            {"head_dim": 4, "form": form, "num_prefix_tokens": 1},
            inputs={"patches": (BATCH, 2, 3, WIDTH)},
            output=output,
            other={"patches": (3, 1, 4, WIDTH)},
            batched=False,
        )
        for form, output in (("dinov3", (2, 7, 4)), ("mixed", (7, 2)))
    ),
    _tokens("AddPositionEmbs", {"grid": (2, 3)}, other=(3, TOKENS, WIDTH)),
    *(
        _case(
            f"AddPositionEmbs-{position}-resized",
            {"grid": (2, 3), "class_token": True, "position": position},
            inputs={"inputs": (BATCH, 13, WIDTH), "patches": (BATCH, 3, 4, WIDTH)},
            output=(BATCH, 13, WIDTH),
            other={"inputs": (3, 7, WIDTH), "patches": (3, 2, 3, WIDTH)},
        )
        for position in ("learned", "sincos2d")
    ),
    _images("PatchEmbedding", {"hidden_size": WIDTH, "patch_size": (2, 3)}, (BATCH, 8, WIDTH)),
    _images(
        "PatchEmbedding-grid",
        {"hidden_size": WIDTH, "patch_size": (2, 3), "flatten": False},
        (BATCH, 4, 2, WIDTH),
    ),
    _images("StdConv2D", {"filters": 4, "kernel_size": 3, "strides": 2}, (BATCH, 5, 3, 4)),
    _images("ResNetRoot", {"filters": 64}, (BATCH, 3, 2, 64)),
    _images("BottleneckUnit", {"filters": 32, "strides": 2}, (BATCH, 5, 3, 128), channels=16),
)

IMAGE_CASES = tuple(case for case in CASES if case.image)
RANDOM_CASES = tuple(case for case in CASES if case.random)
