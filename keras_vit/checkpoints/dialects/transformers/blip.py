"""transformers' BLIP (arXiv 2201.12086), BLIP-2 (arXiv 2301.12597) and InstructBLIP.

Queries, keys and values of the tower are one product.
"""

from keras_vit.checkpoints.dialects.base import Dialect, Feature
from keras_vit.checkpoints.dialects.json_fields import JsonField, Row
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.towers import NAMES, tower_or_whole

_OWN: Section = {
    "class_token/token": "embeddings.class_embedding",
    "position_embedding/embedding": "embeddings.position_embedding",
    "block_{l}/attention/{qkv}/kernel": "encoder.layers.{l}.self_attn.qkv.weight : (qkv h d) m",
    "block_{l}/attention/{qkv}/bias": "encoder.layers.{l}.self_attn.qkv.bias : (qkv h d)",
    "block_{l}/attention/out": "encoder.layers.{l}.self_attn.projection",
}
_QKV_BIAS: tuple[Row, ...] = (JsonField("qkv_bias", "block.qkv_bias", default=True),)


def _blip(
    model: str,
    class_name: str,
    sizes: tuple[int, int, int, int, int, int] = (1408, 6144, 39, 16, 224, 14),
    epsilon: float = 1e-6,
    rows: tuple[Row, ...] = _QKV_BIAS,
) -> Dialect:
    """Returns the dialect of a tower; arguments as of `tower_or_whole`."""
    return tower_or_whole(
        model,
        f"{model.replace('-', '_')}_vision_model",
        class_name,
        ("", "vision_model."),
        TORCH.names(NAMES, _OWN),
        sizes,
        "gelu",
        epsilon,
        {},
        rows,
        impossible=common.SQUARE_ALONE,
        feature=Feature(has_pooler=False),  # the pooled output has the last norm a second time
    )


FAMILIES = (
    _blip("blip", "BlipVisionModel", (768, 3072, 12, 12, 384, 16), 1e-5, rows=()),
    _blip("blip-2", "Blip2VisionModel"),
    _blip("instructblip", "InstructBlipVisionModel"),
)
