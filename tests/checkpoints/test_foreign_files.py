"""Files of other networks, of huge numbers and of long names are refused quickly in a few lines."""

import pytest

import keras_vit
from keras_vit.errors import CheckpointError
from tests.checkpoints.files import arrays_of, refused, write_shapes
from tests.live import read_shapes, timm, torch, transformers

OF_TIMM = {
    "swin_tiny_patch4_window7_224": "lacks pos_embed",
    "xcit_nano_12_p16_224": "lacks patch_embed.proj.weight",
    "resnet18": "conv1.weight",
    "samvit_base_patch16": "read as timm",
    "hiera_tiny_224": "read as timm",
}
_TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
OF_TRANSFORMERS = {
    "SwinModel": ({"embed_dim": 8, "depths": [1], "num_heads": [2]}, "23 names"),
    "VideoMAEModel": ({**_TINY, "intermediate_size": 32}, "lacks embeddings.position_embeddings"),
    "ViltModel": ({**_TINY, "vocab_size": 9}, "30 names"),
    "BertModel": ({**_TINY, "vocab_size": 9}, "lacks embeddings.patch_embeddings"),
}


def check(source, *words, **fields) -> None:
    """The message has the words and few lines."""
    message = refused(source, *words, most=900 + len(str(source)), **fields)
    assert len(message.splitlines()) <= 12, message


@pytest.mark.parametrize("name", [*OF_TIMM, *OF_TRANSFORMERS])
def test_other_networks_are_refused_beside_the_nearest_families(name, tmp_path):
    """Those of transformers by their class too."""
    if name in OF_TIMM:
        shapes = read_shapes(timm.create_model(name, device="meta"))
        check(write_shapes(tmp_path / "x", shapes), OF_TIMM[name])
        return
    fields, words = OF_TRANSFORMERS[name]
    config = getattr(transformers, name).config_class(**fields)
    with torch.device("meta"):
        shapes = read_shapes(getattr(transformers, name)(config))
    stated = config.to_dict() | {"architectures": [name]}
    write_shapes(tmp_path / "model.safetensors", shapes, stated)
    check(tmp_path, words, f"config.json has model_type='{config.model_type}'", name)


def test_a_listing_of_differences_is_short_and_the_exception_has_the_whole(tmp_path):
    model = timm.create_model("vit_small_patch16_224", device="meta", depth=12)
    shapes = {f"{k[:-6]}wieght" if "norm1" in k else k: v for k, v in read_shapes(model).items()}
    path = write_shapes(tmp_path / "x", shapes)
    check(path, "missing: blocks.0.norm1.weight", num_heads=6)
    with pytest.raises(CheckpointError) as caught:
        keras_vit.info(path, num_heads=6)
    assert len(caught.value.differences) == 48


def many(count: int) -> dict[str, tuple[int, ...]]:
    return {f"{'abcdefghij'[k % 10]}{k}/kernel_{k}": (2, 2) for k in range(count)}


BIG_VISION = {name: array.shape for name, array in arrays_of("vit_token_linen.npz").items()}
PARTS = ("encoder.layer.0.attention.self.query.weight", "blocks.0.mlp.fc1.weight", "cls_token")
BLOCK, UNIT = "Transformer/encoderblock_{}/LayerNorm_0/scale", "block{}/unit{}/gn1/scale"
NUMBERS = {
    **{BLOCK.format(number): "are announced" for number in (1000, 10**8)},
    BLOCK.format("9" * 900): "unexpected",
    UNIT.format(9, 1): "more than 8 stages",
    **{UNIT.format(stage, k): "are announced" for stage, k in ((1, 1000), (9999999, 9999999))},
}
STEM = {"conv_root/kernel": (7, 7, 3, 8)}
HUGE = {
    **{
        name[:40]: (BIG_VISION | (STEM | {name: (8,)} if "unit" in name else {name: (16,)}), words)
        for name, words in NUMBERS.items()
    },
    "2,000 names beside a ViT": (BIG_VISION | many(2000), " more"),
    "9,900 names": (many(9900), "no Vision Transformer", "and 9,896 more"),
    "long names": ({f"{a * 90}.{part}": (8, 8) for a in "abc" for part in PARTS}, "and 5 more"),
}


@pytest.mark.parametrize("name", HUGE)
def test_names_of_huge_numbers_many_names_and_long_names_make_no_long_message(name, tmp_path):
    """Blocks and units before a huge number are not listed."""
    shapes, *words = HUGE[name]
    check(write_shapes(tmp_path / "x.safetensors", shapes), *words)
