"""Encoders of single fields, as folders of timm and as files with the arguments of their cards.

What `model_args` leaves out the arrays decide. A card is `timm` of `read`, in place of JSON.
"""

import json

import numpy as np
import pytest
from safetensors.torch import save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from keras_vit.images.protocols import complete
from tests.golden import relative_error
from tests.live import timm, torch

MEAN = [0.707223, 0.578729, 0.703617]
_GATED = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
_SIZES = {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": 64}
ENCODERS = {
    "UNI": ("vit_large_patch16_224", {"init_values": 1e-5}, {}),
    "UNI2-h": (
        "vit_giant_patch14_224",
        {"mlp_ratio": 2.66667 * 2, "init_values": 1e-5, "no_embed_class": True, "reg_tokens": 8},
        _GATED,
    ),
    "Virchow2": (
        "vit_huge_patch14_224",
        {"mlp_ratio": 5.375, "init_values": 1e-5, "reg_tokens": 4},
        _GATED,
    ),
    "H0-mini": ("vit_base_patch14_reg4_dinov2", {"mlp_ratio": 5.375}, _GATED),
    "prov-gigapath": ("vit_giant_patch14_dinov2", {"patch_size": 16, "mlp_ratio": 5.375}, {}),
}
"""timm's architecture, the arguments of the model card, and those that JSON cannot state."""


def written(name, folder):
    """A random model of the encoder's kind, as timm; its JSON states the sizes alone."""
    architecture, arguments, classes = ENCODERS[name]
    sizes = {**_SIZES, "img_size": 64 if "16" in architecture + str(arguments) else 56}
    torch.manual_seed(0)
    theirs = timm.create_model(architecture, num_classes=0, **sizes, **arguments, **classes).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(std=0.1)
    folder.mkdir()
    arrays = {key: value.contiguous() for key, value in theirs.state_dict().items()}
    save_file(arrays, folder / "model.safetensors")
    stated = {"patch_size": 16} if "patch_size" in arguments else {}
    content = {
        "architecture": architecture,
        "num_classes": 0,
        "num_features": sizes["embed_dim"],
        "global_pool": "token",
        "model_args": {**sizes, **stated},
        "pretrained_cfg": {"input_size": [3, 64, 64], "mean": MEAN, "std": [0.2, 0.2, 0.2]},
    }
    (folder / "config.json").write_text(json.dumps(content))
    return theirs, sizes["img_size"]


@pytest.mark.parametrize("name", ENCODERS)
def test_folder_and_file_give_the_features_of_timm(name, tmp_path):
    """The file is named inside the folder, and read with the JSON beside it."""
    theirs, side = written(name, tmp_path / "encoder")
    images = np.random.default_rng(0).uniform(-1, 1, (2, side, side, 3)).astype("float32")
    with torch.no_grad():
        want = theirs(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    for source in (tmp_path / "encoder", tmp_path / "encoder" / "model.safetensors"):
        model = VisionTransformer.from_preset(source)
        assert relative_error(model.predict(images, verbose=0), want) <= 1e-5
        assert model.preprocessor.protocol["mean"] == MEAN


def test_the_activation_of_a_gated_mlp_that_is_assumed_is_logged(tmp_path, caplog):
    """JSON cannot state the class; a word for it beats the assumption, and `block` both."""
    written("H0-mini", tmp_path / "encoder")
    with caplog.at_level("INFO", "keras_vit"):
        silu = VisionTransformer.from_preset(tmp_path / "encoder")
    assert silu.config.block.activation == "silu"
    assert "activation is taken to be SiLU" in caplog.text
    gelu = VisionTransformer.from_preset(tmp_path / "encoder", block={"activation": "gelu"})
    assert gelu.config.block.activation == "gelu"
    caplog.clear()
    path = tmp_path / "encoder" / "config.json"
    content = json.loads(path.read_text())
    content["model_args"]["act_layer"] = "silu"
    path.write_text(json.dumps(content))
    with caplog.at_level("INFO", "keras_vit"):
        VisionTransformer.from_preset(tmp_path / "encoder")
    assert "SiLU" not in caplog.text


_DINOV2 = {"mlp_ratio": 5.375, "init_values": 1e-5}
CARDS = {
    "UNI": {"model_name": "vit_large_patch16_224", "init_values": 1e-5, "dynamic_img_size": True},
    "UNI2-h": {
        "model_name": "vit_giant_patch14_224",
        "mlp_ratio": 2.66667 * 2,
        "init_values": 1e-5,
        "no_embed_class": True,
        "reg_tokens": 8,
        "dynamic_img_size": True,
        **_GATED,
    },
    "Virchow": {"model_name": "vit_huge_patch14_224", **_DINOV2, **_GATED},
    "Virchow2": {"model_name": "vit_huge_patch14_224", **_DINOV2, "reg_tokens": 4, **_GATED},
    "H0-mini": {"model_name": "vit_base_patch14_reg4_dinov2", "mlp_ratio": 5.375, **_GATED},
    "H-optimus": {"model_name": "vit_giant_patch14_reg4_dinov2", "init_values": 1e-5},
    "prov-gigapath": {"model_name": "vit_giant_patch14_dinov2", "patch_size": 16, **_DINOV2},
    "kaiko B/8": {"model_name": "vit_base_patch8_224", "dynamic_img_size": True},
    "kaiko L/14": {"model_name": "vit_large_patch14_reg4_dinov2", "dynamic_img_size": True},
    "lunit": {"model_name": "vit_small_patch8_224", "dynamic_img_size": True},
    "GPFM": {"model_name": "vit_large_patch14_dinov2", "init_values": 1e-5},
    "RETFound": {"model_name": "vit_large_patch16_224", "global_pool": "avg", "num_classes": 5},
    "Sentinel-2": {"model_name": "vit_small_patch16_224", "in_chans": 13},
}
"""The arguments of the cards beside the sizes."""


def saved(name, path, **changed):
    """A random model of a card, of two blocks, and the card; its arrays alone are in the file."""
    card = {"num_classes": 0, **_SIZES, **CARDS[name], "img_size": 16 if "8" in name else 64}
    if "patch14" in card["model_name"] and "patch_size" not in card:
        card["img_size"] = 56
    card |= changed
    torch.manual_seed(0)
    theirs = timm.create_model(**card).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(std=0.1)
    torch.save(theirs.state_dict(), path)
    return theirs, card


def read(path, card, **fields):
    return VisionTransformer.from_preset(
        path, read={"timm": card, "allow_pickle_weights": True}, **fields
    )


@pytest.mark.parametrize("name", CARDS)
def test_a_card_and_a_bare_file_give_the_features_of_timm(name, tmp_path):
    """With `pretrained=True`, as cards have it."""
    theirs, card = saved(name, tmp_path / "pytorch_model.bin")
    shape = (2, card["img_size"], card["img_size"], card.get("in_chans", 3))
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    with torch.no_grad():
        want = theirs(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    model = read(tmp_path / "pytorch_model.bin", {**card, "pretrained": True})
    assert relative_error(model.predict(images, verbose=0), want) <= 1e-6


def test_the_name_of_an_architecture_is_enough(tmp_path):
    """Of the usual width; the arrays tell the rest."""
    _, card = saved("lunit", tmp_path / "x.bin", embed_dim=384, num_heads=6, img_size=16)
    model = read(tmp_path / "x.bin", "vit_small_patch8_224")
    assert model.config == read(tmp_path / "x.bin", card).config
    assert model.config.num_heads == 6


def test_classes_are_given_as_such_or_by_name(tmp_path):
    _, card = saved("Virchow2", tmp_path / "x.bin")
    want = read(tmp_path / "x.bin", card).config
    assert (want.block.gated, want.block.activation) == (True, "silu")
    words = {"mlp_layer": "timm.layers.SwiGLUPacked", "act_layer": "torch.nn.SiLU"}
    assert read(tmp_path / "x.bin", {**card, **words}).config == want
    gelu = read(tmp_path / "x.bin", {**card, "act_layer": torch.nn.GELU}).config
    assert gelu.block.activation == "gelu"


def test_a_card_beats_the_json_beside_it_and_leaves_the_rest_to_it(tmp_path):
    """A repository's name stands for its architecture; another architecture's JSON is not read."""
    written("UNI2-h", tmp_path / "encoder")
    card = {"model_name": "hf-hub:MahmoodLab/UNI2-h", "std": (0.1, 0.2, 0.3), "act_layer": "gelu"}
    card["mlp_layer"] = "SwiGLUPacked"
    for source in (tmp_path / "encoder", tmp_path / "encoder" / "model.safetensors"):
        info = keras_vit.info(source, read={"timm": card})
        assert (info.protocol["mean"], info.protocol["std"]) == (MEAN, [0.1, 0.2, 0.3])
        assert (info.config.tokens.registers, info.config.block.activation) == (8, "gelu")
    other = {"model_name": "vit_giant_patch14_reg4_dinov2", "num_heads": 8}
    info = keras_vit.info(tmp_path / "encoder", read={"timm": other})
    assert (info.config.num_heads, complete(info.protocol)["mean"]) == (8, 0.5)


def test_no_classes_leave_out_a_head_and_others_make_a_new_one(tmp_path):
    """`num_classes` of the call beats that of the card."""
    _, card = saved("UNI", tmp_path / "x.bin", num_classes=3)
    assert read(tmp_path / "x.bin", card).config.num_classes == 3
    silent = {key: value for key, value in card.items() if key != "num_classes"}
    assert read(tmp_path / "x.bin", silent).config.num_classes == 3
    headless = {**card, "num_classes": 0}
    assert read(tmp_path / "x.bin", headless).output_shape == (None, 32)
    assert read(tmp_path / "x.bin", headless, load_weights=False).output_shape == (None, 32)
    assert read(tmp_path / "x.bin", headless, num_classes=4).output_shape == (None, 4)
    keras_vit.convert(
        tmp_path / "x.bin",
        tmp_path / "y",
        "timm",
        read={"timm": headless, "allow_pickle_weights": True},
    )
    assert keras_vit.info(tmp_path / "y").config.num_classes == 0


@pytest.mark.without_backend
@pytest.mark.parametrize(
    ("argument", "value", "found"),
    [
        ("reg_tokens", 8, "reg_token is (1, 4, 32), expected (1, 8, 32)"),
        ("depth", 24, "24 blocks are announced"),
        ("mlp_layer", timm.layers.GluMlp, "expected one of Mlp, SwiGLU, SwiGLUPacked"),
        ("act_layer", torch.nn.ReLU, "act_layer='ReLU'"),
        ("norm_layer", torch.nn.LayerNorm, "expected one of layernorm"),
        ("block_fn", "ResPostBlock", "blocks with a norm behind each branch"),
        ("model_name", "vit_hug_patch14_224", "Did you mean 'vit_huge_patch14_224'?"),
        ("model_name", "hf-hub:paige-ai/Virchow2", "expected an architecture of a plain ViT"),
        ("mlp_ratio", "4", "expected mlp_ratio to be a number"),
        (
            "reg_token",
            4,
            "of vit_huge_patch14_224 that keras_vit reads. Did you mean 'reg_tok",
        ),
    ],
)
def test_what_does_not_fit_is_refused(argument, value, found, tmp_path):
    """As in a folder of timm."""
    _, card = saved("Virchow2", tmp_path / "x.bin", num_classes=3)
    with pytest.raises(CheckpointError) as error:
        keras_vit.info(
            tmp_path / "x.bin",
            read={"timm": {**card, argument: value}, "allow_pickle_weights": True},
        )
    assert found in str(error.value)
    assert str(tmp_path / "x.bin") in str(error.value)


@pytest.mark.without_backend
def test_a_file_whose_architecture_is_not_named_is_refused(tmp_path):
    """A plain ViT lacks its number of heads alone; the message names `timm` first."""
    saved("Virchow2", tmp_path / "x.bin")
    saved("UNI", tmp_path / "y.bin", init_values=None)
    open_facts = "tell pool.kind, rope, block.activation, block.epsilon"
    with pytest.raises(CheckpointError, match=f"{open_facts}. Give read={{'timm': 'vit_"):
        keras_vit.info(tmp_path / "x.bin", num_heads=4, read={"allow_pickle_weights": True})
    with pytest.raises(CheckpointError, match="tell num_heads. Give read=.*, or num_heads=.."):
        keras_vit.info(tmp_path / "y.bin", read={"allow_pickle_weights": True})
    with pytest.raises(CheckpointError, match="num_heads cannot be inferred"):
        keras_vit.info(
            tmp_path / "y.bin", read={"timm": "vit_small_patch16_224", "allow_pickle_weights": True}
        )
    with pytest.raises(CheckpointError, match="'timm': ...} is for files of timm.*'google'"):
        names = {"timm": "vit_small_patch16_224", "family": "google"}
        keras_vit.info(tmp_path / "y.bin", read={**names, "allow_pickle_weights": True})
