"""Files of other networks are refused in a few lines, with the nearest families."""

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
    "swin_tiny_patch4_window7_224": "timm: 6 of 173 names, lacks pos_embed",
    "xcit_nano_12_p16_224": "timm: 149 of 391 names, lacks patch_embed.proj.weight",
    "resnet18": "Arrays of the file: conv1.weight",
    "samvit_base_patch16": "read as timm",
    "hiera_tiny_224": "read as timm",
}
_TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
OF_TRANSFORMERS = {
    "SwinModel": ({"embed_dim": 8, "depths": [1], "num_heads": [2]}, "transformers: 4 of 23 names"),
    "VideoMAEModel": ({**_TINY, "intermediate_size": 32}, "lacks embeddings.position_embeddings"),
    "ViltModel": ({**_TINY, "vocab_size": 9}, "transformers: 24 of 30 names"),
    "BertModel": ({**_TINY, "vocab_size": 9}, "lacks embeddings.patch_embeddings"),
}


def refused(shapes, files=None) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(shapes), files or {}, is_folder=True), {})
    return str(caught.value)


def check(message: str, words: str) -> None:
    assert message.startswith("headers: ") and words in message
    assert len(message.splitlines()) <= MOST_LINES, message
    assert len(message) <= MOST_LETTERS, message


@pytest.mark.parametrize("name", OF_TIMM)
def test_other_networks_of_timm_are_refused_beside_the_nearest_families(name):
    check(refused(read_shapes(timm.create_model(name, device="meta"))), OF_TIMM[name])


def test_long_names_make_no_long_message():
    """Parts of three families, each below a long prefix."""
    parts = ("encoder.layer.0.attention.self.query.weight", "blocks.0.mlp.fc1.weight", "cls_token")
    shapes = {f"{letter * 90}.{part}": (8, 8) for letter in "abc" for part in parts}
    check(refused(shapes), "and 5 more")


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_other_networks_of_transformers_are_refused_by_their_class(name):
    fields, words = OF_TRANSFORMERS[name]
    config = getattr(transformers, name).config_class(**fields)
    with torch.device("meta"):
        shapes = read_shapes(getattr(transformers, name)(config))
    stated = {"config.json": config.to_dict() | {"architectures": [name]}}
    message = refused(shapes, stated)
    check(message, words)
    assert f"config.json has model_type='{config.model_type}', expected 'vit'" in message
    assert f"the model is a {name}." in message


def test_a_listing_of_differences_is_short_and_the_exception_has_the_whole():
    model = timm.create_model("vit_small_patch16_224", device="meta", depth=12)
    shapes = {f"{k[:-6]}wieght" if "norm1" in k else k: v for k, v in read_shapes(model).items()}
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(OpenSource(Headers(shapes), {}), {"num_heads": 6})
    check(str(caught.value), "missing: blocks.0.norm1.weight")
    assert len(caught.value.differences) == 48
