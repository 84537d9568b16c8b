"""Says what a file without a readable Vision Transformer holds, in a few lines."""

import collections
import re
from collections.abc import Iterable, Mapping

from keras_vit.checkpoints.dialects import Dialect
from keras_vit.checkpoints.translate import Shape
from keras_vit.errors import listed, shown

_CERTAIN = {
    r"pixel_embed\.|norm1_proj\.": "TNT, with tokens of pixels inside of the patches",
    r"decoder\.mask_tokens|mask_decoder|rel_pos_[hw]$": (
        "SAM, ViTDet or MViT, with positions of windows"
    ),
    r"pos_embed_win(dow)?$|(^|\.)blocks\.\d+\.proj\.weight$": "Hiera, a hierarchy of windows",
}
"""Names that no plain Vision Transformer has, though its own names may stand beside them."""

_KINDS = {
    r"relative_position_bias_table|continuous_position_bias_mlp|cpb_mlp": (
        "Swin or a relative, with windows of attention"
    ),
    r"encoder\.stages\.\d+\.layers\.\d+\.(attn\.|proj\.|layernorm_before)": "Hiera, a hierarchy",
    r"attn\.sr\.|sequence_reduction": "PVT or SegFormer, a hierarchy with fewer keys than queries",
    r"diffusion_model|adaLN_modulation": "a model of diffusion",
    r"conv_kxk|conv_projection|fusion\.convolution|local_rep": (
        "MobileViT, FastViT or a relative, with convolutions"
    ),
    r"conv_dw|dwconv|depthwise|depth_conv|token_mixer|^features\.|\bcv\d\.conv": (
        "ConvNeXt, EfficientNet or another network of convolutions"
    ),
    r"mlp_tokens|token_mixing": "MLP-Mixer, without attention",
    r"layer\d\.\d+\.conv\d|layer\.\d+\.convolution|downsample\.(0|conv)": (
        "ResNet or another network with convolutions"
    ),
    r"word_embeddings|embed_tokens|\bwte\.|token_embedding|shared\.weight|tok_embeddings": (
        "a model of text"
    ),
    r"(lora|hada|lokr)_\w+": "an adapter; merge it into its base first (merge_and_unload of PEFT)",
    r"conv_layers|feature_extractor\.": "a model of sound",
    r"_[ih]h_l\d": "a recurrent network",
    r"_flat_param$": "FSDP's shards; let the training write StateDictType.FULL_STATE_DICT",
    r"exp_avg_sq$": "an optimizer",
}
"""What stands in the names of other families -> the family, most particular first."""

_TYPES = {
    "attention inside windows": (
        "donut-swin hiera maskformer-swin sam2_hiera_det_model sam2_vision_model sam3_vit_model "
        "sam_hq_vision_model sam_vision_model swin swin2sr swinv2 vitdet"
    ),
    "attention to the nearest neighbours alone": "dinat",
    "stages, each of fewer and wider tokens": (
        "cvt glpn groupvit_vision_model levit pvt pvt_v2 segformer swiftformer"
    ),
    "convolutions in place of attention": (
        "bit convnext convnextv2 dinov3_convnext efficientnet focalnet hgnet_v2 mobilenet_v1 "
        "mobilenet_v2 poolformer regnet resnet textnet"
    ),
    "convolutions between its Transformer blocks": "mobilevit mobilevitv2",
    "patches over several frames of a video": (
        "glm4v_moe_vision glm4v_vision qwen2_5_vl_vision qwen2_vl qwen2_vl_vision "
        "qwen3_vl_moe_vision qwen3_vl_vision videomae videoprism_vision_model vivit vjepa2"
    ),
    "attention between frames of a video": "timesformer xclip xclip_vision_model",
    "images in tiles, with positions and gates for tiles": "mllama_vision_model",
    "rotary positions of its own kind, as complex numbers": "llama4_vision_model pixtral",
    "a class token with rotary positions": "mlcd mlcd_vision_model",
    "fewer heads of key and value than of query": "sapiens2",
    "positions of rows and of columns, looked up apart": (
        "gemma4_vision kosmos_2_5_vision_model pix2struct pix2struct_vision_model"
    ),
    "pairs of images, of which one is the prompt": "seggpt",
    "learned queries beside the patches": "eomt eomt_dinov3 mgp-str perceiver yolos",
    "pixels as words": "imagegpt",
}
"""A part that keras_vit lacks -> the `model_type` of classes of transformers that have it."""

_PART_OF = {word: part for part, words in _TYPES.items() for word in words.split()}

_MOST_LETTERS = 800
"""Length of a description; a path and a sentence stand before it."""

_CORE = (
    "patch_embedding/kernel",
    "position_embedding/embedding",
    "block_{l}/attention/{qkv}/kernel",
    "block_{l}/mlp/dense_0/kernel",
)


def name_lacking(model_types: Iterable[str], shapes: Mapping[str, Shape]) -> str:
    """Returns the part of a class of transformers that keras_vit lacks, in words, or "".

    Args:
        model_types: the words of config.json for the whole model and its parts.
        shapes: the arrays of the file, which decide for unknown words.
    """
    part = next((_PART_OF[word] for word in model_types if word in _PART_OF), None)
    if part is not None:
        return f"it has {part}, which keras_vit lacks"
    kind = name_kind(shapes)
    return f"its arrays are those of {kind}" if kind else ""


def name_kind(shapes: Mapping[str, Shape], is_certain: bool = False) -> str:
    """Returns the family that names and shapes show plainly, or "".

    Args:
        shapes: the arrays of the file.
        is_certain: whether only parts count that no plain Vision Transformer has.
    """
    if any(len(shape) == 5 and "patch" in name for name, shape in shapes.items()):
        return "VideoMAE or another model of videos, with patches in time"
    kinds = _CERTAIN if is_certain else {**_CERTAIN, **_KINDS}
    names = "\n".join(shapes)
    return next((kind for words, kind in kinds.items() if re.search(words, names, re.M)), "")


def describe(shapes: Mapping[str, Shape], claims: Iterable[tuple[Dialect, str, str, str]]) -> str:
    """Returns a few lines: the family that the names show, and the nearest dialects.

    Args:
        shapes: the arrays of the file.
        claims: dialect, prefix, path in the lexicon and name of each array with a known name.
    """
    kind, lines = name_kind(shapes), []
    first = f"\n  The names are those of {kind}." if kind else ""
    found: dict[tuple[Dialect, str], dict[str, str]] = collections.defaultdict(dict)
    for dialect, prefix, path, name in claims:
        found[dialect, prefix][name] = path
    nearest = sorted(found.items(), key=lambda item: (-len(item[1]), len(item[0][1])))[:3]
    for (dialect, prefix), paths in nearest:
        where = f" below {shown(prefix, 40)}" if prefix else ""
        core = [path for path in _CORE if dialect.all_names(path) and path not in paths.values()]
        lacks = [dialect.all_names(path)[0].name for path in core]
        count = "1 name" if len(paths) == 1 else f"{len(paths):,} names"
        rest = f", lacks {listed(lacks, 2)}" if lacks else ""
        lines.append(f"\n  {dialect.name}: {count}{where}{rest}.")
    some = listed((shown(name, 60, quoted=False) for name in list(shapes)[:2000]), 4)
    held = "1 array" if len(shapes) == 1 else f"{len(shapes):,} arrays"
    last = f"\n  It holds {held}: {some if shapes else 'nothing'}."
    if nearest and not kind:
        last += "\n  family=... reads the file as one of them, and names each difference."
    while lines and len(first + "".join(lines) + last) > _MOST_LETTERS:
        lines.pop()
    return first + "".join(lines) + last
