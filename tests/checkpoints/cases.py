"""What is compared with other libraries: a row is a model, its options, output and tolerance.

`references` makes the model of a row, `test_cases` holds its laws, and `python -m weights.sweeps`
runs them over what a library publishes. This module imports no library.
"""

import dataclasses
from typing import Any

from tests import golden

_WIDTHS = {"hidden_size": 24, "intermediate_size": 40}
SIZES = {**_WIDTHS, "num_attention_heads": 3, "num_hidden_layers": 2}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of a library.

    Args:
        library: a function of `references` that makes it.
        kind: the class, the architecture, or the name of the golden.
        family: the family that `info` names, without the library.
        output: the library's output that our model computes: an attribute of what the class
            returns, `"token"` or `"mean"` of the last hidden states; `""` for none. Of a golden,
            the one stage that is compared; `""` for all.
        fields: arguments of the class or architecture besides small sizes; of a golden, arguments
            of `from_preset`.
        tokens: our stage that equals the last hidden states: `"norm"`, `"block"` in front of the
            last norm, or `""` for none.
        part: name of the vision tower inside the model.
        is_written: whether keras_vit writes the family.
        size: height and width of the images.
        sizes: sizes of an architecture of timm besides the small ones.
        maps: sizes of the images whose maps are compared.
        are_shown: whether the arrays of timm show the fields.
        refused: words of the refusal of a model that keras_vit does not compute.
        tolerance, tolerance_tokens: largest error, as a share of the largest value.
    """

    library: str
    kind: str
    family: str = ""
    output: str = ""
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: str = ""
    part: str = ""
    is_written: bool = True
    size: tuple[int, int] = (16, 16)
    sizes: dict[str, Any] = dataclasses.field(default_factory=dict)
    maps: tuple[tuple[int, int], ...] = ()
    are_shown: bool = False
    refused: tuple[str, ...] = ()
    tolerance: float = 1e-5
    tolerance_tokens: float = 1e-5

    def __str__(self) -> str:
        fields = (f"{k}={v}" for k, v in self.fields.items() if not isinstance(v, dict | list))
        return " ".join([self.kind, *([self.family] if self.part else fields)])

    def limit(self, stage: str) -> float:
        """The largest error of one output."""
        if stage.startswith("pos_embedding"):
            return 1e-6
        ends = ("pre_logits", "logits", "image_embeds", "pooler_output")
        return self.tolerance if stage.startswith(ends) else self.tolerance_tokens


def _golden(name, output="", **fields):
    """Stored outputs; keras_vit writes what a folder of torch's libraries holds."""
    row = golden.CASES[name]
    is_own = row["layout"] in ("timm", "transformers") and row["checkpoint"].name == name
    is_written = is_own and name not in ONLY_READ and not fields
    limits = {key: row[key] for key in ("tolerance", "tolerance_tokens")}
    return Case("golden", name, "", output, fields, is_written=is_written, **limits)


ONLY_READ = (
    *("hf_clip_two_towers", "hf_clip_two_towers_published", "hf_siglip_two_towers"),
    *("hf_siglip2_naflex", "hf_siglip2_classifier", "timm_r26"),  # timm lacks the stem of R26
)
GOLDENS = (
    *map(_golden, golden.CASES),
    # A distilled model without heads returns the mean of two tokens, timm's pre_logits of DeiT.
    _golden("hf_deit_teacher", "pre_logits", num_classes=0),
    # A model of any image size resizes its positions per call, to the same logits.
    *(
        _golden(name, "logits", image_size=(None, None))
        for name in ("vit_resize_up", "vit_resize_down", "hybrid_r50_resize", "hf_classifier")
    ),
)


def _tower(kind, family, output="pooler_output", fields=None, tokens="norm", **further):
    """A model of transformers; without `part`, its configuration has the sizes of `VISION`."""
    return Case("transformers", kind, family, output, fields or {}, tokens, **further)


