"""transformers' tower of InternVL (arXiv 2504.10479)."""

from typing import Any

from keras_vit.checkpoints.dialects.dinov3_rows import SCALED
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonField,
    JsonFields,
    constant,
    one_of,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section, norms_of_qk
from keras_vit.checkpoints.dialects.transformers import vit
from keras_vit.checkpoints.dialects.transformers.towers import tower_or_whole
from keras_vit.errors import shown

_OWN: Section = {
    "block_{l}/attention/{qkv}": "encoder.layer.{l}.attention.{q}_proj",
    **norms_of_qk("encoder.layer.{l}.attention.{q}_norm", "width"),
    "block_{l}/attention/out": "encoder.layer.{l}.attention.projection_layer",
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.lambda_1",
    "block_{l}/mlp/dense_0": "encoder.layer.{l}.mlp.fc1",
    "block_{l}/mlp/dense_1": "encoder.layer.{l}.mlp.fc2",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.lambda_2",
    "class_token/token": "embeddings.cls_token",
}
_NORMS = {"layer_norm": "layer", "rms_norm": "rms"}
_WIDTH = one_of({False: None, True: "width"})


def _read_qk_norm(content: Json) -> dict[str, Any]:
    qk_norm = _WIDTH.read(content.get("use_qk_norm", False))
    kind, epsilon = (content.get(key) for key in ("norm_type", "layer_norm_eps"))
    if qk_norm and (kind, epsilon) != ("rms_norm", 1e-6):
        raise ValueError(
            f"with norm_type={shown(kind)} and layer_norm_eps={shown(epsilon)}, expected "
            "norm_type='rms_norm' and layer_norm_eps=1e-06: the norms of queries and keys are "
            "these, and keras_vit norms everything alike"
        )
    return {"block.qk_norm": qk_norm}


_WORDS = TORCH.names(vit.NAMES, _OWN)

FAMILIES = (
    tower_or_whole(
        "internvl",
        "internvl_vision",
        "InternVLVisionModel",
        ("", "model.vision_tower.", "vision_tower."),
        {path: n for path, n in _WORDS.items() if not path.startswith("encoder_norm/")},
        (1024, 4096, 24, 16, 448, 14),
        "gelu",
        1e-6,
        {"block.layer_scale": 1e-5, "pool.norm": "none"},
        rows=(
            JsonField("attention_bias", "block.qkv_bias", default=False),
            JsonField("layer_scale_init_value", "block.layer_scale"),
            JsonField("norm_type", "block.norm", one_of(_NORMS), default="layer_norm"),
            JsonFields(
                ("use_qk_norm",),
                ("block.qk_norm",),
                _read_qk_norm,
                lambda c: {"use_qk_norm": _WIDTH.write(c.block.qk_norm)},
            ),
            constant("use_mean_pooling", True),
            constant("use_absolute_position_embeddings", True),
        ),
        impossible={
            **SCALED,
            "norms of each head of queries and keys": "block.qk_norm=head",
            "norms of queries and keys that are not RMSNorm with an epsilon of 1e-6": (
                "block.qk_norm block.norm!=rms or block.qk_norm block.epsilon!=1e-06"
            ),
        },
    ),
)
