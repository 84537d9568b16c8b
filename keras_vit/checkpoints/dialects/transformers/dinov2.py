"""transformers' `Dinov2Model` and `Dinov2ForImageClassification`, and both with registers.

An example is `facebook/dinov2-base`.

The classifier reads the class token and, behind it, the mean of the patches. Positions belong to
the class token and the patches; registers join after them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Limits, Names
from keras_vit.checkpoints.dialects.dinov3_rows import SCALED
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonField,
    JsonFields,
    Row,
    note,
    number,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.torch_conventions import compute_ratio
from keras_vit.checkpoints.dialects.transformers import common, vit
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_any_size
from keras_vit.config import ViTConfig

_NAMES: Section = {
    "mask_token/token": "embeddings.mask_token : 1 m",
    "register_tokens/tokens": "embeddings.register_tokens",
    "block_{l}/attention_norm": "encoder.layer.{l}.norm1",
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.layer_scale1.lambda1",
    "block_{l}/mlp_norm": "encoder.layer.{l}.norm2",
    "block_{l}/mlp/dense_0": "encoder.layer.{l}.mlp.fc1",
    "block_{l}/mlp/{gate}/kernel": "encoder.layer.{l}.mlp.weights_in.weight : (gate f) m",
    "block_{l}/mlp/{gate}/bias": "encoder.layer.{l}.mlp.weights_in.bias : (gate f)",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.layer_scale2.lambda1",
    "block_{l}/mlp/dense_1": [
        {"name": "encoder.layer.{l}.mlp.fc2", "when": "block.gated!"},
        "encoder.layer.{l}.mlp.weights_out",
    ],
}
_WORDS: dict[str, Names] = {
    **TORCH.names(vit.NAMES, _NAMES),
    **common.classifier_names({"pool.kind": "token_and_mean"}),
}


def swiglu_width(hidden: int) -> int:
    """Returns the width of the gated MLP: two thirds of the plain MLP's, up to a multiple of 8."""
    return (int(hidden * 2 / 3) + 7) // 8 * 8


def read_mlp(content: Json, hidden: int) -> dict[str, Any]:
    """Returns the fields of the MLP by `use_swiglu_ffn` and the width of a plain MLP."""
    if content.get("use_swiglu_ffn"):
        return {"block.gated": True, "block.activation": "silu", "mlp_dim": swiglu_width(hidden)}
    return {"block.gated": False, "mlp_dim": hidden}


def write_hidden(config: ViTConfig) -> int:
    """Returns the width of the plain MLP from which that of the model's MLP follows."""
    return config.mlp_dim * 3 // 2 if config.block.gated else config.mlp_dim


OWN_GATE: Limits = {"a gate other than SiLU": "block.gated block.activation!=silu"}
UNEVEN: Limits = {
    **OWN_GATE,
    "a gated MLP whose width is no multiple of 8": lambda config: (
        config.block.gated and swiglu_width(write_hidden(config)) != config.mlp_dim
    ),
}
"""Models whose width of the MLP follows from no plain MLP's."""


def _read_ratio(content: Json) -> dict[str, Any]:
    hidden = number(content, "hidden_size") * number(content, "mlp_ratio", 4)
    return read_mlp(content, int(hidden))


def _write_float_ratio(config: ViTConfig) -> Mapping[str, Any]:
    ratio = compute_ratio(write_hidden(config), config.hidden_size)
    return {"mlp_ratio": ratio, "use_swiglu_ffn": config.block.gated}


MLP = JsonFields(
    ("mlp_ratio", "use_swiglu_ffn"),
    ("block.gated", "block.activation", "mlp_dim"),
    _read_ratio,
    _write_float_ratio,
)
"""The row of the MLP for a class whose `mlp_ratio` is a float; `BLOCK_ROWS` precede it."""


def _write_ratio(config: ViTConfig) -> int | None:
    """Returns the integer `mlp_ratio` that gives the model's `mlp_dim`, or None."""
    for ratio in range(1, 33):
        hidden = config.hidden_size * ratio
        if (swiglu_width(hidden) if config.block.gated else hidden) == config.mlp_dim:
            return ratio
    return None


BLOCK_ROWS: tuple[Row, ...] = (
    JsonField("qkv_bias", "block.qkv_bias", default=True),
    *common.arithmetic_rows("gelu", 1e-6),
    *common.DROPOUT_ROWS,
    JsonField("drop_path_rate", "stochastic_depth_rate"),
)
"""The rows of DINOv2's blocks, which RADIO and TIPSv2 have too.

The row of the MLP follows them: the activation of a gated MLP is SiLU, whatever `hidden_act` says.
"""

_ROWS: tuple[Row, ...] = (
    *common.size_rows(mlp_dim=False),
    *BLOCK_ROWS,
    dataclasses.replace(
        MLP, write=lambda c: {"mlp_ratio": _write_ratio(c), "use_swiglu_ffn": c.block.gated}
    ),
    JsonField("layerscale_value", "block.layer_scale"),
    *common.LABEL_ROWS,
)


def _dinov2(
    model_type: str, class_name: str, words: Mapping[str, Names], rows: tuple[Row, ...], **more: Any
) -> Dialect:
    classes = common.architectures(f"{class_name}ForImageClassification", f"{class_name}Model")
    return common.dialect(
        model_type,
        words,
        (classes, *_ROWS, *rows),
        prefix=f"{model_type}.",
        sizes={"hidden_size": 768, "num_attention_heads": 12},
        images=processor_of_any_size,
        expresses=("block.activation", "block.epsilon"),
        poolings=("token", "token_and_mean"),
        fields={"block.layer_scale": 1e-5},
        impossible={
            **SCALED,
            **OWN_GATE,
            "a head that reads anything but the class token and the mean of the patches": (
                "pool.kind=token_and_mean num_classes! or pool.kind!=token_and_mean num_classes"
            ),
            "an mlp_dim that follows from no integer mlp_ratio": lambda c: _write_ratio(c) is None,
        },
        **more,
    )


_dinov2_plain = _dinov2(
    "dinov2",
    "Dinov2",
    {path: names for path, names in _WORDS.items() if not path.startswith("register_tokens/")},
    (note("use_mask_token", lambda facts: facts.config.tokens.mask),),
)

_dinov2_with_registers = _dinov2(
    "dinov2_with_registers",
    "Dinov2WithRegisters",
    _WORDS,
    (JsonField("num_register_tokens", "tokens.registers", default=4),),
    resize="bicubic_antialias",
    positions=("learned_except_registers",),
)

FAMILIES = (_dinov2_plain, _dinov2_with_registers)
