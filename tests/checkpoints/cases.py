"""Small models of transformers, keras-hub and timm that the live tests compare: a row each.

A family of checkpoints adds a row. This module imports no library until a model is made.
"""

import dataclasses
from typing import Any

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}


@dataclasses.dataclass(frozen=True)
class Tower:
    """A model of transformers.

    Args:
        kind: the class.
        family: the family that `info` names, without the library.
        output: the library's output that our model computes: an attribute of what the class
            returns, `"token"` or `"mean"` of the last hidden states; `""` for none.
        fields: arguments of the configuration besides `VISION`.
        tokens: our stage that equals the last hidden states: `"norm"`, `"block"` in front of the
            last norm, or `""` for none.
        part: name of the vision tower inside the model.
        is_written: whether keras_vit writes the family.
        size: height and width of the images.
    """

    kind: str
    family: str
    output: str = "pooler_output"
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: str = "norm"
    part: str = ""
    is_written: bool = True
    size: tuple[int, int] = (16, 16)

    def __str__(self) -> str:
        return " ".join([self.kind, *(self.fields if not self.part else ())])


def _nested(kind: str, family: str, output: str, **fields: Any) -> Tower:
    """A classifier or a projection whose configuration has one of the tower inside."""
    return Tower(kind, family, output, {"vision_config": VISION, **fields}, "")


_RADIO = {
    **{"max_img_size": 32, "mlp_ratio": 2.0, "num_registers": 2},
    **{"norm_mean": [0.5, 0.4, 0.3], "norm_std": [0.2, 0.3, 0.4]},
}
_RADIO_OF_FOUR = {**_RADIO, "num_cls_tokens": 4, "summary_idxs": [0, 1, 2]}
_RADIO_GATED = {**_RADIO, "use_swiglu_ffn": True, "num_registers": 0}
_INTERNVL = {"norm_type": "rms_norm", "use_qk_norm": True}
_PROJECTION = "clip"
_GATED, _BIASES = {"use_swiglu_ffn": True}, {"qkv_bias": True, "mlp_bias": True}
_WIDE = {"pooler_output_size": 13}

TOWERS = (
    Tower("ViTModel", "", fields=_WIDE),
    Tower("ViTForImageClassification", "", "logits", tokens=""),
    Tower("DeiTModel", "deit", fields=_WIDE),
    Tower("DeiTForImageClassificationWithTeacher", "deit", "logits", tokens=""),
    Tower("DPTModel", "dpt", fields=_WIDE, is_written=False),
    Tower("FlavaImageModel", "flava_image_model", is_written=False),
    Tower("ViTMAEModel", "vit_mae", "token", {"mask_ratio": 0.0}, ""),
    Tower("ViTMSNModel", "vit_msn", "token"),
    Tower("IJepaModel", "ijepa", "mean"),
    Tower("BeitModel", "beit", fields={"use_mean_pooling": False}),
    Tower("Data2VecVisionModel", "data2vec-vision", ""),
    Tower("Dinov2Model", "dinov2"),
    Tower("Dinov2Model", "dinov2", fields={"use_mask_token": False}),
    Tower("Dinov2WithRegistersModel", "dinov2_with_registers"),
    Tower("DINOv3ViTModel", "dinov3_vit", fields={"num_register_tokens": 2}),
    Tower("CLIPVisionModel", "clip", tokens="block"),
    Tower("CLIPVisionModelWithProjection", _PROJECTION, "image_embeds", {}, ""),
    _nested("CLIPForImageClassification", "clip", "logits"),
    Tower("SiglipVisionModel", "siglip"),
    Tower("SiglipVisionModel", "siglip", "mean", {"vision_use_head": False}),
    _nested("SiglipForImageClassification", "siglip", "logits"),
    Tower("BlipVisionModel", "blip_vision_model", "token"),
    Tower("Blip2VisionModel", "blip_2_vision_model", "token"),
    Tower("InstructBlipVisionModel", "instructblip_vision_model", "token"),
    Tower("AltCLIPVisionModel", "altclip_vision_model", tokens="block"),
    Tower("ChineseCLIPVisionModel", "chinese_clip_vision_model", tokens="block"),
    Tower("CLIPSegVisionModel", "clipseg_vision_model", tokens="block"),
    Tower("GitVisionModel", "git_vision_model", "token"),
    Tower("MetaClip2VisionModel", "metaclip_2_vision_model", tokens="block"),
    _nested("MetaClip2ForImageClassification", "metaclip_2_classifier", "logits"),
    Tower("OwlViTVisionModel", "owlvit_vision_model", tokens="block"),
    Tower("Owlv2VisionModel", "owlv2_vision_model", tokens="block"),
    Tower("Idefics3VisionTransformer", "idefics3_vision", "mean"),
    Tower("SmolVLMVisionTransformer", "smolvlm_vision", "mean"),
    Tower("InternVLVisionModel", "internvl_vision", "token"),
    Tower("InternVLVisionModel", "internvl_vision", "token", _INTERNVL),
    Tower("PixioModel", "pixio", fields={"n_cls_tokens": 1}),
    Tower("PixioModel", "pixio", fields={"n_cls_tokens": 3}, size=(24, 24)),
    Tower("RadioModel", "radio", "summary", _RADIO),
    Tower("RadioModel", "radio", "summary", _RADIO_GATED, size=(16, 28)),
    Tower("RadioModel", "radio", "summary", _RADIO_OF_FOUR, size=(32, 32)),
    Tower("Tipsv2VisionModel", "tipsv2_vision_model", fields={"mlp_ratio": 2.5}),
    Tower("Tipsv2VisionModel", "tipsv2_vision_model", fields=_GATED, size=(24, 24)),
    Tower("Aimv2VisionModel", "aimv2_vision_model", "mean", {"use_head": False}),
    Tower("Aimv2VisionModel", "aimv2_vision_model", is_written=False),
    Tower("Aimv2VisionModel", "aimv2_vision_model", fields=_BIASES, is_written=False),
)