def _nested(kind, family, output, **fields):
    """A classifier or a projection whose configuration has one of the tower inside."""
    return _tower(kind, family, output, {"vision_config": VISION, **fields}, "")


_RADIO = {"max_img_size": 32, "norm_mean": [0.5, 0.4, 0.3], "norm_std": [0.2, 0.3, 0.4]}
_RADIO |= {"mlp_ratio": 2.0, "num_registers": 2}
_RADIO_OF_FOUR = {**_RADIO, "num_cls_tokens": 4, "summary_idxs": [0, 1, 2]}
_RADIO_GATED = {**_RADIO, "use_swiglu_ffn": True, "num_registers": 0}
_INTERNVL = {"norm_type": "rms_norm", "use_qk_norm": True}
_PROJECTION = "clip"
_GATED, _BIASES = {"use_swiglu_ffn": True}, {"qkv_bias": True, "mlp_bias": True}
_WIDE = {"pooler_output_size": 13}
_ROPE = {"num_attention_heads": 2, "num_register_tokens": 3}
_ROPE |= {"key_bias": True, "mlp_bias": False, "rope_theta": 50.0}

TOWERS = (
    _tower("ViTModel", "", fields=_WIDE),
    _tower("ViTForImageClassification", "", "logits", tokens=""),
    _tower("ViTForImageClassification", "", "logits", {"hidden_act": "silu"}, ""),
    _tower("DeiTModel", "deit", fields=_WIDE),
    _tower("DeiTForImageClassificationWithTeacher", "deit", "logits", tokens=""),
    _tower("DPTModel", "dpt", fields=_WIDE, is_written=False),
    _tower("FlavaImageModel", "flava_image_model", is_written=False),
    _tower("ViTMAEModel", "vit_mae", "token", {"mask_ratio": 0.0}, ""),
    _tower("ViTMSNModel", "vit_msn", "token"),
    _tower("IJepaModel", "ijepa", "mean"),
    _tower("BeitModel", "beit", fields={"use_mean_pooling": False}),
    _tower("Data2VecVisionModel", "data2vec-vision", ""),
    _tower("Dinov2Model", "dinov2"),
    _tower("Dinov2Model", "dinov2", fields={"use_mask_token": False}),
    _tower("Dinov2WithRegistersModel", "dinov2_with_registers"),
    _tower("DINOv3ViTModel", "dinov3_vit", fields={"num_register_tokens": 2}),
    # Written without an array of zero rows, which transformers then calls missing.
    _tower("DINOv3ViTModel", "dinov3_vit", fields={"num_register_tokens": 0}, is_written=False),
    _tower("DINOv3ViTModel", "dinov3_vit", fields=_ROPE),
    _tower("CLIPVisionModel", "clip", tokens="block"),
    _tower("CLIPVisionModelWithProjection", _PROJECTION, "image_embeds", {}, ""),
    _nested("CLIPForImageClassification", "clip", "logits"),
    _tower("SiglipVisionModel", "siglip"),
    _tower("SiglipVisionModel", "siglip", "mean", {"vision_use_head": False}),
    _nested("SiglipForImageClassification", "siglip", "logits"),
    _tower("BlipVisionModel", "blip_vision_model", "token"),
    _tower("Blip2VisionModel", "blip_2_vision_model", "token"),
    _tower("InstructBlipVisionModel", "instructblip_vision_model", "token"),
    _tower("AltCLIPVisionModel", "altclip_vision_model", tokens="block"),
    _tower("ChineseCLIPVisionModel", "chinese_clip_vision_model", tokens="block"),
    _tower("CLIPSegVisionModel", "clipseg_vision_model", tokens="block"),
    _tower("GitVisionModel", "git_vision_model", "token"),
    _tower("MetaClip2VisionModel", "metaclip_2_vision_model", tokens="block"),
    _nested("MetaClip2ForImageClassification", "metaclip_2_classifier", "logits"),
    _tower("OwlViTVisionModel", "owlvit_vision_model", tokens="block"),
    _tower("Owlv2VisionModel", "owlv2_vision_model", tokens="block"),
    _tower("Idefics3VisionTransformer", "idefics3_vision", "mean"),
    _tower("SmolVLMVisionTransformer", "smolvlm_vision", "mean"),
    _tower("InternVLVisionModel", "internvl_vision", "token"),
    _tower("InternVLVisionModel", "internvl_vision", "token", _INTERNVL),
    _tower("PixioModel", "pixio", fields={"n_cls_tokens": 1}),
    _tower("PixioModel", "pixio", fields={"n_cls_tokens": 3}, size=(24, 24)),
    _tower("RadioModel", "radio", "summary", _RADIO, size=(16, 28)),
    _tower("RadioModel", "radio", "summary", _RADIO_GATED),
    _tower("RadioModel", "radio", "summary", _RADIO_OF_FOUR, size=(32, 32)),
    _tower("Tipsv2VisionModel", "tipsv2_vision_model", fields={"mlp_ratio": 2.5}),
    _tower("Tipsv2VisionModel", "tipsv2_vision_model", fields=_GATED, size=(24, 24)),
    _tower("Aimv2VisionModel", "aimv2_vision_model", "mean", {"use_head": False}),
    _tower("Aimv2VisionModel", "aimv2_vision_model", is_written=False),
    _tower("Aimv2VisionModel", "aimv2_vision_model", fields=_BIASES, is_written=False),
)

