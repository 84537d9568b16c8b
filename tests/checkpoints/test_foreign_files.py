"""Files of other networks are refused in a few lines that name what they are."""

import pytest

from keras_vit.checkpoints.inspection import open_checkpoint
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.errors import CheckpointError
from tests.checkpoints.headers import Headers
from tests.helpers import only_under

only_under("torch")
from tests.live import read_shapes, timm, torch, transformers  # noqa: E402

MOST_LINES, MOST_LETTERS = 12, 900

OF_TIMM = {
    "swin_tiny_patch4_window7_224": "Swin",
    "convnext_atto": "ConvNeXt",
    "mobilevit_xxs": "MobileViT",
    "pvt_v2_b0": "PVT",
    "resnet18": "ResNet",
    "mixer_s32_224": "MLP-Mixer",
    "efficientnet_b0": "EfficientNet",
    "samvit_base_patch16": "SAM",
    "hiera_tiny_224": "Hiera",
    "tnt_s_patch16_224": "TNT",
    "mvitv2_tiny": "MViT",
    "cait_xxs24_224": "timm",
    "xcit_nano_12_p16_224": "timm",
    "levit_128s": "It holds",
}
_TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
OF_TRANSFORMERS = {
    "SwinModel": ({"embed_dim": 8, "depths": [1], "num_heads": [2]}, "Swin"),
    "VideoMAEModel": ({**_TINY, "intermediate_size": 32}, "VideoMAE"),
    "BertModel": ({**_TINY, "vocab_size": 9}, "text"),
    "GPT2Model": ({"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9}, "text"),
    "T5EncoderModel": ({"d_model": 16, "num_layers": 1, "vocab_size": 9}, "text"),
    "ResNetModel": ({"depths": [1], "hidden_sizes": [8], "embedding_size": 8}, "ResNet"),
    "ConvNextModel": ({"depths": [1] * 4, "hidden_sizes": [8] * 4}, "ConvNeXt"),
    "SegformerModel": ({}, "SegFormer"),
}


BY_JSON = {
    "SwinModel": "attention inside windows",
    "Swinv2Model": "attention inside windows",
    "HieraModel": "attention inside windows",
    "SamModel": "attention inside windows",
    "Sam2Model": "attention inside windows",
    "Sam3VisionModel": "attention inside windows",
    "VitDetModel": "attention inside windows",
    "DinatModel": "the nearest neighbours",
    "PvtModel": "stages",
    "PvtV2Model": "stages",
    "SegformerModel": "stages",
    "GLPNModel": "stages",
    "CvtModel": "stages",
    "LevitModel": "stages",
    "SwiftFormerModel": "stages",
    "GroupViTVisionModel": "stages",
    "ConvNextModel": "convolutions in place of attention",
    "ConvNextV2Model": "convolutions in place of attention",
    "DINOv3ConvNextModel": "convolutions in place of attention",
    "EfficientNetModel": "convolutions in place of attention",
    "FocalNetModel": "convolutions in place of attention",
    "PoolFormerModel": "convolutions in place of attention",
    "MobileNetV2Model": "convolutions in place of attention",
    "RegNetModel": "convolutions in place of attention",
    "MobileViTModel": "convolutions between",
    "MobileViTV2Model": "convolutions between",
    "VideoMAEModel": "several frames",
    "VivitModel": "several frames",
    "VJEPA2Model": "several frames",
    "Qwen2VLForConditionalGeneration": "several frames",
    "Qwen2_5_VLForConditionalGeneration": "several frames",
    "TimesformerModel": "between frames",
    "XCLIPVisionModel": "between frames",
    "MllamaVisionModel": "in tiles",
    "Llama4VisionModel": "rotary positions",
    "PixtralVisionModel": "rotary positions",
    "MLCDVisionModel": "a class token with rotary positions",
    "Sapiens2Model": "fewer heads of key and value",
    "Pix2StructVisionModel": "of rows and of columns",
    "SegGptModel": "of which one is the prompt",
    "YolosModel": "learned queries",
    "EomtForUniversalSegmentation": "learned queries",
    "ImageGPTModel": "pixels as words",
}
"""Class of transformers -> words of its part that keras_vit lacks."""


def refused(shapes, files=None) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(shapes), files or {}, is_folder=True), {})
    return str(caught.value)


def check(message: str, family: str) -> None:
    assert family in message
    assert len(message.splitlines()) <= MOST_LINES, message
    assert len(message) <= MOST_LETTERS, message


@pytest.mark.parametrize("name", OF_TIMM)
def test_other_networks_of_timm_are_named_in_a_few_lines(name):
    check(refused(read_shapes(timm.create_model(name, device="meta"))), OF_TIMM[name])


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("weight_ih_l0", "recurrent"),
        ("model.model.2.cv1.conv.weight", "convolutions"),
        ("blocks.0.adaLN_modulation.1.weight", "diffusion"),
        ("_fsdp_wrapped_module._flat_param", "FULL_STATE_DICT"),
        ("optimizer.state.0.exp_avg_sq", "an optimizer"),
    ],
)
def test_plain_names_are_named(name, family):
    check(refused({name: (8, 8), "bias": (8,)}), family)


def test_long_names_make_no_long_message():
    """Parts of three families, each below a long prefix: the least near ones are left out."""
    parts = ("encoder.layer.0.attention.self.query.weight", "blocks.0.mlp.fc1.weight", "cls_token")
    shapes = {f"{letter * 90}.{part}": (8, 8) for letter in "abc" for part in parts}
    check(refused(shapes), "It holds 9 arrays")


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_other_networks_of_transformers_are_named_in_a_few_lines(name):
    fields, family = OF_TRANSFORMERS[name]
    kind = getattr(transformers, name)
    with torch.device("meta"):
        check(refused(read_shapes(kind(kind.config_class(**fields)))), family)


def test_a_listing_of_differences_is_short_and_the_exception_has_the_whole():
    model = timm.create_model("vit_small_patch16_224", device="meta", depth=12)
    shapes = {f"{k[:-6]}wieght" if "norm1" in k else k: v for k, v in read_shapes(model).items()}
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(shapes), {}), {"num_heads": 6})
    check(str(caught.value), "missing: blocks.0.norm1.weight")
    assert len(caught.value.differences) == 48


@pytest.mark.parametrize("name", BY_JSON)
def test_the_part_that_keras_vit_lacks_is_named_by_the_json(name):
    """In one sentence without a list of families, whatever the arrays; also of a whole model."""
    config = getattr(transformers, name).config_class().to_dict() | {"architectures": [name]}
    shapes = {"embeddings.patch_embeddings.projection.weight": (8, 3, 4, 4)}
    message = refused(shapes, {"config.json": config})
    assert f"the model is a {name}: it has " in message
    assert BY_JSON[name] in message
    assert message.endswith(", which keras_vit lacks.") and len(message) < 250


def test_an_unknown_class_is_refused_by_its_arrays_or_beside_the_known_ones():
    config = {"config.json": {"model_type": "fresh", "architectures": ["FreshModel"]}}
    message = refused({"layers.0.relative_position_bias_table": (9, 2)}, config)
    assert "the model is a FreshModel: its arrays are those of Swin" in message
    assert "expected 'vit', 'deit'" in refused({"x": (1,)}, config)
