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


def refused(shapes) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(shapes), {}), {})
    return str(caught.value)


def check(message: str, family: str) -> None:
    assert family in message
    assert len(message.splitlines()) <= MOST_LINES, message
    assert len(message) <= MOST_LETTERS, message


@pytest.mark.parametrize("name", OF_TIMM)
def test_other_networks_of_timm_are_named_in_a_few_lines(name):
    check(refused(read_shapes(timm.create_model(name, device="meta"))), OF_TIMM[name])


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