_TEXT = {**SIZES, "vocab_size": 30, "num_key_value_heads": 3, "head_dim": 8}
_PAIR = {**SIZES, "vocab_size": 30, "project_dim": 8, "hidden_act": "gelu"}
_BLIP_TEXT = {**_PAIR, "encoder_hidden_size": 24}
_CLIP = {**VISION, "model_type": "clip_vision_model"}
_SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}
_DINOV2 = {**VISION, "model_type": "dinov2", "out_features": ["stage1", "stage2"]}


def _text(kind):
    """The configuration of a text model, and the image tokens of Gemma 3."""
    return {"text_config": {**_TEXT, "model_type": kind}, "mm_tokens_per_image": 16}


_OPT = {**_TEXT, "model_type": "opt", "word_embed_proj_dim": 24, "ffn_dim": 40}
_BLIP_2 = {"text_config": _OPT, "qformer_config": {**_BLIP_TEXT, "cross_attention_frequency": 1}}
_LLAVA = {"vision_config": _CLIP, **_text("llama")}
_GEMMA = {"vision_config": _SIGLIP, **_text("gemma3_text")}
_PALIGEMMA = {"vision_config": {**_SIGLIP, "projection_dim": 24}, **_text("gemma")}
_COLPALI = {"vlm_config": {"model_type": "paligemma", **_PALIGEMMA}}
_KOSMOS = {"vocab_size": 30, "embed_dim": 24, "layers": 1, "ffn_dim": 16, "attention_heads": 3}
_DPT = {**VISION, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "num_labels": 5}
_NECK = {"neck_hidden_sizes": [4, 6, 8, 10], "fusion_hidden_size": 8}
_BACKBONE = {**_DINOV2, "num_hidden_layers": 4, "image_size": 28, "patch_size": 14}
_BACKBONE |= {"out_indices": [1, 2, 3, 4], "out_features": None, "reshape_hidden_states": False}
_ANYTHING = {"backbone_config": _BACKBONE, "patch_size": 14, "reassemble_hidden_size": 24}
_FLAVA = {"image_config": VISION, "text_config": _PAIR, "multimodal_config": SIZES, **_WIDTHS}
_DUAL = {"vision_config": _CLIP, "text_config": {**_PAIR, "model_type": "bert"}}


