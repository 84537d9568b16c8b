"""Encoders of single fields, as folders of timm and as files with the arguments of their cards.

What `model_args` leaves out the arrays decide. A card is `timm` of `read`, in place of JSON.
"""

import json

import numpy as np
import pytest
from safetensors.torch import save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.images.protocols import complete
from tests.checkpoints.files import refused
from tests.golden import relative_error
from tests.live import channels_first, timm, torch
from tests.words import edit_json

MEAN, STD = [0.707223, 0.578729, 0.703617], [0.2, 0.2, 0.2]
_SIZES = {"embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 0}
_GATED = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
_GIANT = {"mlp_ratio": 5.375, "init_values": 1e-5}
_UNI2 = {"mlp_ratio": 2.66667 * 2, "init_values": 1e-5, "no_embed_class": True, "reg_tokens": 8}
CARDS = {
    "UNI": ("vit_large_patch16_224", {"init_values": 1e-5, "dynamic_img_size": True}),
    "UNI2-h": ("vit_giant_patch14_224", {**_UNI2, "dynamic_img_size": True, **_GATED}),
    "Virchow2": ("vit_huge_patch14_224", {**_GIANT, "reg_tokens": 4, **_GATED}),
    "H0-mini": ("vit_base_patch14_reg4_dinov2", {"mlp_ratio": 5.375, **_GATED}),
    "H-optimus": ("vit_giant_patch14_reg4_dinov2", {"init_values": 1e-5}),
    "prov-gigapath": ("vit_giant_patch14_dinov2", {"patch_size": 16, **_GIANT}),
    "kaiko B/8": ("vit_base_patch8_224", {"dynamic_img_size": True}),
    "lunit": ("vit_small_patch8_224", {"dynamic_img_size": True}),
    "RETFound": ("vit_large_patch16_224", {"global_pool": "avg", "num_classes": 5}),
    "Sentinel-2": ("vit_small_patch16_224", {"in_chans": 13}),
}
"""timm's architecture, and the arguments of the card beside the sizes."""


@pytest.fixture
def saved(tmp_path):
    """A function that saves a random model of a card; it returns file, card and model."""

    def save(name, **changed):
        architecture, arguments = CARDS[name]
        side = 16 if "8" in name else 64 if "16" in f"{architecture}{arguments}" else 56
        card = {"model_name": architecture, **_SIZES, "img_size": side, **arguments, **changed}
        torch.manual_seed(0)
        theirs = timm.create_model(**card).eval()
        with torch.no_grad():
            for weight in theirs.parameters():
                weight.normal_(std=0.1)
        arrays = {key: value.contiguous() for key, value in theirs.state_dict().items()}
        save_file(arrays, tmp_path / "model.safetensors")
        return tmp_path / "model.safetensors", card, theirs

    return save


def state(folder, card) -> None:
    """Writes the JSON of timm, which states the sizes alone and has no classes of Python."""
    stated = (*_SIZES, "img_size", "patch_size", "global_pool", "in_chans")
    content = {"architecture": card["model_name"], "num_classes": card["num_classes"]}
    content |= {"num_features": 32, "global_pool": "token"}
    content["model_args"] = {key: card[key] for key in stated if key in card}
    content["pretrained_cfg"] = {"input_size": [3, 64, 64], "mean": MEAN, "std": STD}
    (folder / "config.json").write_text(json.dumps(content))


def read(path, card, **fields):
    return VisionTransformer.from_preset(path, read={"timm": card}, **fields)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_and_a_folder_give_the_features_of_timm(name, saved):
    """With `pretrained=True`, as cards have it; the JSON counts beside a file that is named too."""
    path, card, theirs = saved(name)
    shape = (2, card["img_size"], card["img_size"], card.get("in_chans", 3))
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    with torch.no_grad():
        want = theirs(channels_first(images)).numpy()
    model = read(path, {**card, "pretrained": True})
    assert relative_error(model.predict(images, verbose=0), want) <= 1e-6
    state(path.parent, card)
    for source in (path, path.parent):
        model = VisionTransformer.from_preset(source)
        assert relative_error(model.predict(images, verbose=0), want) <= 1e-5
        assert "in_chans" in card or model.preprocessor.protocol["mean"] == MEAN


def test_the_activation_of_a_gated_mlp_that_is_assumed_is_logged(saved, caplog):
    """JSON cannot state the class; a word for it beats the assumption, and `block` both."""
    path, card, _ = saved("H0-mini")
    state(path.parent, card)
    caplog.set_level("INFO", "keras_vit")
    gelu = VisionTransformer.from_preset(path, block={"activation": "gelu"})
    assert gelu.config.block.activation == "gelu"
    assert VisionTransformer.from_preset(path).config.block.activation == "silu"
    assert "SiLU" in caplog.text
    caplog.clear()
    edit_json(path.parent / "config.json", "model_args", act_layer="silu")
    VisionTransformer.from_preset(path)
    assert "SiLU" not in caplog.text


def test_names_of_an_architecture_and_of_classes_are_enough(saved):
    """The arrays tell the rest of an architecture of the usual width."""
    path, card, _ = saved("lunit", embed_dim=384, num_heads=6)
    assert keras_vit.info(path, read={"timm": "vit_small_patch8_224"}).config.num_heads == 6
    assert read(path, "vit_small_patch8_224").config == read(path, card).config
    path, card, _ = saved("Virchow2")
    want = read(path, card).config
    assert (want.block.gated, want.block.activation) == (True, "silu")
    words = {"mlp_layer": "timm.layers.SwiGLUPacked", "act_layer": "torch.nn.SiLU"}
    assert read(path, {**card, **words}).config == want
    gelu = read(path, {**card, "act_layer": torch.nn.GELU}).config
    assert gelu.block.activation == "gelu"


def test_none_in_a_card_leaves_an_argument_to_the_architecture(saved):
    """`timm.create_model` leaves out each argument that is None; a class would take its default."""
    path, card, _ = saved("lunit", embed_dim=384, num_heads=6)
    card |= {"model_name": "vit_base_patch16_clip_quickgelu_224", "pre_norm": False}
    nothing = dict.fromkeys(("act_layer", "norm_layer", "num_classes", "std"))
    want = keras_vit.info(path, read={"timm": card})
    assert want.config.block.activation == "quick_gelu"
    found = keras_vit.info(path, read={"timm": {**card, **nothing}})
    assert (found.config, found.protocol) == (want.config, want.protocol)


def test_a_card_beats_the_json_beside_it_and_leaves_the_rest_to_it(saved):
    """A repository's name stands for its architecture; another architecture's JSON is not read."""
    path, card, _ = saved("UNI2-h")
    state(path.parent, card)
    card = {"model_name": "hf-hub:MahmoodLab/UNI2-h", "std": (0.1, 0.2, 0.3), "act_layer": "gelu"}
    card["mlp_layer"] = "SwiGLUPacked"
    for source in (path, path.parent):
        info = keras_vit.info(source, read={"timm": card})
        assert (info.protocol["mean"], info.protocol["std"]) == (MEAN, [0.1, 0.2, 0.3])
        assert (info.config.tokens.registers, info.config.block.activation) == (8, "gelu")
    other = {"model_name": "vit_giant_patch14_reg4_dinov2", "num_heads": 8}
    info = keras_vit.info(path, read={"timm": other})
    assert (info.config.num_heads, complete(info.protocol)["mean"]) == (8, 0.5)


def test_no_classes_leave_out_a_head_and_others_make_a_new_one(saved, tmp_path):
    """`num_classes` of the call beats that of the card."""
    path, card, _ = saved("UNI", num_classes=3)
    assert read(path, card).config.num_classes == 3
    headless = {**card, "num_classes": 0}
    del card["num_classes"]
    assert read(path, card).config.num_classes == 3
    assert read(path, headless).output_shape == (None, 32)
    assert read(path, headless, load_weights=False).output_shape == (None, 32)
    assert read(path, headless, num_classes=4).output_shape == (None, 4)
    keras_vit.convert(path, tmp_path / "y", "timm", read={"timm": headless})
    assert keras_vit.info(tmp_path / "y").config.num_classes == 0


@pytest.mark.without_backend
@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("mlp_layer", timm.layers.GluMlp, ["Mlp, SwiGLU, SwiGLUPacked"]),
        ("act_layer", torch.nn.ReLU, ["act_layer='ReLU'"]),
        ("norm_layer", torch.nn.LayerNorm, ["norm_layer", "layernorm"]),
        ("block_fn", "ResPostBlock", ["vit_huge_patch14_224", "norm"]),
        ("model_name", "vit_hug_patch14_224", ["'vit_huge_patch14_224'"]),
        ("model_name", "hf-hub:paige-ai/Virchow2", ["paige-ai/Virchow2", "architecture"]),
        ("mlp_ratio", "4", ["mlp_ratio"]),
        ("reg_token", 4, ["vit_huge_patch14_224", "'reg_tokens'"]),
    ],
)
def test_what_does_not_fit_is_refused(argument, value, words, saved):
    """As in a folder of timm."""
    path, card, _ = saved("Virchow2", num_classes=3)
    refused(path, *words, read={"timm": {**card, argument: value}})


@pytest.mark.without_backend
def test_a_file_whose_architecture_is_not_named_is_refused(saved):
    """A plain ViT lacks its number of heads alone; the message names `timm` first."""
    facts = ("pool.kind", "rope", "block.activation", "block.epsilon", "read={'timm': 'vit_")
    refused(saved("Virchow2")[0], *facts, num_heads=4)
    path, name = saved("UNI", init_values=None)[0], {"timm": "vit_small_patch16_224"}
    refused(path, "num_heads", "read=", "num_heads=..")
    refused(path, "num_heads", read=name)
    refused(path, "'timm': ...}", "'google'", read={**name, "family": "google"})
