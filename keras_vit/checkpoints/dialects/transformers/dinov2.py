"""transformers' `Dinov2Model` and `Dinov2ForImageClassification`, and both with registers.

An example is `facebook/dinov2-base`.

The classifier reads the class token and, behind it, the mean of the patches. Positions belong to
the class token and the patches; registers join after them.
"""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Names
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonField,
    JsonFields,
    JsonNote,
    Row,
    number,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_any_size
from keras_vit.models.config import ViTConfig

_WORDS: dict[str, Names] = {
    **TORCH.names("transformers/vit", "transformers/dinov2"),
    **common.classifier_names(pooling="token_and_mean"),
}


def swiglu_width(hidden: int) -> int:
    """Returns the width of the gated MLP: two thirds of the plain MLP's, up to a multiple of 8."""
    return (int(hidden * 2 / 3) + 7) // 8 * 8


def read_mlp(content: Json, hidden: int) -> dict[str, Any]:
    """Returns the fields of the MLP by `use_swiglu_ffn` and the width of a plain MLP."""
    if content.get("use_swiglu_ffn"):
        return {"mlp": "gated", "mlp_dim": swiglu_width(hidden)}
    return {"mlp": "plain", "mlp_dim": hidden}


def _write_ratio(config: ViTConfig) -> int | None:
    """Returns the integer `mlp_ratio` that gives the model's `mlp_dim`, or None."""
    gated = config.mlp == "gated"
    for ratio in range(1, 33):
        hidden = config.hidden_size * ratio
        if (swiglu_width(hidden) if gated else hidden) == config.mlp_dim:
            return ratio
    return None


_ROWS: tuple[Row, ...] = (
    *common.size_rows(mlp_dim=False),
    JsonFields(
        ("mlp_ratio", "use_swiglu_ffn"),
        ("mlp", "mlp_dim"),
        lambda content: read_mlp(
            content, int(number(content, "hidden_size") * number(content, "mlp_ratio", 4))
        ),
        lambda c: {"mlp_ratio": _write_ratio(c), "use_swiglu_ffn": c.mlp == "gated"},
    ),
    JsonField("qkv_bias", "qkv_bias", default=True),
    *common.arithmetic_rows("gelu", 1e-6),
    *common.DROPOUT_ROWS,
    JsonField("drop_path_rate", "stochastic_depth_rate"),
    JsonField("layerscale_value", "layer_scale_init"),
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
        images=processor_of_any_size,
        expresses=("gelu", "layer_norm_epsilon"),
        poolings=("token", "token_and_mean"),
        fields={"layer_scale": True, **more.pop("fields", {})},
        impossible={
            "a head that reads anything but the class token and the mean of the patches": (
                "pooling=token_and_mean num_classes! or pooling!=token_and_mean num_classes"
            ),
            "an mlp_dim that follows from no integer mlp_ratio": lambda c: _write_ratio(c) is None,
        },
        **more,
    )


dinov2 = _dinov2(
    "dinov2",
    "Dinov2",
    {path: names for path, names in _WORDS.items() if not path.startswith("register_tokens/")},
    (JsonNote("use_mask_token", lambda facts: facts.config.mask_token),),
    reasons={"register_tokens/": "only dinov2_with_registers has registers"},
)

dinov2_with_registers = _dinov2(
    "dinov2_with_registers",
    "Dinov2WithRegisters",
    _WORDS,
    (JsonField("num_register_tokens", "num_registers", default=4),),
    resize="bicubic_antialias",
    fields={"position_before_registers": True},
)
