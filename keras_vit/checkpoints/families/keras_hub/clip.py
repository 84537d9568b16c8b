"""keras-hub's encoders `CLIPVisionEncoder` and `SigLIPVisionEncoder`.

They are presets themselves, or parts of the backbones with two towers.
"""

import numpy as np

from keras_vit.checkpoints.containers import ComputedArray, Reader, computed
from keras_vit.checkpoints.families.family import Class, Family, Fold, Open
from keras_vit.checkpoints.families.keras_hub.library import KERAS_HUB, KEYS, SHAPES, names
from keras_vit.checkpoints.families.keys import Json, only
from keras_vit.errors import CheckpointError, shown

_CLIP, _SIGLIP = "layers/clip_vision_embedding", "layers/sig_lip_vision_embedding"
_OF_CLIP, _OF_SIGLIP = "layers/clip_encoder_layer{_l}", "layers/sig_lip_encoder_layer{_l}"
_POOL = "layers/sig_lip_multi_head_attention_pooling"
_NUMBERS = {
    f"{_CLIP}/position_embedding/vars/0": f"{_CLIP}/vars/1",
    f"{_SIGLIP}/position_embedding/vars/0": f"{_SIGLIP}/vars/0",
}
"""Positions -> the array `(1, rows)` of row indices, in the order in which the library reads the
rows: zeros in a new CLIP, so that every token gets the first row."""


def _order_rows(reader: Reader, keys: Json) -> Reader:
    """Returns the arrays with the positions in the order in which the library reads them."""
    table, numbers = next((own for own in _NUMBERS.items() if own[0] in reader.shapes), ("", ""))
    if not table:
        return reader
    if numbers not in reader.shapes:
        raise CheckpointError(
            f"{reader.path}: array {numbers!r} is missing, with the row indices of {table!r}."
        )

    def read_in_order() -> np.ndarray:
        array, order = reader.read(table), reader.read(numbers).reshape(-1)
        if order.shape != array.shape[:1] or not np.isin(order, range(len(array))).all():
            raise CheckpointError(
                f"{reader.path}: array {numbers!r} has the row indices of {table!r}; expected "
                f"{len(array)} indices from 0 to {len(array) - 1}, found "
                f"{shown(order.tolist(), quoted=False)}."
            )
        return array[order.astype(np.intp)]

    ordered = ComputedArray(reader.shapes[table], reader.dtypes[table], read_in_order)
    return computed(reader, {table: ordered})


FAMILIES = (
    Family(
        "keras_hub/clip",
        KERAS_HUB,
        names={},
        keys=KEYS,
        shapes=SHAPES,
        classes={
            "CLIPVisionEncoder": Class(
                "CLIPVisionEncoder CLIPBackbone",
                inside="vision_encoder",
                names={
                    **names(_CLIP, _OF_CLIP, "layer_norm_ attention dense_1 dense_2"),
                    "class_token/token": f"{_CLIP}/vars/0 : m",
                    "pre_norm": "layers/layer_normalization",
                    "encoder_norm": "layers/layer_normalization_1",
                    "projection/kernel": {"name": "layers/dense/vars/0", "outside": True},
                },
                keys={"intermediate_output_index": only(None)},
                fixed={
                    "pool.kind": "token",
                    "patch_bias": False,
                    "block.input_norm": "tokens",
                    "block.activation": "quick_gelu",
                    "block.epsilon": 1e-5,
                },
            ),
            "SigLIPVisionEncoder": Class(
                "SigLIPVisionEncoder SigLIPBackbone",
                "siglip",
                inside="vision_encoder",
                names={
                    **names(_SIGLIP, _OF_SIGLIP, "layer_norm self_attn mlp/fc1 mlp/fc2"),
                    "class_token/token": None,
                    "encoder_norm": "layers/layer_normalization",
                    "pool/probe": f"{_POOL}/vars/0",
                    "pool/attention/{qkv}": f"{_POOL}/attention/{{qkv}}_dense",
                    "pool/attention/out": f"{_POOL}/attention/output_dense",
                    "pool/norm": f"{_POOL}/layer_norm",
                    "pool/mlp/dense_0": f"{_POOL}/mlp/fc1",
                    "pool/mlp/dense_1": f"{_POOL}/mlp/fc2",
                },
                # The last norm always uses 1e-6, so another value would give two epsilons.
                keys={"layer_norm_epsilon": only(1e-6)},
                fixed={"pool.kind": "map", "block.activation": "gelu_tanh"},
            ),
        },
        fixed={"num_classes": 0, "position": "learned", "block.qkv_bias": True},
        ignored={"|".join(_NUMBERS.values()): "position indices"},
        open={
            "block.activation": Open(
                "'quick_gelu' in OpenAI's weights, 'gelu_tanh' in the published weights of SigLIP"
            )
        },
        fold=Fold(_order_rows),
    ),
)