def _whole(kind, family, part, tokens="norm", **fields):
    """A whole model, of which the tokens of its tower are compared."""
    fields = {"vision_config": VISION, **fields}
    return _tower(kind, family, "", fields, tokens, part=part, is_written=False)


def _pair(kind, family, **fields):
    """A model of an image and a text tower, of which the projected features are compared."""
    fields = {"vision_config": VISION, "text_config": _PAIR, "projection_dim": 8, **fields}
    return _tower(kind, family, "projected", fields, "", part="vision_model", is_written=False)


_TOWER, _MODEL = "vision_tower", "vision_model"
WHOLE = (
    _pair("MetaClip2Model", "metaclip_2_vision_model"),
    _pair("ChineseCLIPModel", "chinese_clip_vision_model"),
    _pair("AltCLIPModel", "altclip_vision_model"),
    _pair("OwlViTModel", "owlvit_vision_model"),
    _pair("Owlv2Model", "owlv2_vision_model"),
    _pair("OwlViTForObjectDetection", "owlvit_vision_model"),
    _pair("VisionTextDualEncoderModel", _PROJECTION, **_DUAL),
    _tower("FlavaModel", "flava_image_model", fields=_FLAVA, part="image_model", is_written=False),
    _whole("GitModel", "git_vision_model", "image_encoder", **SIZES, vocab_size=200),
    _whole("GitForCausalLM", "git_vision_model", "image_encoder", **SIZES, vocab_size=200),
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
    _whole(
        "CLIPSegForImageSegmentation", "clipseg_vision_model", _MODEL, "block", text_config=_PAIR
    ),
)


def _map(kind, family, fields, *sizes):
    """A model of depths or segments, whose map is compared at several sizes of images."""
    return Case("maps", kind, family, fields={**_NECK, **fields}, tolerance=1e-5, maps=sizes)


_NORMS = {"use_batch_norm_in_fusion_residual": True, "use_auxiliary_head": False}
_ON_DINOV2 = {"backbone_config": {**_BACKBONE, "apply_layernorm": False}, "fusion_hidden_size": 256}
_METRIC = {"depth_estimation_type": "metric", "max_depth": 20, "backbone_config": _BACKBONE}
MAPS = (
    _map("DepthAnythingForDepthEstimation", "depth_anything", _ANYTHING, (28, 28), (42, 70)),
    _map("DepthAnythingForDepthEstimation", "depth_anything", {**_ANYTHING, **_METRIC}, (28, 42)),
    _map("DPTForDepthEstimation", "dpt_depth", _DPT, (16, 16), (24, 24)),
    _map("DPTForDepthEstimation", "dpt_depth", {**_DPT, "readout_type": "add"}, (24, 24)),
    _map("DPTForDepthEstimation", "dpt_dinov2", _ON_DINOV2, (28, 28), (42, 14)),
    _map("DPTForSemanticSegmentation", "dpt_segmentation", _DPT, (16, 16), (24, 24)),
    _map("DPTForSemanticSegmentation", "dpt_segmentation", {**_DPT, **_NORMS}, (16, 16)),
)


def _refused(kind, fields, word):
    """A class, and values of its JSON that keras_vit does not compute."""
    return _tower(kind, "", "", fields, "", refused=(word,))


REFUSED = (
    *(_refused(f"{k}Model", {"pooler_act": "relu"}, "pooler_act='relu'") for k in ("ViT", "DPT")),
    _refused("DeiTModel", {"pooler_act": "relu"}, "pooler_act='relu'"),
    _refused("DINOv3ViTModel", {"hidden_act": "relu"}, "hidden_act='relu'"),
    _refused("InternVLVisionModel", {**_INTERNVL, "norm_type": "layer_norm"}, "use_qk_norm=True"),
    _refused("InternVLVisionModel", {**_INTERNVL, "layer_norm_eps": 1e-5}, "use_qk_norm=True"),
    _refused("RadioModel", {**_RADIO, "summary_idxs": [0, 2]}, "summary_idxs=[0, 2]"),
    _refused("Aimv2VisionModel", {"is_native": True}, "is_native=True"),
)
TRANSFORMERS = (
    *TOWERS,
    *WHOLE,
    *REFUSED,
    *MAPS,
    # A tower beside its text, whose images have unequal shapes.
    Case("naflex", "Siglip2Model", "", "logits", is_written=False),
)


