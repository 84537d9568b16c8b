"""transformers' `PixioModel`, an encoder with several class tokens, such as `facebook/pixio-huge`.

The features are the mean of the class tokens behind the norm. Every token has a position.
"""

from keras_vit.checkpoints.dialects.json_fields import JsonField, JsonFields, Row, number
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers import common, vit
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_any_size

_WORDS = TORCH.names(
    vit.NAMES,
    {
        "class_tokens/tokens": "embeddings.cls_token",
        "block_{l}/attention_norm": "encoder.layer.{l}.norm1",
        "block_{l}/mlp_norm": "encoder.layer.{l}.norm2",
    },
)
_SIZES = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "image_size": 256,
    "patch_size": 16,
}

_ROWS: tuple[Row, ...] = (
    common.architectures(None, "PixioModel"),
    *common.size_rows(mlp_dim=False),
    JsonFields(
        ("mlp_ratio",),
        ("mlp_dim",),
        lambda content: {
            "mlp_dim": int(number(content, "hidden_size") * number(content, "mlp_ratio", 4))
        },
        lambda c: {"mlp_ratio": c.mlp_dim // c.hidden_size},
    ),
    JsonField("n_cls_tokens", "tokens.class_tokens", default=8),
    JsonField("qkv_bias", "block.qkv_bias", default=True),
    *common.arithmetic_rows("gelu", 1e-6),
    *common.DROPOUT_ROWS,
)

FAMILIES = (
    common.dialect(
        "pixio",
        _WORDS,
        _ROWS,
        sizes=_SIZES,
        images=processor_of_any_size,
        expresses=("block.activation", "block.epsilon"),
        fields={"num_classes": 0},
        impossible={
            "an mlp_dim that is no multiple of hidden_size": lambda c: (
                c.mlp_dim % c.hidden_size > 0
            ),
            **common.SQUARE_ALONE,
        },
    ),
)
