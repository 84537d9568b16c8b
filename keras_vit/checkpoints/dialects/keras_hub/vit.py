"""keras-hub's `ViTBackbone` and `ViTImageClassifier`, such as `vit_base_patch16_224_imagenet`.

With `intermediate_dim` the first Dense layer of the task is `pre_logits` and the second
the head; without `intermediate_dim` the first is the head.
"""

from typing import Any

from keras_vit.checkpoints.dialects.json_fields import (
    REQUIRED,
    SAME,
    Codec,
    Json,
    JsonField,
    JsonFields,
    Row,
    object_at,
)
from keras_vit.checkpoints.dialects.keras_hub.common import (
    classifier_family,
    size_rows,
)
from keras_vit.checkpoints.dialects.names import KERAS, Section

_NAMES: Section = {
    "patch_embedding": "layers/vi_t_patching_and_embedding/patch_embedding",
    "class_token/token": "layers/vi_t_patching_and_embedding/vars/0",
    "position_embedding/embedding": "layers/vi_t_patching_and_embedding/position_embedding/vars/0 : n m",
    "block_{l}/attention_norm": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/layer_norm_1",
    "block_{l}/attention/{qkv}": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mha/{qkv}_dense",
    "block_{l}/attention/out": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mha/output_dense",
    "block_{l}/mlp_norm": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/layer_norm_2",
    "block_{l}/mlp/dense_0": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mlp/dense_1",
    "block_{l}/mlp/dense_1": "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/mlp/dense_2",
    "encoder_norm": "layers/vi_t_encoder/layer_norm",
    "pre_logits": "task/layers/dense",
    "head": [
        {"name": "task/layers/dense_1", "when": "representation_size"},
        {"name": "task/layers/dense", "when": "representation_size!"},
    ],
}

_PAIR = Codec(list, SAME.read)


def _class_token(content: Json) -> dict[str, Any]:
    with_class = content.get("use_class_token", True)
    return {"pooling": "token" if with_class else "gap", "class_token": with_class}


def _read_backbone(files: Json) -> dict[str, Any]:
    """Returns the backbone's `use_class_token`; the copy of it in `task.json` is not read."""
    backbone = object_at(files["config.json"], ("config",))
    return {"use_class_token": backbone.get("use_class_token", True)}


def _pooling(content: Json) -> dict[str, Any]:
    pooling = content["pooling"]
    with_class = _class_token(content)["class_token"]
    expected = ("token", "gap") if with_class else ("gap",)
    if pooling not in expected:
        raise ValueError(
            f"where use_class_token={with_class} goes with {' or '.join(map(repr, expected))}"
        )
    return {"pooling": "gap", "class_token_in_mean": with_class} if pooling == "gap" else {}


_BACKBONE: tuple[Row, ...] = (
    *size_rows("mlp_dim", _PAIR),
    JsonField("use_mlp_bias", "mlp_bias", default=True),
    JsonFields(
        ("use_class_token",),
        ("pooling", "class_token"),
        _class_token,
        lambda config: {"use_class_token": config.has_class_token},
    ),
    JsonField("use_patch_bias", "patch_bias", default=True),
)
_TASK: tuple[Row, ...] = (
    JsonFields(
        ("pooling",),
        ("pooling", "class_token_in_mean"),
        _pooling,
        lambda config: {"pooling": "token" if config.pooling == "token" else "gap"},
    ),
    JsonField("intermediate_dim", "representation_size", default=REQUIRED),
)


_vit = classifier_family(
    "keras_hub",
    "vit",
    "ViT",
    _BACKBONE,
    _TASK,
    beside=_read_backbone,
    words=KERAS.names(_NAMES),
    reasons={
        "root/": "keras-hub has no hybrids",
        "stage": "keras-hub has no hybrids",
        "pool/": "keras-hub's ViT has no attention pooling",
    },
    fields={"position": "learned", "position_before_class": False},
    limits={
        "a pooling other than 'token' or a mean over all tokens": (
            "pooling!=token|gap or pooling=gap has_class_token class_token_in_mean!"
        ),
        "a representation layer without a head": "representation_size num_classes!",
    },
)

FAMILIES = (_vit,)
