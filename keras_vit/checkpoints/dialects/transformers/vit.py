"""ViTModel and ViTForImageClassification of transformers.

A classifier's files put `vit.` in front of every name but the head's; a ViTModel's do not.
The pooler of a ViTModel is the representation layer of keras_vit.
"""

from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.json_fields import (
    SIDES,
    Codec,
    Facts,
    JsonConstant,
    JsonField,
    JsonNote,
    JsonTable,
    Row,
    names_by_number,
    one_of,
)
from keras_vit.checkpoints.dialects.torch_layout import (
    POSITIONS_OF_ANOTHER_GRID,
    stored_image_size,
    torch_modules,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics, ViTConfig

_LAYER = "encoder.layer.{l}."

_NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, also where a pooler stands beside it."""

_WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("embeddings.cls_token"),
    "position_embedding/embedding": StoredAs("embeddings.position_embeddings"),
    **torch_modules(
        {
            "patch_embedding": "embeddings.patch_embeddings.projection",
            "block_{l}/attention_norm": _LAYER + "layernorm_before",
            "block_{l}/attention/{qkv}": _LAYER + "attention.attention.{qkv}",
            "block_{l}/attention/out": _LAYER + "attention.output.dense",
            "block_{l}/mlp_norm": _LAYER + "layernorm_after",
            "block_{l}/mlp/dense_0": _LAYER + "intermediate.dense",
            "block_{l}/mlp/dense_1": _LAYER + "output.dense",
            "encoder_norm": "layernorm",
            "pre_logits": "pooler.dense",
        }
    ),
    "head/kernel": StoredAs("classifier.weight", "k e", implies=_NO_POOLER, outside=True),
    "head/bias": StoredAs("classifier.bias", implies=_NO_POOLER, outside=True),
}
_REASONS = {
    "root/": "transformers' ViT has no ResNet stem, and its hybrids have other epsilons",
    "stage": "transformers' ViT has no ResNet stem, and its hybrids have other epsilons",
    "pool/": "transformers' ViT has no attention pooling",
}


def _has_head(config: ViTConfig) -> bool:
    return config.num_classes > 0


def _number(k: int) -> str:
    return f"LABEL_{k}"


def _names(facts: Facts) -> dict[str, str]:
    names = facts.labels or tuple(map(_number, range(facts.config.num_classes)))
    return {str(k): name for k, name in enumerate(names)}


def _labels(id2label: Any) -> tuple[str, ...] | None:
    """The names of the classes; transformers writes LABEL_0, LABEL_1, ... for none."""
    labels = names_by_number(id2label or {})
    return labels if any(label != _number(k) for k, label in enumerate(labels)) else None


def _image_size(facts: Facts) -> Any:
    return SIDES.write(stored_image_size(facts.config))


_GELUS = {
    "gelu": "exact",
    "gelu_pytorch_tanh": "tanh",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "quick_gelu": "quick",
}

_ROWS: tuple[Row, ...] = (
    JsonNote(
        "architectures",
        lambda facts: ["ViTForImageClassification" if facts.config.num_classes else "ViTModel"],
    ),
    JsonConstant("model_type", "vit"),
    JsonField("hidden_size", "hidden_size"),
    JsonField("intermediate_size", "mlp_dim"),
    JsonField("num_attention_heads", "num_heads"),
    JsonField("num_hidden_layers", "num_layers"),
    JsonField("num_channels", "channels"),
    JsonField("image_size", "image_size", write=_image_size),
    JsonField("patch_size", "patch_size", SIDES),
    JsonField("qkv_bias", "qkv_bias"),
    JsonField("hidden_act", "numerics.gelu", one_of(_GELUS), default="gelu"),
    JsonField("layer_norm_eps", "numerics.layer_norm_epsilon", default=1e-12),
    JsonField("hidden_dropout_prob", "dropout_rate"),
    JsonField("attention_probs_dropout_prob", "attention_dropout_rate"),
    JsonNote(
        "pooler_output_size",
        lambda facts: facts.config.representation_size or facts.config.hidden_size,
    ),
    JsonConstant("pooler_act", "tanh"),
    JsonField("id2label", "labels", Codec(list, _labels), write=_names, when=_has_head),
    JsonNote(
        "label2id", lambda facts: {v: int(k) for k, v in _names(facts).items()}, when=_has_head
    ),
)

vit = Dialect(
    name="transformers",
    library="transformers",
    container="safetensors",
    words=unsupported(_REASONS, _WORDS),
    prefixes=("vit.", ""),
    prefix_for=lambda config: "vit." if config.num_classes else "",
    ignored={r"(vit\.)?embeddings\.mask_token": "mask of masked image modelling"},
    identity=Identity("config.json", "model_type", "vit", "'vit'"),
    json=(JsonTable("config.json", _ROWS),),
    images=processor,
    numerics=Numerics(gelu="exact", layer_norm_epsilon=1e-12, position_resize="bicubic"),
    expresses=("gelu", "layer_norm_epsilon", "position_resize"),
    fields={"position": "learned", "position_before_class": False, "classifier": "token"},
    impossible=(
        (lambda c: c.position != "learned", "position='sincos2d'"),
        POSITIONS_OF_ANOTHER_GRID,
        (lambda c: c.position_before_class, "position_before_class=True"),
        (lambda c: c.classifier != "token", "a classifier other than 'token'"),
        (
            lambda c: c.representation_size is not None and c.num_classes > 0,
            "a head behind a representation layer",
        ),
    ),
    crops=False,
    metadata={"format": "pt"},
)
