"""Vision towers of other model classes of transformers: the same encoders under other names.

They are read, alone or out of the whole model, and not written: without the text model that
belongs to them, transformers would load them by no class of these families but the tower's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.json_fields import JsonTable, Row
from keras_vit.checkpoints.dialects.torch_layout import torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    VIT_REASONS,
    arithmetic_rows,
    size_rows,
    tower_names,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics

_CONFIG = "config.json"
_ALONE = "a vision tower alone, where this family has a text model too"
_BLOCK = "encoder.layers.{l}."

_CLIP_WORDS: dict[str, Names] = {
    **{
        # AltCLIP writes `layer`, all others `layers`.
        path: (name, StoredAs(name.name.replace("layers", "layer"), name.axes))
        if path.startswith("block_")
        else name
        for path, name in tower_names().items()
    },
    "class_token/token": StoredAs("embeddings.class_embedding", "m"),
    "projection/kernel": StoredAs("visual_projection.weight", "t m", outside=True),
    "pre_norm/gamma": (StoredAs("pre_layrnorm.weight"), StoredAs("pre_layernorm.weight")),
    "pre_norm/beta": (StoredAs("pre_layrnorm.bias"), StoredAs("pre_layernorm.bias")),
}
_CLIP_FIELDS = {
    "classifier": "token",
    "num_classes": 0,
    "position": "learned",
    "position_before_class": False,
    "pre_norm": True,
    "patch_bias": False,
    "qkv_bias": True,
}

_BLIP_WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("embeddings.class_embedding"),
    "position_embedding/embedding": StoredAs("embeddings.position_embedding"),
    "block_{l}/attention/{qkv}/kernel": StoredAs(_BLOCK + "self_attn.qkv.weight", "(qkv h d) m"),
    "block_{l}/attention/{qkv}/bias": StoredAs(_BLOCK + "self_attn.qkv.bias", "(qkv h d)"),
    **torch_modules(
        {
            "patch_embedding": "embeddings.patch_embedding",
            "block_{l}/attention_norm": _BLOCK + "layer_norm1",
            "block_{l}/attention/out": _BLOCK + "self_attn.projection",
            "block_{l}/mlp_norm": _BLOCK + "layer_norm2",
            "block_{l}/mlp/dense_0": _BLOCK + "mlp.fc1",
            "block_{l}/mlp/dense_1": _BLOCK + "mlp.fc2",
            "encoder_norm": "post_layernorm",
        }
    ),
}
_BLIP_FIELDS = {
    "classifier": "token",
    "num_classes": 0,
    "position": "learned",
    "position_before_class": False,
    "qkv_bias": True,
}
_TOKENS_FIELDS = {
    "classifier": "unpooled",
    "num_classes": 0,
    "class_token": None,
    "position": "learned",
    "qkv_bias": True,
}


def _vision_of(sizes: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Returns a function from the JSON files to the tower's own keys, if they are nested."""

    def keys(files: Mapping[str, Any]) -> Mapping[str, Any]:
        content = files.get(_CONFIG)
        if not isinstance(content, Mapping) or "vision_config" not in content:
            return {}
        return {
            **sizes,
            **(content["vision_config"] or {}),
            **(content.get("vision_config_dict") or {}),
        }

    return keys


