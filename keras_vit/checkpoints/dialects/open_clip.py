"""open_clip's files of two towers, such as `open_clip_model.safetensors`: the vision tower.

The tower is open_clip's `VisionTransformer` or a model of timm. OpenAI's own files have the same
names. The arrays do not show the form of the GELU: `open_clip_config.json` or the caller states it.
"""

import dataclasses
from typing import Any

from keras_vit.checkpoints.dialects.base import (
    ARITHMETIC,
    Dialect,
    PreparationWords,
    StoredAs,
    warn_of_protocol,
)
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonField,
    JsonFields,
    JsonTable,
    object_at,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.timm import FAMILIES as TIMM
from keras_vit.checkpoints.dialects.timm import architectures, rows
from keras_vit.checkpoints.dialects.torch_conventions import CLIP
from keras_vit.checkpoints.dialects.transformers.common import ACTIVATION_OF_CLIP
from keras_vit.images.protocols import ProtocolSpec, complete

_NAMES: Section = {
    "patch_embedding": "conv1",
    "class_token/token": "class_embedding : m",
    "position_embedding/embedding": "positional_embedding : n m",
    "pre_norm": "ln_pre",
    "block_{l}/attention_norm": "transformer.resblocks.{l}.ln_1",
    "block_{l}/attention/{qkv}/kernel": "transformer.resblocks.{l}.attn.in_proj_weight : (qkv h d) m",
    "block_{l}/attention/{qkv}/bias": "transformer.resblocks.{l}.attn.in_proj_bias : (qkv h d)",
    "block_{l}/attention/out": "transformer.resblocks.{l}.attn.out_proj",
    "block_{l}/mlp_norm": "transformer.resblocks.{l}.ln_2",
    "block_{l}/mlp/dense_0": "transformer.resblocks.{l}.mlp.c_fc",
    "block_{l}/mlp/dense_1": "transformer.resblocks.{l}.mlp.c_proj",
    "encoder_norm": "ln_post",
    "projection/kernel": "proj",
}

CONFIG = "open_clip_config.json"
_OF_TEXT = {
    r"text\..*|transformer\..*|token_embedding\..*|ln_final\..*": "the text tower",
    r"positional_embedding|text_projection(\..*)?": "the text tower",
    r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
    r"input_resolution|context_length|vocab_size": "sizes that follow from the arrays",
}
_ONLY_READ = (
    "open_clip's models have a text tower too; family='transformers' writes the vision tower of a "
    "CLIP, and family='timm' one without a projection"
)


def _read_tower(content: Json) -> dict[str, Any]:
    tower = object_at(content, ("vision_cfg",))
    fields = {"block.activation": "quick_gelu" if content.get("quick_gelu") else "gelu"}
    if "image_size" in tower:
        fields["image_size"] = tower["image_size"]
    if "width" in tower:
        fields["num_heads"] = tower["width"] // tower.get("head_width", 64)
    return fields


_TOWER = JsonTable(
    CONFIG,
    (JsonFields(("vision_cfg",), ("num_heads", "image_size", "block.activation"), _read_tower),),
    at=("model_cfg",),
)

_CROP_MODES = {"shortest": "center", "squash": "squash"}


def _read_preprocess(files: Json) -> ProtocolSpec | None:
    """Returns the protocol of `preprocess_cfg`, as `open_clip/transform.py` prepares images."""
    if CONFIG not in files:
        return None
    own = object_at(files[CONFIG], ("preprocess_cfg",))
    mode = own.get("resize_mode") or "shortest"
    if mode not in _CROP_MODES:
        warn_of_protocol(f"{CONFIG} with resize_mode={mode!r}")
        return None
    interpolation = "bilinear" if own.get("interpolation") == "bilinear" else "bicubic"
    geometry = {"crop_mode": _CROP_MODES[mode], "interpolation": interpolation}
    return complete({**CLIP, **geometry, **{k: own[k] for k in ("mean", "std") if own.get(k)}})


_IMAGES = PreparationWords(default=lambda config: CLIP, read=_read_preprocess)

open_clip = Dialect(
    name="open_clip",
    library="open_clip",
    words=TORCH.names(_NAMES),
    prefixes=("visual.",),
    ignored=_OF_TEXT,
    json=(_TOWER,),
    images=_IMAGES,
    undetermined=lambda fields: ACTIVATION_OF_CLIP,
    arithmetic={
        "block.activation": "gelu",
        "block.epsilon": 1e-5,
        "position_resize": "bicubic_antialias",
        "pool.norm": "before",
    },
    fields={
        "pool.kind": "token",
        "num_classes": 0,
        "position": "learned",
        "block.qkv_bias": True,
    },
    switches=("patch_bias",),
    only_read=_ONLY_READ,
)


_OF_NAME = ("num_heads", "rope", "pool.kind", "pool.num_heads", *ARITHMETIC)
"""What the name of an architecture tells and no array."""


def _read_trunk(content: Json) -> dict[str, Any]:
    """Returns the facts that `timm_model_name` states of a trunk; `timm_pool` may pool otherwise."""
    name, pool = content["timm_model_name"], content.get("timm_pool")
    own = {"global_pool": pool} if pool in ("avg", "token", "map") else {}
    stated = rows.read_pooling(own, "fc_norm", has_norm=True)
    if row := architectures.find_row(name):
        family = next(family for family in TIMM if family.name == architectures.find_family(row))
        named = {"config.json": {"architecture": name, "model_args": own}}
        stated = family.read_json(named).fields
    facts = {key: stated[key] for key in _OF_NAME if key in stated}
    if facts.get("pool.norm") == "after":  # arrays tell it: another pooling keeps the trunk's norm
        del facts["pool.norm"]
    return facts


_TRUNK = JsonTable(
    CONFIG,
    (
        JsonFields(
            ("timm_model_name", "timm_pool"),
            _OF_NAME,
            _read_trunk,
            is_optional=True,
        ),
        JsonField("image_size", "image_size"),
    ),
    at=("model_cfg", "vision_cfg"),
)


def _make_trunk(family: Dialect) -> Dialect:
    """Returns the dialect of a vision tower with a timm trunk and the tower's own projection."""
    projection = StoredAs("visual.head.proj.weight", "t m", outside=True)
    return dataclasses.replace(
        family,
        name=f"open_clip/{family.name.replace('/', '_')}_trunk",
        library="open_clip",
        words={**family.words, "projection/kernel": (projection,)},
        prefixes=("visual.trunk.",),
        ignored={**family.ignored, **_OF_TEXT},
        identity=None,
        json=(_TRUNK,),
        images=_IMAGES,
        switches=tuple(sorted(family.parts)),
        only_read=_ONLY_READ,
    )


# No tower of open_clip has a trunk for images of unequal shape.
_TRUNKS = (family for family in TIMM if "stem.kind" not in family.fields)

FAMILIES = (open_clip, *map(_make_trunk, _TRUNKS))
