"""Vision towers of other models of transformers: read within 1e-5, written and read back."""

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.errors import CheckpointError
from tests.family_goldens import relative_error
from tests.helpers import normal, only_under, to_numpy
from tests.words import raises

# The graphs are those of other classes, which goldens compare on every backend.
only_under("torch")
from tests.live import channels_first, random_transformers, torch, transformers  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}
TEXT = {**SIZES, "vocab_size": 30, "encoder_hidden_size": 24, "project_dim": 8}
IMAGE = normal(2, 16, 16, 3)
CLASSES = {
    name: dialect.identity.class_name
    for name, dialect in DIALECTS.items()
    if dialect.library == "transformers" and len(dialect.identity.values) > 1
    if not dialect.only_read
}
"""The dialects that read a vision class, and whole models with that class inside."""
NO_CLASS_TOKEN = ("Idefics3VisionTransformer", "SmolVLMVisionTransformer")


def outputs(model):
    with torch.no_grad():
        return model(channels_first(IMAGE))


@pytest.mark.parametrize("name", CLASSES)
def test_the_vision_class_has_our_features_and_reads_what_we_write(name, tmp_path):
    theirs = random_transformers(CLASSES[name], **VISION)
    theirs.save_pretrained(tmp_path / "theirs")
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    found = outputs(theirs)
    if "CLIP" in name or "clip" in name or "owl" in name:
        want = found.pooler_output.numpy()
    else:
        tokens = found.last_hidden_state.numpy()
        want = tokens.mean(1) if CLASSES[name] in NO_CLASS_TOKEN else tokens[:, 0]
    assert keras_vit.info(tmp_path / "theirs").family == name
    assert relative_error(to_numpy(model(IMAGE)), want) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", name)
    kind = type(theirs)
    again, info = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    for key, value in theirs.state_dict().items():
        assert np.array_equal(again.state_dict()[key].numpy(), value.numpy()), key


RMS = {"norm_type": "rms_norm", "use_qk_norm": True}


def test_the_large_internvl_norms_whole_queries_and_keys(tmp_path):
    """Of 6 billion parameters; all norms are RMSNorm. Its JSON and arrays are read and written."""
    theirs = random_transformers("InternVLVisionModel", **VISION, **RMS)
    theirs.save_pretrained(tmp_path / "theirs")
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    assert (model.config.block.norm, model.config.block.qk_norm) == ("rms", "width")
    want = outputs(theirs).last_hidden_state[:, 0].numpy()
    assert relative_error(to_numpy(model(IMAGE)), want) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", "transformers/internvl_vision")
    again, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert np.array_equal(outputs(again).last_hidden_state[:, 0].numpy(), want)


@pytest.mark.parametrize("changed", [{"norm_type": "layer_norm"}, {"layer_norm_eps": 1e-5}])
def test_other_norms_of_queries_and_keys_than_of_the_blocks_are_refused(changed, tmp_path):
    """In transformers they are always RMSNorm with an epsilon of 1e-6."""
    random_transformers("InternVLVisionModel", **VISION, **RMS | changed).save_pretrained(tmp_path)
    with raises(CheckpointError, "config.json has use_qk_norm=True", "norm_type='rms_norm'"):
        keras_vit.info(tmp_path)


@pytest.mark.parametrize("name", CLASSES)
def test_the_defaults_of_the_class_fill_what_config_json_omits(name):
    """A release writes only what differs from the defaults of its class."""
    theirs = getattr(transformers, CLASSES[name]).config_class()
    (table,) = DIALECTS[name].json
    assumed = table.assumed({})
    want = {key: getattr(theirs, key) for key in assumed}
    square = {k: v[0] if isinstance(v, tuple | list) else v for k, v in want.items()}
    assert assumed == square


PROJECTED = {
    "MetaClip2Model": ("metaclip_2", "vision_model", "visual_projection"),
    "ChineseCLIPModel": ("chinese_clip", "vision_model", "visual_projection"),
    "AltCLIPModel": ("altclip", "vision_model", "visual_projection"),
    "OwlViTModel": ("owlvit", "vision_model", "visual_projection"),
    "Owlv2Model": ("owlv2", "vision_model", "visual_projection"),
    "OwlViTForObjectDetection": (*("owlvit", "owlvit.vision_model", "owlvit.visual_projection"),),
}
"""Whole models with a projection: family, tower and projection."""


@pytest.mark.parametrize("class_name", PROJECTED)
def test_a_whole_model_of_two_towers_gives_the_projected_features(class_name, tmp_path):
    family, tower, projection = PROJECTED[class_name]
    text = {**TEXT, "hidden_act": "gelu"}
    theirs = random_transformers(
        class_name, vision_config=VISION, text_config=text, projection_dim=8
    )
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        pooled = outputs(theirs.get_submodule(tower)).pooler_output
        want = theirs.get_submodule(projection)(pooled).numpy()
    model = VisionTransformer.from_preset(tmp_path)
    assert keras_vit.info(tmp_path).family == f"transformers/{family}_vision_model"
    assert model.config.projection_size == 8
    assert relative_error(to_numpy(model(IMAGE)), want) <= 1e-5