def _relative(
    family: str,
    model_types: str,
    words: Mapping[str, Names],
    fields: Mapping[str, Any],
    gelu: str,
    epsilon: float,
    prefixes: tuple[str, ...],
    other_parts: str,
    switches: tuple[str, ...] = (),
    **sizes: int,
) -> Dialect:
    """Returns the dialect that reads a family's vision tower.

    Args:
        family: name of the family.
        model_types: regular expression of `model_type` in config.json.
        words: names of the weights.
        fields: fields of `ViTConfig` of every tower of the family.
        gelu, epsilon: transformers' values for absent keys.
        prefixes: what stands in front of the tower's names.
        other_parts: regular expression of the arrays of the family's other models.
        switches: names of the `SWITCHES` that the family has.
        **sizes: transformers' sizes for absent keys that differ from those of B/16.
    """
    defaults = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 16,
        **sizes,
    }
    rows: tuple[Row, ...] = (*size_rows(), *arithmetic_rows(gelu, epsilon))
    form = {"quick_gelu": "quick", "gelu": "exact", "gelu_pytorch_tanh": "tanh"}[gelu]
    return Dialect(
        name=f"transformers/{family}",
        library="transformers",
        container="safetensors",
        words=unsupported(VIT_REASONS, words),
        prefixes=prefixes,
        ignored={
            other_parts: "other models of the family",
            r"(.*\.)?embeddings\.position_ids": "the numbers of the positions",
        },
        identity=Identity(_CONFIG, "model_type", model_types, repr(family)),
        json=(
            JsonTable(_CONFIG, rows, assumed=lambda content: defaults, beside=_vision_of(defaults)),
        ),
        needs_json="the form of GELU",
        images=processor,
        numerics=Numerics(gelu=form, layer_norm_epsilon=epsilon, position_resize="bicubic"),
        expresses=("gelu", "layer_norm_epsilon", "position_resize"),
        fields=fields,
        switches=switches,
        only_read=_ALONE,
        crops=False,
    )


_TOWER = ("vision_model.", "")
_CLIP_SWITCHES = ("pre_norm", "patch_bias", "projection_dim")
_TEXT = r"text_model\..*|text_projection\.weight|logit_scale"

RELATIVES = (
    *(
        _relative(
            family,
            rf"{family}(_vision_model)?",
            _CLIP_WORDS,
            _CLIP_FIELDS,
            "quick_gelu",
            1e-5,
            _TOWER,
            _TEXT,
            _CLIP_SWITCHES,
            patch_size=32,
        )
        for family in ("metaclip_2", "chinese_clip", "altclip")
    ),
    _relative(
        "git",
        "git(_vision_model)?",
        _CLIP_WORDS,
        _CLIP_FIELDS,
        "quick_gelu",
        1e-5,
        ("git.image_encoder.vision_model.", "image_encoder.vision_model.", *_TOWER),
        r"(git\.)?(embeddings|encoder|visual_projection|img_temperal_embedding)\..*|output\..*",
        _CLIP_SWITCHES,
    ),
    _relative(
        "owlvit",
        "owlvit(_vision_model)?",
        _CLIP_WORDS,
        _CLIP_FIELDS,
        "quick_gelu",
        1e-5,
        ("owlvit.vision_model.", *_TOWER),
        rf"(owlvit\.)?({_TEXT})|owlvit\.visual_projection\.weight|(class|box)_head\..*|layer_norm\..*",
        _CLIP_SWITCHES,
        image_size=768,
        patch_size=32,
    ),
    _relative(
        "blip",
        "blip(_vision_model)?",
        _BLIP_WORDS,
        _BLIP_FIELDS,
        "gelu",
        1e-5,
        _TOWER,
        r"text_(model|decoder|encoder)\..*|(text|visual|vision)_(proj|projection)\..*|itm_head\..*|"
        r"logit_scale",
        image_size=384,
    ),
    _relative(
        "blip_2",
        "blip-2|blip_2_vision_model",
        _BLIP_WORDS,
        _BLIP_FIELDS,
        "gelu",
        1e-6,
        _TOWER,
        r"(qformer|language_model|language_projection|itm_head)\..*|query_tokens|"
        r"embeddings\.(word|position)_embeddings\..*|"
        r"(text|vision)_projection\..*",
        hidden_size=1408,
        intermediate_size=6144,
        num_hidden_layers=39,
        num_attention_heads=16,
        patch_size=14,
    ),
    *(
        _relative(
            family,
            rf"{family}(_vision)?",
            tower_names(),
            _TOKENS_FIELDS,
            "gelu_pytorch_tanh",
            1e-6,
            ("model.vision_model.", *_TOWER),
            r"model\.(text_model|connector)\..*|lm_head\..*",
            hidden_size=1152,
            num_attention_heads=16,
            patch_size=32,
        )
        for family in ("idefics3", "smolvlm")
    ),
)
"""The dialects that are only read; MetaCLIP 2 and the others that CLIP's classes do not name."""
