"""The vision tower of open_clip's two-tower files, such as `open_clip_model.safetensors`.

The tower is open_clip's `VisionTransformer`, or a model of timm, which timm's families read.
OpenAI's own files have the same names. The arrays do not show the form of the GELU:
it is given by `open_clip_config.json` or the caller.
"""

from collections.abc import Sequence

from keras_vit.checkpoints.families.family import (
    Class,
    Family,
    Format,
    Images,
    Library,
    Open,
    Stated,
    warn_of_protocol,
)
from keras_vit.checkpoints.families.keys import Codec, Json, number, object_at, only, sides
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.protocols import CLIP
from keras_vit.images.protocols import ProtocolSpec, complete

CONFIG = "open_clip_config.json"


def _read(files: Json, formats: Sequence[Format]) -> Stated:
    """Returns the keys of `model_cfg` for open_clip's own tower."""
    model = object_at(files.get(CONFIG, {}), ("model_cfg",))
    tower = object_at(model, ("vision_cfg",))
    if CONFIG not in files or "timm_model_name" in tower:
        return Stated()
    own = {"no_ln_pre": False, **tower}
    return Stated(keys={**own, "quick_gelu": bool(model.get("quick_gelu"))})


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


IMAGES = Images(default=lambda config: CLIP, read=_read_preprocess)
OF_TEXT = {
    r"text\..*|transformer\..*|token_embedding\..*|ln_final\..*": "the text tower",
    r"positional_embedding|text_projection(\..*)?": "the text tower",
    r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
    r"input_resolution|context_length|vocab_size": "sizes, which the arrays show too",
}
ONLY_READ = (
    "open_clip's models also have a text tower; family='transformers' writes the vision tower of a "
    "CLIP, and family='timm' writes one without a projection"
)
_NAMES: Section = {
    "patch_embedding": ["conv1", None],
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
_HEADS = Codec(
    "num_heads",
    lambda tower: {"num_heads": number(tower, "width") // number(tower, "head_width", 64)},
)

FAMILIES = (
    Family(
        "open_clip",
        Library(
            "open_clip",
            json=(CONFIG,),
            read=_read,
            images=IMAGES,
            arithmetic={
                "block.activation": "gelu",
                "block.epsilon": 1e-5,
                "position_resize": "bicubic_antialias",
            },
            ignored=OF_TEXT,
            only_read=ONLY_READ,
        ),
        _NAMES,
        keys={
            "width": _HEADS,
            "image_size": "image_size",
            "quick_gelu": ("block.activation", {True: "quick_gelu", False: "gelu"}),
            "pool_type": only("tok"),
            "final_ln_after_pool": only(False),
            "act_kwargs": only(None),
            "norm_kwargs": only(None),
        },
        shapes={
            "width": "hidden_size",
            "layers": "num_layers",
            "patch_size": sides("patch_size"),
            "no_ln_pre": ("block.input_norm", {False: "tokens"}),
        },
        classes={"": Class(head=False)},
        fixed={"pool.kind": "token", "position": "learned", "block.qkv_bias": True},
        open={
            "block.activation": Open(
                "'quick_gelu' in the weights of OpenAI, MetaCLIP and DFN, 'gelu' in those of "
                "LAION and DataComp"
            )
        },
    ),
)
