"""transformers' vision towers with the encoder of ViT, CLIP or SigLIP, such as `BlipVisionModel`.

One dialect reads a family's vision class and the whole models that have it as a part; it writes the
vision class. It ignores the other parts of a whole model.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs
from keras_vit.checkpoints.dialects.dinov3_rows import GELUS
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonConstant,
    JsonField,
    JsonNote,
    JsonTable,
    Row,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers import common


def _relative(
    model: str,
    own: str,
    class_name: str,
    prefixes: tuple[str, ...],
    words: Mapping[str, Names],
    sizes: tuple[int, int, int, int, int, int],
    gelu: str,
    epsilon: float,
    fields: Mapping[str, Any],
    rows: tuple[Row, ...] = (),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a vision class, which also reads whole models with that class inside.

    Args:
        model: `model_type` of the whole model.
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
    defaults = {**common.tower_sizes(*sizes), "hidden_act": gelu, "layer_norm_eps": epsilon}

    def of_the_part(files: Json) -> Json:
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
        *common.tower_rows(gelu, epsilon),
        *rows,
    )
    return common.dialect(
        own,
        words,
        (),
        epsilon=epsilon,
        gelu=GELUS[gelu],
        poolings=("gap" if fields.get("class_token", True) is None else "token",),
        prefixes=prefixes,
        prefix_for=lambda config: prefixes[0],
        ignored={
            rf"(?!{weights}|{bare}|{projection}).*": "a part beside the vision tower",
            r".*embeddings\.(position_ids|mask_token)": "no weight of the inference",
        },
        identity=Identity("config.json", "model_type", f"{own}|{model}", repr(own), class_name),
        json=(
            JsonTable("config.json", table, assumed=lambda content: defaults, beside=of_the_part),
        ),
        fields={"num_classes": 0, **fields},
        impossible={"a projection: this class has none": "projection_dim"},
        **more,
    )


_CLIP_WORDS = TORCH.names("transformers/tower", "transformers/clip")
_OWL_WORDS = {**_CLIP_WORDS, **TORCH.names("transformers/owl")}
_PROJECTION = "visual_projection.weight"


def _clip(
    model: str,
    class_name: str,
    own_prefix: str = "",
    prefixes: tuple[str, ...] = ("vision_model.",),
    words: Mapping[str, Names] = _CLIP_WORDS,
    projections: tuple[str, ...] = (_PROJECTION,),
    size: tuple[int, int] = (224, 32),
) -> Dialect:
    """Returns the dialect of a relative of CLIP.

    Args:
        model: `model_type` of the whole model.
        class_name: name of the vision class.
        own_prefix, prefixes: prefix in the vision class's files, and in others.
        words: names of the weights.
        projections: names that the projection has in whole models.
        size: the class's default of pixels and patch.
    """
    kernel = tuple(StoredAs(name, "t m", outside=True) for name in projections)
    return _relative(
        model,
        f"{model}_vision_model",
        class_name,
        (own_prefix, *prefixes),
        {**words, "projection/kernel": kernel} if kernel else words,
        (768, 3072, 12, 12, *size),
        "quick_gelu",
        1e-5,
        {"pre_norm": True, "patch_bias": False, "qkv_bias": True},
        undetermined=lambda fields: common.GELU_OF_CLIP,
    )


def _also_named(words: Mapping[str, Names], old: str, new: str) -> dict[str, Names]:
    """Returns the names, and beside each that has `old` the same name with `new`."""
    return {
        path: (*names, *(dataclasses.replace(n, name=n.name.replace(old, new)) for n in names))
        if old in names[0].name
        else names
        for path, names in words.items()
    }


metaclip_2 = _clip("metaclip_2", "MetaClip2VisionModel")
chinese_clip = _clip("chinese_clip", "ChineseCLIPVisionModel")
altclip = _clip(
    "altclip",
    "AltCLIPVisionModel",
    # transformers 5 writes the whole model with the text tower's word for a block.
    words=_also_named(_CLIP_WORDS, "encoder.layers.", "encoder.layer."),
)
git = _clip(
    "git",
    "GitVisionModel",
    own_prefix="vision_model.",
    prefixes=("git.image_encoder.vision_model.", "image_encoder.vision_model."),
    projections=(),
    size=(224, 16),
)
owlvit, owlv2 = (
    _clip(
        model,
        class_name,
        own_prefix="vision_model.",
        prefixes=(f"{model}.vision_model.",),
        words=_OWL_WORDS,
        projections=(_PROJECTION, f"{model}.{_PROJECTION}"),
        size=size,
    )
    for model, class_name, size in (
        ("owlvit", "OwlViTVisionModel", (768, 32)),
        ("owlv2", "Owlv2VisionModel", (768, 16)),
    )
)


def _blip(
    model: str,
    own: str,
    class_name: str,
    sizes: tuple[int, int, int, int, int, int],
    epsilon: float = 1e-6,
    rows: tuple[Row, ...] = (JsonField("qkv_bias", "qkv_bias", default=True),),
) -> Dialect:
    """Returns the dialect of BLIP's tower, whose queries, keys and values are one product."""
    words = TORCH.names("transformers/tower", "transformers/blip")
    prefixes = ("", "vision_model.")
    return _relative(model, own, class_name, prefixes, words, sizes, "gelu", epsilon, {}, rows)


_SIZES_OF_BLIP_2 = (1408, 6144, 39, 16, 224, 14)
blip = _blip(
    "blip", "blip_vision_model", "BlipVisionModel", (768, 3072, 12, 12, 384, 16), 1e-5, rows=()
)
blip_2 = _blip("blip-2", "blip_2_vision_model", "Blip2VisionModel", _SIZES_OF_BLIP_2)
instructblip = _blip(
    "instructblip", "instructblip_vision_model", "InstructBlipVisionModel", _SIZES_OF_BLIP_2
)

idefics3, smolvlm = (
    _relative(
        model,
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

_INTERNVL_WORDS = TORCH.names("transformers/vit", "transformers/internvl")
internvl = _relative(
    "internvl",
    "internvl_vision",
    "InternVLVisionModel",
    ("", "model.vision_tower.", "vision_tower."),
    {path: n for path, n in _INTERNVL_WORDS.items() if not path.startswith("encoder_norm/")},
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
