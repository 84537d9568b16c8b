"""transformers' InternVL vision tower (arXiv 2504.10479)."""

from typing import Any

from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keys import Codec, Json, only
from keras_vit.checkpoints.families.names import Section, norms_of_qk
from keras_vit.checkpoints.families.transformers import library, vit
from keras_vit.checkpoints.families.transformers.clip import KEYS
from keras_vit.errors import shown

_NAMES: Section = {
    **vit.NAMES,
    "block_{l}/attention/{qkv}": "encoder.layer.{l}.attention.{q}_proj",
    **norms_of_qk("encoder.layer.{l}.attention.{q}_norm", "width"),
    "block_{l}/attention/out": "encoder.layer.{l}.attention.projection_layer",
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.lambda_1",
    "block_{l}/mlp/dense_0": "encoder.layer.{l}.mlp.fc1",
    "block_{l}/mlp/dense_1": "encoder.layer.{l}.mlp.fc2",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.lambda_2",
    "encoder_norm": None,
}


def _read_qk_norm(keys: Json) -> dict[str, Any]:
    kind, epsilon = keys.get("norm_type"), keys.get("layer_norm_eps")
    if keys["use_qk_norm"] and (kind, epsilon) != ("rms_norm", 1e-6):
        raise ValueError(
            f"with norm_type={shown(kind)} and layer_norm_eps={shown(epsilon)}, expected "
            "norm_type='rms_norm' and layer_norm_eps=1e-06, as in the norms of queries and keys: "
            "in keras_vit, every norm is the same"
        )
    return {"block.qk_norm": "width" if keys["use_qk_norm"] else None}


_QK_NORM = Codec(
    "block.qk_norm", _read_qk_norm, lambda config: {"use_qk_norm": config.block.qk_norm == "width"}
)

INTERNVL = Family(
    "transformers/internvl_vision",
    library.TRANSFORMERS,
    _NAMES,
    keys={
        **KEYS,
        "attention_bias": "block.qkv_bias",
        "layer_scale_init_value": "block.layer_scale",
        "norm_type": ("block.norm", {"layer_norm": "layer", "rms_norm": "rms"}),
        "use_qk_norm": _QK_NORM,
        "use_mean_pooling": only(True),
        "use_absolute_position_embeddings": only(True),
    },
    shapes=library.SHAPES,
    fixed={
        "pool.kind": "token",
        "pool.norm": "none",
        "position": "learned",
        "block.layer_scale": 1e-5,
    },
    classes={"InternVLVisionModel": Class("internvl_vision internvl", head=False)},
)
