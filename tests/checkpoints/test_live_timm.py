"""What names an architecture of timm: its JSON, a card of arguments, or a name alone."""

import json

import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests.checkpoints.cases import CARDS, SMALL, WIDER
from tests.checkpoints.files import refused
from tests.checkpoints.headers import write_sparse
from tests.checkpoints.references import save_timm, with_classes
from tests.golden import load_case
from tests.live import timm, torch
from tests.plain import edit_json

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from weights.make_timm_registry import FILE, registry  # noqa: E402


@pytest.fixture
def save(tmp_path):
    """Saves the model of a card, with JSON or without; returns the file and the card."""

    def save_card(name, has_json=False, **changed):
        architecture, arguments = CARDS[name]
        card = {**WIDER, "num_classes": 0, **with_classes(arguments), **changed}
        save_timm(architecture, tmp_path, **card)
        if not has_json:
            (tmp_path / "config.json").unlink()
        return tmp_path / "model.safetensors", {"model_name": architecture, **card}

    return save_card


def read(path, card, ask=keras_vit.info, **fields):
    return ask(path, read={"timm": card}, **fields)


@pytest.mark.parametrize("name", ["vit_base_patch16_224", "vit_small_r26_s32_224"])
def test_the_name_of_the_architecture_determines_the_heads(name, tmp_path):
    """Published config.json files have no model_args; the weights alone need the name."""
    theirs = timm.create_model(name, depth=1, num_classes=3, device="meta")
    shapes = {key: ["F32", list(value.shape)] for key, value in theirs.state_dict().items()}
    write_sparse(tmp_path / "model.safetensors", shapes)
    alone = read(tmp_path / "model.safetensors", name).config
    size, heads = theirs.patch_embed.img_size, theirs.blocks[0].attn.num_heads
    assert (alone.num_heads, alone.image_size) == (heads, size)
    published = {"architecture": name, "num_classes": 3, "num_features": theirs.num_features}
    published["pretrained_cfg"] = {"input_size": [3, *size], "num_classes": 3}
    (tmp_path / "config.json").write_text(json.dumps({**published, "global_pool": "token"}))
    assert keras_vit.info(tmp_path).config == alone


def test_heads_of_an_architecture_belong_to_its_width(tmp_path):
    save_timm("vit_base_patch16_224", tmp_path, **SMALL)
    edit_json(tmp_path / "config.json", model_args=...)
    refused(tmp_path, "num_heads")
    assert keras_vit.info(tmp_path, num_heads=3).config.num_heads == 3


def test_the_arguments_of_architectures_are_those_of_timm():
    """The file of the registry is what its script makes of the timm that is installed."""
    own = json.loads(FILE.read_text())
    if timm.__version__ != own["timm"]:
        pytest.skip(f"written with timm {own['timm']}")
    assert json.loads(json.dumps(registry())) == own


def test_a_dinov2_is_written_for_timm_without_its_mask_token(tmp_path, caplog):
    """timm has no place for it, and inference does not read it: a line of log says so."""
    with caplog.at_level("INFO", "keras_vit"):
        checkpoints.save(load_case("hf_dinov2_model"), tmp_path / "x", family="timm")
    assert "mask token" in caplog.text
    assert not keras_vit.info(tmp_path / "x").config.tokens.mask


def test_the_activation_of_a_gated_mlp_that_is_assumed_is_logged(save, caplog):
    """JSON cannot state the class; a word for it beats the assumption, and `block` both."""
    path, _ = save("H0-mini", has_json=True)
    caplog.set_level("INFO", "keras_vit")
    assert keras_vit.info(path, block={"activation": "gelu"}).config.block.activation == "gelu"
    assert VisionTransformer.from_preset(path).config.block.activation == "silu"
    assert "SiLU" in caplog.text


def test_names_of_an_architecture_and_of_classes_are_enough(save):
    """The arrays tell the rest of an architecture of the usual width."""
    path, card = save("lunit", embed_dim=384, num_heads=6)
    assert read(path, "vit_small_patch8_224").config == read(path, card).config
    path, card = save("Virchow2")
    want = read(path, card).config
    words = {"mlp_layer": "timm.layers.SwiGLUPacked", "act_layer": "torch.nn.SiLU"}
    assert read(path, {**card, **words}).config == want
    gelu = read(path, {**card, "act_layer": torch.nn.GELU}).config.block
    assert (want.block.activation, gelu.activation) == ("silu", "gelu")


def test_a_card_beats_the_json_beside_it_and_leaves_the_rest_to_it(save):
    """A repository's name stands for its architecture; another architecture's JSON is not read."""
    path, _ = save("UNI2-h", has_json=True)
    edit_json(path.parent / "config.json", "pretrained_cfg", mean=[0.7, 0.6, 0.5])
    card = {"model_name": "hf-hub:MahmoodLab/UNI2-h", "std": (0.1, 0.2, 0.3), "act_layer": "gelu"}
    for source in (path, path.parent):
        info = read(source, {**card, "mlp_layer": "SwiGLUPacked"})
        assert (info.protocol["mean"], info.protocol["std"]) == ([0.7, 0.6, 0.5], [0.1, 0.2, 0.3])
        assert (info.config.tokens.registers, info.config.block.activation) == (8, "gelu")


def test_no_classes_leave_out_a_head_and_others_make_a_new_one(save):
    """`num_classes` of the call beats that of the card."""
    path, card = save("UNI", num_classes=3)
    del card["num_classes"]
    assert read(path, card).config.num_classes == 3
    headless, ask = {**card, "num_classes": 0}, VisionTransformer.from_preset
    assert read(path, headless, ask).output_shape == (None, 32)
    assert read(path, headless, ask, num_classes=4).output_shape == (None, 4)


UNFIT = (
    ("mlp_layer", timm.layers.GluMlp, ["Mlp, SwiGLU, SwiGLUPacked"]),
    ("act_layer", torch.nn.ReLU, ["act_layer='ReLU'"]),
    ("model_name", "vit_hug_patch14_224", ["'vit_huge_patch14_224'"]),
    ("model_name", "hf-hub:paige-ai/Virchow2", ["paige-ai/Virchow2", "architecture"]),
    ("reg_token", 4, ["vit_huge_patch14_224", "'reg_tokens'"]),
)


@pytest.mark.parametrize(("argument", "value", "words"), UNFIT)
def test_what_does_not_fit_is_refused(argument, value, words, save):
    """As in a folder of timm."""
    path, card = save("Virchow2", num_classes=3)
    refused(path, *words, read={"timm": {**card, argument: value}})


def test_a_file_whose_architecture_is_not_named_is_refused(save):
    """A plain ViT lacks its number of heads alone; the message names `timm` first."""
    path, name = save("UNI", init_values=None)[0], {"timm": "vit_small_patch16_224"}
    refused(path, "num_heads", "read=", "num_heads=..")
    refused(path, "'timm': ...}", "'google'", read={**name, "family": "google"})