_TEXT = {**SIZES, "vocab_size": 30, "num_key_value_heads": 3, "head_dim": 8}
_PAIR = {**SIZES, "vocab_size": 30, "project_dim": 8, "hidden_act": "gelu"}
_BLIP_TEXT = {**_PAIR, "encoder_hidden_size": 24}
_CLIP = {**VISION, "model_type": "clip_vision_model"}
_SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}
_DINOV2 = {**VISION, "model_type": "dinov2", "out_features": ["stage1", "stage2"]}


def _text(kind: str, **fields: Any) -> dict[str, Any]:
    """The configuration of a text model, and the image tokens of Gemma 3."""
    return {"text_config": {**_TEXT, "model_type": kind, **fields}, "mm_tokens_per_image": 16}


_GIT = {**SIZES, "vocab_size": 200}
_BLIP_2 = {
    "text_config": {**_TEXT, "model_type": "opt", "word_embed_proj_dim": 24, "ffn_dim": 40},
    "qformer_config": {**_BLIP_TEXT, "cross_attention_frequency": 1},
}
_SEGMENTS = {"text_config": _PAIR}
_LLAVA = {"vision_config": _CLIP, **_text("llama")}
_GEMMA = {"vision_config": _SIGLIP, **_text("gemma3_text")}
_PALIGEMMA = {"vision_config": {**_SIGLIP, "projection_dim": 24}, **_text("gemma")}
_COLPALI = {"vlm_config": {"model_type": "paligemma", **_PALIGEMMA}}
_KOSMOS = {"vocab_size": 30, "embed_dim": 24, "layers": 1, "ffn_dim": 16, "attention_heads": 3}
_DPT = {
    **VISION,
    **{"neck_hidden_sizes": [4] * 4, "fusion_hidden_size": 4, "hidden_act": "gelu"},
    "backbone_out_indices": [0, 0, 1, 1],
}
_NECK = {
    **{"neck_hidden_sizes": [4, 4], "fusion_hidden_size": 4, "reassemble_factors": [1, 1]},
    **{"backbone_config": _DINOV2, "patch_size": 4},
}
_FLAVA = {
    **{"image_config": VISION, "text_config": _PAIR, "multimodal_config": SIZES},
    "hidden_size": 24,
}
_DUAL = {"vision_config": _CLIP, "text_config": {**_PAIR, "model_type": "bert"}}


def _whole(kind: str, family: str, part: str, tokens: str = "norm", **fields: Any) -> Tower:
    """A whole model, of which the tokens of its tower are compared."""
    return Tower(kind, family, "", {"vision_config": VISION, **fields}, tokens, part, False)


def _pair(kind: str, family: str, **fields: Any) -> Tower:
    """A model of an image and a text tower, of which the projected features are compared."""
    fields = {"vision_config": VISION, "text_config": _PAIR, "projection_dim": 8, **fields}
    return Tower(kind, family, "projected", fields, "", "vision_model", False)


