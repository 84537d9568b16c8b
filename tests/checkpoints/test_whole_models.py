"""Towers inside whole models of transformers: nested JSON names the family, a prefix is found."""

import json

import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from tests.family_goldens import relative_error
from tests.helpers import normal, only_under, to_numpy

# The graphs are those of other classes, which goldens compare on every backend.
only_under("torch")
from tests.live import channels_first, random_transformers, torch  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "image_size": 16,
    "patch_size": 4,
}
LANGUAGE = {
    **{k: v for k, v in SIZES.items() if k not in ("image_size", "patch_size")},
    "num_key_value_heads": 3,
    "head_dim": 8,
    "vocab_size": 30,
}
SIGLIP = {**SIZES, "model_type": "siglip_vision_model", "vision_use_head": False}
BACKBONE = {**SIZES, "model_type": "dinov2", "out_features": ["stage1", "stage2"]}
NECK = {"neck_hidden_sizes": [4, 4], "fusion_hidden_size": 4, "reassemble_factors": [1, 1]}
IMAGE = normal(3, 16, 16, 3)
WHOLE = {
    "LlavaForConditionalGeneration": (
        {
            "vision_config": {**SIZES, "model_type": "clip_vision_model"},
            "text_config": {**LANGUAGE, "model_type": "llama"},
        },
        "vision_tower",
        "transformers/clip_vision_model",
    ),
    "PaliGemmaForConditionalGeneration": (
        {
            "vision_config": {**SIGLIP, "projection_dim": 24},
            "text_config": {**LANGUAGE, "model_type": "gemma"},
        },
        "vision_tower",
        "transformers/siglip_encoder",
    ),
    "Gemma3ForConditionalGeneration": (
        {
            "vision_config": SIGLIP,
            "text_config": {**LANGUAGE, "model_type": "gemma3_text"},
            "mm_tokens_per_image": 16,
        },
        "vision_tower",
        "transformers/siglip_encoder",
    ),
    "DepthAnythingForDepthEstimation": (
        {"backbone_config": BACKBONE, **NECK, "patch_size": 4},
        "backbone",
        "transformers/dinov2",
    ),
    "DPTForDepthEstimation": (
        {"backbone_config": BACKBONE, **NECK},
        "backbone",
        "transformers/dinov2",
    ),
    "ColPaliForRetrieval": (
        {
            "vlm_config": {
                "model_type": "paligemma",
                "vision_config": {**SIGLIP, "projection_dim": 24},
                "text_config": {**LANGUAGE, "model_type": "gemma"},
            }
        },
        "vision_tower",
        "transformers/siglip_encoder",
    ),
    "Kosmos2Model": (
        {
            "vision_config": SIZES,
            "text_config": {
                **{"vocab_size": 30, "embed_dim": 24, "layers": 1, "ffn_dim": 16},
                "attention_heads": 3,
            },
        },
        "vision_model",
        "transformers/kosmos_2_vision_model",
    ),
    "CLIPSegForImageSegmentation": (
        {"vision_config": SIZES, "text_config": {**SIZES, "vocab_size": 30}},
        "vision_model",
        "transformers/clipseg_vision_model",
    ),
}

CLIP = ("clip_vision_model", "clipseg_vision_model", "kosmos_2_vision_model")
"""Ends of families whose class gives the tokens in front of the last norm."""


@pytest.mark.parametrize("name", WHOLE)
def test_the_tower_of_a_whole_model_has_our_tokens(name, tmp_path):
    fields, part, family = WHOLE[name]
    whole = random_transformers(name, **fields)
    whole.save_pretrained(tmp_path)
    beside = {"image_processor_type": "ViTImageProcessor", "size": 16}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(beside))
    with torch.no_grad():
        tower = next(m for n, m in whole.named_modules() if n.rpartition(".")[2] == part)
        output = tower(channels_first(IMAGE))
    info = keras_vit.info(tmp_path)
    assert (info.family, info.config.num_heads) == (family, 3)
    assert info.protocol["resize"] == "tensor"  # as transformers 5 resizes, which wrote the folder
    model = VisionTransformer.from_preset(tmp_path)
    last = f"block_{model.config.num_layers - 1}"
    stage = last if family.endswith(CLIP) else f"{last}/norm"
    tokens = model.tokens(IMAGE, stage, prepared=True)
    if part == "backbone":
        want = output.feature_maps[-1].numpy().transpose(0, 2, 3, 1)
    else:  # CLIP's class gives the tokens in front of the last norm, and the class token
        want = output.last_hidden_state.numpy()[:, -16:].reshape(tokens.patches.shape)
    assert relative_error(to_numpy(tokens.patches), want) <= 1e-5
    with pytest.raises(CheckpointError, match="the whole model"):
        keras_vit.verify(tmp_path)


@pytest.mark.parametrize("depth", [3, 9])
def test_a_tower_is_sought_at_few_levels(depth, tmp_path):
    """A hostile file of many or deep objects costs no minutes, and names no family."""
    theirs = random_transformers("SiglipVisionModel", **SIZES, vision_use_head=False)
    theirs.save_pretrained(tmp_path)
    part = json.loads((tmp_path / "config.json").read_text())
    for _ in range(depth):
        part = {"part": part}
    config = {"model_type": "whole", **part, **{str(k): {"model_type": "x"} for k in range(99)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if depth == 3:
        assert keras_vit.info(tmp_path).family == "transformers/siglip_encoder"
        return
    with pytest.raises(CheckpointError, match="model_type='whole'"):
        keras_vit.info(tmp_path)
