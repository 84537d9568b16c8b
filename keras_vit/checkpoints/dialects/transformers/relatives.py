"""transformers' vision towers with the encoder of ViT, CLIP or SigLIP, such as `BlipVisionModel`.

One dialect reads a family's vision class and the whole models that have it as a part; it writes the
vision class. It ignores the other parts of a whole model.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import AllNames, Dialect, Identity, Names, StoredAs
from keras_vit.checkpoints.dialects.dinov3_rows import GELUS
from keras_vit.checkpoints.dialects.json_fields import (
    JsonConstant,
    JsonField,
    JsonNote,
    JsonTable,
    Row,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers.common import (
    GELU_OF_CLIP,
    arithmetic_rows,
    dialect,
    size_rows,
)

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def _relative(
    models: tuple[str, ...],
    own: str,
    class_name: str,
    prefixes: tuple[str, ...],
    words: Mapping[str, Names],
    sizes: tuple[int, ...],
    gelu: str,
    epsilon: float,
    fields: Mapping[str, Any],
    rows: tuple[Row, ...] = (),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a vision class, which also reads whole models with that class inside.

    Args:
        models: `model_type` of each whole model.
        own: `model_type` of the vision class.
        class_name: name of the vision class, for files that keras_vit writes.
        prefixes: prefixes of the tower's names; the first is the vision class's own.
        words: names of the weights.
        sizes: the class's defaults of width, MLP, blocks, heads, pixels and patch.
        gelu, epsilon: the class's default of `hidden_act` and of `layer_norm_eps`.
        fields: fields of `ViTConfig` that every model of the family has.
        rows: further rows of the JSON.
        **more: further fields of `Dialect`.
    """
    defaults: dict[str, Any] = dict(zip((*_SIZES, "image_size", "patch_size"), sizes, strict=True))
    defaults |= {"hidden_act": gelu, "layer_norm_eps": epsilon}

    def of_the_part(files: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the object of the tower in a whole model's JSON, complete by the defaults."""
        content = files["config.json"]
        if content.get("model_type") == own:
            return {}
        part = content.get("vision_config") or content.get("vision_config_dict") or {}
        return {**defaults, **{key: value for key, value in part.items() if value is not None}}

    weights = "|".join(sorted({re.escape(p) for p in prefixes if p})) or "-"
    bare = r"embeddings\.|encoder\.|pre_|post_|layernorm\." if "" in prefixes else "-"
    projection = r"(?:\w+\.)?visual_projection\.weight$" if "projection/kernel" in words else "-"
    table: tuple[Row, ...] = (
        JsonNote("architectures", lambda facts: [class_name]),
        JsonNote("model_type", lambda facts: own),
        *size_rows(),
        *arithmetic_rows(gelu, epsilon),
        JsonField("attention_dropout", "attention_dropout_rate"),
        *rows,
    )
    classifier = "gap" if fields.get("class_token", True) is None else "token"
    return dialect(
        own,
        words,
        (),
        epsilon=epsilon,
        gelu=GELUS[gelu],
        classifiers=(classifier,),
        prefixes=prefixes,
        prefix_for=lambda config: prefixes[0],
        ignored={
            rf"(?!{weights}|{bare}|{projection}).*": "a part beside the vision tower",
            r".*embeddings\.(position_ids|mask_token)": "no weight of the inference",
        },
        identity=Identity(
            "config.json", "model_type", "|".join((own, *models)), repr(own), class_name
        ),
        json=(
            JsonTable("config.json", table, assumed=lambda content: defaults, beside=of_the_part),
        ),
        fields={"num_classes": 0, **fields},
        impossible=((lambda c: c.projection_dim is not None, "a projection: this class has none"),),
        **more,
    )


_CLIP_WORDS = TORCH.names("transformers/tower", "transformers/clip")
_CLIP_FIELDS = {"pre_norm": True, "patch_bias": False}


def _clip(
    model: str,
    own_prefix: str = "",
    prefixes: tuple[str, ...] = ("vision_model.",),
    words: Mapping[str, Names] = _CLIP_WORDS,
    projection: str = "",
    size: tuple[int, int] = (224, 32),
    class_name: str = "",
) -> Dialect:
    """Returns the dialect of a relative of CLIP.

    Args:
        model: `model_type` of the whole model.
        own_prefix, prefixes: prefix in the vision class's files, and in others.
        words: names of the weights.
        projection: names of the projection in whole models, separated by blanks.
        size: the class's default of pixels and patch.
        class_name: name of the vision class.
    """
    projections = tuple(StoredAs(name, "t m", outside=True) for name in projection.split())
    return _relative(
        (model,),
        f"{model}_vision_model",
        class_name,
        (own_prefix, *(p for p in prefixes if p != own_prefix)),
        {**words, **({"projection/kernel": projections} if projections else {})},
        (768, 3072, 12, 12, *size),
        "quick_gelu",
        1e-5,
        _CLIP_FIELDS | {"qkv_bias": True},
        undetermined=lambda fields: GELU_OF_CLIP,
    )


def _also_named(words: Mapping[str, AllNames], old: str, new: str) -> dict[str, AllNames]:
    """Returns the names, and beside each that has `old` the same name with `new`."""
    return {
        path: (*names, *(dataclasses.replace(n, name=n.name.replace(old, new)) for n in names))
        if old in names[0].name
        else names
        for path, names in words.items()
    }


_PROJECTION = "visual_projection.weight"
_OWL_WORDS = {**_CLIP_WORDS, **TORCH.names("transformers/owl")}
metaclip_2 = _clip("metaclip_2", projection=_PROJECTION, class_name="MetaClip2VisionModel")
chinese_clip = _clip("chinese_clip", projection=_PROJECTION, class_name="ChineseCLIPVisionModel")
altclip = _clip(
    "altclip",
    # transformers 5 writes the whole model with the text tower's word for a block.
    words=_also_named(_CLIP_WORDS, "encoder.layers.", "encoder.layer."),
    projection=_PROJECTION,
    class_name="AltCLIPVisionModel",
)
git = _clip(
    "git",
    own_prefix="vision_model.",
    prefixes=("git.image_encoder.vision_model.", "image_encoder.vision_model."),
    size=(224, 16),
    class_name="GitVisionModel",
)
owlvit, owlv2 = (
    _clip(
        model,
        own_prefix="vision_model.",
        prefixes=(f"{model}.vision_model.",),
        words=_OWL_WORDS,
        projection=f"{_PROJECTION} {model}.{_PROJECTION}",
        size=(size, patch),
        class_name=class_name,
    )
    for model, size, patch, class_name in (
        ("owlvit", 768, 32, "OwlViTVisionModel"),
        ("owlv2", 768, 16, "Owlv2VisionModel"),
    )
)


def _blip(
    models: tuple[str, ...],
    own: str,
    class_name: str,
    sizes: tuple[int, ...],
    epsilon: float,
) -> Dialect:
    """Returns the dialect of BLIP's tower, whose queries, keys and values are one product."""
    words = TORCH.names("transformers/tower", "transformers/blip")
    rows = (JsonField("qkv_bias", "qkv_bias", default=True),) if own != "blip_vision_model" else ()
    return _relative(
        models, own, class_name, ("", "vision_model."), words, sizes, "gelu", epsilon, {}, rows
    )


blip = _blip(("blip",), "blip_vision_model", "BlipVisionModel", (768, 3072, 12, 12, 384, 16), 1e-5)
blip_2, instructblip = (
    _blip(models, own, class_name, (1408, 6144, 39, 16, 224, 14), 1e-6)
    for models, own, class_name in (
        (("blip-2",), "blip_2_vision_model", "Blip2VisionModel"),
        (("instructblip",), "instructblip_vision_model", "InstructBlipVisionModel"),
    )
)

idefics3, smolvlm = (
    _relative(
        (model,),
        f"{model}_vision",
        class_name,
        ("", "model.vision_model.", "vision_model."),
        TORCH.names("transformers/tower"),
        (1152, 3072, 12, 16, 224, 32),
        "gelu_pytorch_tanh",
        1e-6,
        {"class_token": None, "qkv_bias": True},
    )
    for model, class_name in (
        ("idefics3", "Idefics3VisionTransformer"),
        ("smolvlm", "SmolVLMVisionTransformer"),
    )
)

internvl = _relative(
    ("internvl",),
    "internvl_vision",
    "InternVLVisionModel",
    ("", "model.vision_tower.", "vision_tower."),
    {
        path: names
        for path, names in TORCH.names("transformers/vit", "transformers/internvl").items()
        if not path.startswith("encoder_norm")
    },
    (1024, 4096, 24, 16, 448, 14),
    "gelu",
    1e-6,
    {"layer_scale": True, "final_norm": False},
    rows=(
        JsonField("attention_bias", "qkv_bias", default=False),
        JsonField("layer_scale_init_value", "layer_scale_init"),
        JsonConstant("use_qk_norm", False),
        JsonConstant("use_mean_pooling", True),
        JsonConstant("norm_type", "layer_norm"),
        JsonConstant("use_absolute_position_embeddings", True),
    ),
)

RELATIVES = (
    metaclip_2,
    chinese_clip,
    altclip,
    git,
    owlvit,
    owlv2,
    blip,
    blip_2,
    instructblip,
    idefics3,
    smolvlm,
    internvl,
)