def test_the_pair_of_a_tower_of_clip_and_any_text_model_gives_its_own_projection(tmp_path):
    """Of the width of the pair, not of the default in the tower's configuration."""
    clip = {**VISION, "model_type": "clip_vision_model"}
    bert = {**SIZES, "vocab_size": 30, "model_type": "bert"}
    theirs = random_transformers(
        "VisionTextDualEncoderModel", vision_config=clip, text_config=bert, projection_dim=8
    )
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        pooled = theirs.vision_model(channels_first(IMAGE)).pooler_output
        want = theirs.visual_projection(pooled).numpy()
    found = VisionTransformer.from_preset(tmp_path)(IMAGE)
    assert relative_error(to_numpy(found), want) <= 1e-5


def test_the_classifier_of_metaclip_2_has_our_logits_and_reads_what_we_write(tmp_path):
    theirs = random_transformers("MetaClip2ForImageClassification", vision_config=VISION)
    theirs.save_pretrained(tmp_path / "theirs")
    want = outputs(theirs).logits.numpy()
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    assert relative_error(to_numpy(model(IMAGE)), want) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", "transformers/metaclip_2_classifier")
    again = type(theirs).from_pretrained(tmp_path / "ours")
    assert relative_error(outputs(again).logits.numpy(), want) <= 1e-6


def test_the_image_model_of_flava_is_read_beside_its_temperature(tmp_path):
    text = {**SIZES, "vocab_size": 30}
    parts = {"text_config": text, "multimodal_config": SIZES}
    theirs = random_transformers("FlavaModel", image_config=VISION, hidden_size=24, **parts)
    theirs.save_pretrained(tmp_path)
    want = outputs(theirs.image_model).pooler_output.numpy()
    found = VisionTransformer.from_preset(tmp_path)(IMAGE)
    assert relative_error(to_numpy(found), want) <= 1e-5


PARTS = {
    "GitModel": "image_encoder",
    "GitForCausalLM": "git.image_encoder",
    "BlipForConditionalGeneration": "vision_model",
    "Blip2ForConditionalGeneration": "vision_model",
    "InstructBlipForConditionalGeneration": "vision_model",
    "Idefics3ForConditionalGeneration": "model.vision_model",
    "SmolVLMForConditionalGeneration": "model.vision_model",
    "InternVLForConditionalGeneration": "model.vision_tower",
    "DPTForDepthEstimation": "dpt",
}
"""Whole models that read the tokens of their tower, and the tower."""


def read_fields(class_name):
    """The arguments of a whole model, whose other parts are as small as its library allows."""
    if class_name.startswith("DPT"):
        neck = {"neck_hidden_sizes": [4] * 4, "fusion_hidden_size": 4, "hidden_act": "gelu"}
        return {**VISION, **neck, "backbone_out_indices": [0, 0, 1, 1]}
    if class_name.startswith("Git"):
        return {"vision_config": VISION, **SIZES, "vocab_size": 200}
    text = {**SIZES, "vocab_size": 30, "num_key_value_heads": 3}
    small = {"encoder_hidden_size": 24, "cross_attention_frequency": 1}
    if class_name.startswith(("Blip2", "Instruct")):
        opt = {"model_type": "opt", **text, "word_embed_proj_dim": 24, "ffn_dim": 40}
        former = {**SIZES, **small, "vocab_size": 30}
        return {"vision_config": VISION, "text_config": opt, "qformer_config": former}
    kinds = {"Idefics3": "llama", "SmolVLM": "llama", "InternVL": "qwen2"}
    kind = next((kind for start, kind in kinds.items() if class_name.startswith(start)), None)
    text |= {"model_type": kind} if kind else small
    return {"vision_config": VISION, "text_config": text}


@pytest.mark.parametrize("class_name", PARTS)
def test_the_tower_of_a_whole_model_has_the_same_tokens(class_name, tmp_path):
    theirs = random_transformers(class_name, **read_fields(class_name))
    theirs.save_pretrained(tmp_path)
    want = outputs(theirs.get_submodule(PARTS[class_name])).last_hidden_state.numpy()
    model = VisionTransformer.from_preset(tmp_path)
    tokens = model.tokens(IMAGE, prepared=True)
    rows = [to_numpy(tokens.patches).reshape(2, 16, 24)]
    if tokens.class_token is not None:
        rows.insert(0, to_numpy(tokens.class_token)[:, None])
    assert relative_error(np.concatenate(rows, 1), want) <= 1e-5