_TOWER, _MODEL, _ENCODER = "vision_tower", "vision_model", "image_encoder"
WHOLE = (
    _pair("MetaClip2Model", "metaclip_2_vision_model"),
    _pair("ChineseCLIPModel", "chinese_clip_vision_model"),
    _pair("AltCLIPModel", "altclip_vision_model"),
    _pair("OwlViTModel", "owlvit_vision_model"),
    _pair("Owlv2Model", "owlv2_vision_model"),
    _pair("OwlViTForObjectDetection", "owlvit_vision_model"),
    _pair("VisionTextDualEncoderModel", _PROJECTION, **_DUAL),
    Tower("FlavaModel", "flava_image_model", "pooler_output", _FLAVA, "norm", "image_model", False),
    _whole("GitModel", "git_vision_model", _ENCODER, **_GIT),
    _whole("GitForCausalLM", "git_vision_model", _ENCODER, **_GIT),
    _whole("BlipForConditionalGeneration", "blip_vision_model", _MODEL, text_config=_BLIP_TEXT),
    _whole("Blip2ForConditionalGeneration", "blip_2_vision_model", _MODEL, **_BLIP_2),
    _whole("InstructBlipForConditionalGeneration", "instructblip_vision_model", _MODEL, **_BLIP_2),
    _whole("Idefics3ForConditionalGeneration", "idefics3_vision", _MODEL, **_text("llama")),
    _whole("SmolVLMForConditionalGeneration", "smolvlm_vision", _MODEL, **_text("llama")),
    _whole("InternVLForConditionalGeneration", "internvl_vision", _TOWER, **_text("qwen2")),
    _whole("LlavaForConditionalGeneration", "clip", _TOWER, "block", **_LLAVA),
    _whole("PaliGemmaForConditionalGeneration", "siglip", _TOWER, **_PALIGEMMA),
    _whole("Gemma3ForConditionalGeneration", "siglip", _TOWER, **_GEMMA),
    _whole("ColPaliForRetrieval", "siglip", _TOWER, **_COLPALI),
    _whole("Kosmos2Model", "kosmos_2_vision_model", _MODEL, "block", text_config=_KOSMOS),
    _whole("CLIPSegForImageSegmentation", "clipseg_vision_model", _MODEL, "block", **_SEGMENTS),
    _whole("DPTForDepthEstimation", "dpt", "dpt", **_DPT),
    _whole("DPTForDepthEstimation", "dinov2", "backbone", **_NECK),
    _whole("DepthAnythingForDepthEstimation", "dinov2", "backbone", **_NECK),
)

REFUSED = (
    *((f"{k}Model", {"pooler_act": "relu"}, "pooler_act='relu'") for k in ("ViT", "DeiT", "DPT")),
    ("DINOv3ViTModel", {"hidden_act": "relu"}, "hidden_act='relu'"),
    ("InternVLVisionModel", {**_INTERNVL, "norm_type": "layer_norm"}, "use_qk_norm=True"),
    ("InternVLVisionModel", {**_INTERNVL, "layer_norm_eps": 1e-5}, "use_qk_norm=True"),
    ("RadioModel", {**_RADIO, "summary_idxs": [0, 2]}, "summary_idxs=[0, 2]"),
    ("Aimv2VisionModel", {"is_native": True}, "is_native=True"),
)
"""Classes and values of their JSON that keras_vit does not compute, and the words of a refusal."""

_VIT, _DINOV3 = "vit_base_patch16_224", "vit_small_patch16_dinov3"
_HEADS = {"embed_dim": 48}  # rotary positions need a multiple of four features per head
_GIANT = {"embed_dim": 256, "num_heads": 16, "img_size": 56, "patch_size": 14}
_POOLINGS = [
    (_VIT, {}, {"global_pool": pool, "fc_norm": norm, "reg_tokens": 1}, False)
    for pool in ("", "token", "avg", "map")
    for norm in (None, True, False)
    if (pool, norm) != ("map", True)
]
TIMM = (
    *_POOLINGS,
    (_VIT, {}, {"qkv_bias": False}, True),
    (_VIT, {}, {"pre_norm": True}, True),
    (_VIT, {}, {"class_token": False, "global_pool": "avg"}, True),
    (_VIT, {}, {"global_pool": "avg"}, True),
    (_VIT, {}, {"global_pool": "map"}, True),
    (_VIT, {}, {"num_classes": 0}, True),
    ("test_vit4", {}, {"qk_norm": True}, True),
    ("vit_giant_patch14_dinov2", {}, {"qk_norm": True}, True),
    ("eva02_base_patch14_224", {}, {"qk_norm": True}, True),
    (_DINOV3, _HEADS, {"qk_norm": True}, True),
    # The Perception Encoder and EVA-02 have the arrays of these, and rotary positions.
    ("vit_base_patch16_clip_224", {}, {"final_norm": False}, False),
    ("vit_base_patch16_siglip_224", {}, {"pre_norm": True}, False),
    ("beit_base_patch16_224", {}, {"use_rel_pos_bias": False}, False),
    # The Perception Encoder pools with 8 heads, and takes images whose last pixels fill no patch.
    ("vit_pe_core_gigantic_patch14_448", _GIANT, {}, False),
    ("vit_pe_core_base_patch16_224", {"img_size": 10}, {}, False),
)
"""Architectures of timm: name, sizes, other arguments, and whether the arrays show the latter."""