SMALL = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}
WIDER = {**SMALL, "embed_dim": 32, "num_heads": 4}


def _timm(kind, sizes, fields, are_shown, **further):
    """An architecture of timm."""
    further |= {"sizes": {**SMALL, **sizes}, "are_shown": are_shown}
    return Case("timm", kind, "", "logits", fields, **further)


_VIT, _DINOV3 = "vit_base_patch16_224", "vit_small_patch16_dinov3"
_HEADS = {"embed_dim": 48}  # rotary positions need a multiple of four features per head
_GIANT = {"embed_dim": 256, "num_heads": 16, "img_size": 56, "patch_size": 14}
_POOLINGS = [
    _timm(_VIT, {}, {"global_pool": pool, "fc_norm": norm, "reg_tokens": 1}, False)
    for pool in ("", "token", "avg", "map")
    for norm in (None, True, False)
    if (pool, norm) != ("map", True)
]
_GATED_SILU = {"mlp_layer": "SwiGLUPacked", "act_layer": "SiLU"}
_LARGE = {"mlp_ratio": 5.375, "init_values": 1e-5}
_UNI2 = {"mlp_ratio": 2.66667 * 2, "init_values": 1e-5, "no_embed_class": True, "reg_tokens": 8}
CARDS: dict[str, tuple[str, dict[str, Any]]] = {
    "UNI": ("vit_large_patch16_224", {"init_values": 1e-5, "dynamic_img_size": True}),
    "UNI2-h": ("vit_giant_patch14_224", {**_UNI2, "dynamic_img_size": True, **_GATED_SILU}),
    "Virchow2": ("vit_huge_patch14_224", {**_LARGE, "reg_tokens": 4, **_GATED_SILU}),
    "H0-mini": ("vit_base_patch14_reg4_dinov2", {"mlp_ratio": 5.375, **_GATED_SILU}),
    "H-optimus": ("vit_giant_patch14_reg4_dinov2", {"init_values": 1e-5}),
    "prov-gigapath": ("vit_giant_patch14_dinov2", _LARGE),
    "kaiko B/8": ("vit_base_patch8_224", {"dynamic_img_size": True}),
    "lunit": ("vit_small_patch8_224", {"dynamic_img_size": True}),
    "RETFound": ("vit_large_patch16_224", {"global_pool": "avg", "num_classes": 5}),
    "Sentinel-2": ("vit_small_patch16_224", {"in_chans": 13}),
}
"""Encoders of single fields: timm's architecture, and the arguments of the card."""
_NAFLEX = {"patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}
_NAFLEX |= {"pos_embed_grid_size": (3, 3)}
TIMM = (
    *_POOLINGS,
    _timm(_VIT, {}, {"qkv_bias": False}, True),
    _timm(_VIT, {}, {"pre_norm": True}, True),
    _timm(_VIT, {}, {"class_token": False, "global_pool": "avg"}, True),
    _timm(_VIT, {}, {"global_pool": "avg"}, True),
    _timm(_VIT, {}, {"global_pool": "map"}, True),
    _timm(_VIT, {}, {"num_classes": 0}, True),
    _timm("test_vit4", {}, {"qk_norm": True}, True),
    _timm("vit_giant_patch14_dinov2", {}, {"qk_norm": True}, True),
    _timm("eva02_base_patch14_224", {}, {"qk_norm": True}, True),
    _timm(_DINOV3, _HEADS, {"qk_norm": True}, True),
    # The Perception Encoder and EVA-02 have the arrays of these, and rotary positions.
    _timm("vit_base_patch16_clip_224", {}, {"final_norm": False}, False),
    _timm("vit_base_patch16_siglip_224", {}, {"pre_norm": True}, False),
    _timm("beit_base_patch16_224", {}, {"use_rel_pos_bias": False}, False),
    # The Perception Encoder pools with 8 heads, and takes images whose last pixels fill no patch.
    _timm("vit_pe_core_gigantic_patch14_448", _GIANT, {}, False),
    _timm("vit_pe_core_base_patch16_224", {"img_size": 10}, {}, False),
    *(
        _timm(kind, WIDER, {"num_classes": 0, **card}, True, is_written=False)
        for kind, card in CARDS.values()
    ),
    _timm(_VIT, {}, {"global_pool": "max"}, False, refused=("global_pool='max'",)),
    _timm(_VIT, {}, {"global_pool": "map", "fc_norm": True}, False, refused=("norm.weight",)),
    # timm adds it before the coordinates are scaled; keras_vit has it for axial positions.
    _timm(_DINOV3, {}, {"rope_grid_offset": 1.0}, False, refused=("rope_grid_offset",)),
    # The arrays do not tell the number of heads.
    *(
        Case("naflex", "naflexvit_base_patch16_map", "", "logits", fields, sizes=_NAFLEX)
        for fields in ({}, {"attn_pool_num_heads": 1, "attn_pool_mlp_ratio": 1.5})
    ),
)


def _trunk(kind, pool, **further):
    """An architecture of timm with a projection, as open_clip publishes it."""
    side = 64 if "32" in kind else 32
    further = {"is_written": False, "size": (side, side), **further}
    return Case("open_clip", kind, "", "logits", {"timm_pool": pool}, **further)


_LACKED = "vit_dpwee_patch16_reg1_gap_256"
OPEN_CLIP = (
    _trunk("vit_base_patch16_224", ""),  # BiomedCLIP
    _trunk("vit_base_patch16_224", "avg"),
    _trunk("vit_base_patch32_siglip_256", "map"),  # its GELU is not that of the others
    _trunk("vit_pe_core_base_patch16_224", ""),
    _trunk(_LACKED, "", refused=(f"={_LACKED!r}", "parallel")),
)

_TWO = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16}
_SMALL = {**_TWO, "image_shape": (16, 16, 3), "patch_size": 4}
_PLAIN = {**_SMALL, "intermediate_dim": 24}
_SQUARE = {**_SMALL, "patch_size": (4, 4), "mlp_dim": 24}
_DEIT = {**_PLAIN, "patch_size": (4, 4)}
_RESIZED = {**_PLAIN, "position_embedding_shape": (16, 16, 3)}


def _hub(kind, family, sizes, **fields):
    """A class of keras-hub."""
    return Case("keras_hub", kind, family, "logits", fields, sizes=sizes, is_written=False)


KERAS_HUB = (  # beside the goldens
    _hub("ViTBackbone", "", _SQUARE, use_mha_bias=False),
    _hub("ViTBackbone", "", _SQUARE, use_mlp_bias=False),
    _hub("DeiTBackbone", "deit", _DEIT, use_mha_bias=False),
    _hub("DINOV2Backbone", "dinov2", _RESIZED, use_mask_token=False, num_register_tokens=2),
    _hub("DINOV3Backbone", "dinov3", _PLAIN, num_register_tokens=3, use_mask_token=False),
    _hub("DINOV3Backbone", "dinov3", _PLAIN, use_key_bias=True, rope_theta=50.0),
    # Backbones of two towers, of which the text encoder is left out.
    _hub("CLIPBackbone", "clip", _TWO),
    _hub("SigLIPBackbone", "siglip", _TWO),
)

CASES = (*GOLDENS, *TRANSFORMERS, *TIMM, *OPEN_CLIP, *KERAS_HUB)
