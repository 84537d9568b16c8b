"""Models of timm: its outputs from its files, and timm and transformers read what we write."""

import json
import shutil

import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from keras_vit.images.protocols import complete
from tests.checkpoints.cases import TIMM
from tests.checkpoints.files import assert_comes_back, refused
from tests.checkpoints.headers import write_sparse
from tests.family_goldens import load_case
from tests.helpers import assert_close, randomise, to_numpy

# The goldens of timm are compared on every backend; here files and arguments are.
from tests.live import (
    channels_first,
    load_folder,
    randomised,
    timm,
    torch,
    transformers,
)
from tests.plain import edit_json, normal, raises

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from safetensors.torch import save_file  # noqa: E402

from tests.data.make_timm_registry import FILE, registry  # noqa: E402

SMALL = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}
WIDER = {"embed_dim": 32, "num_heads": 4}
_GATED = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
_GIANT = {"mlp_ratio": 5.375, "init_values": 1e-5}
_UNI2 = {"mlp_ratio": 2.66667 * 2, "init_values": 1e-5, "no_embed_class": True, "reg_tokens": 8}
CARDS = {
    "UNI": ("vit_large_patch16_224", {"init_values": 1e-5, "dynamic_img_size": True}),
    "UNI2-h": ("vit_giant_patch14_224", {**_UNI2, "dynamic_img_size": True, **_GATED}),
    "Virchow2": ("vit_huge_patch14_224", {**_GIANT, "reg_tokens": 4, **_GATED}),
    "H0-mini": ("vit_base_patch14_reg4_dinov2", {"mlp_ratio": 5.375, **_GATED}),
    "H-optimus": ("vit_giant_patch14_reg4_dinov2", {"init_values": 1e-5}),
    "prov-gigapath": ("vit_giant_patch14_dinov2", _GIANT),
    "kaiko B/8": ("vit_base_patch8_224", {"dynamic_img_size": True}),
    "lunit": ("vit_small_patch8_224", {"dynamic_img_size": True}),
    "RETFound": ("vit_large_patch16_224", {"global_pool": "avg", "num_classes": 5}),
    "Sentinel-2": ("vit_small_patch16_224", {"in_chans": 13}),
}
"""Encoders of single fields: timm's architecture, and the arguments of the card."""
_ROWS = [*TIMM, *((name, WIDER, {"num_classes": 0, **card}, True) for name, card in CARDS.values())]


def saved(architecture, folder, **changed):
    """A small model of timm with random weights, and its files, whose JSON states no classes."""
    arguments = {**SMALL, "num_classes": 3, **changed}
    model = randomised(timm.create_model(architecture, **arguments))
    shown = ("num_classes", "mlp_ratio")  # by the arrays
    plain = {k: v for k, v in arguments.items() if k not in shown and not callable(v)}
    given = {**dict.fromkeys(arguments.keys() - {"num_classes"}), **plain}
    timm.models.save_for_hf(model, folder, model_args=given, safe_serialization=True)
    edit_json(folder / "config.json", model_args=plain)
    edit_json(folder / "config.json", "pretrained_cfg", input_size=[3, *model.patch_embed.img_size])
    return model


@pytest.fixture
def save(tmp_path):
    """Saves the model of a card, with JSON or without; returns the file and the card."""

    def save_card(name, has_json=False, **changed):
        architecture, arguments = CARDS[name]
        card = {**SMALL, **WIDER, "num_classes": 0, **arguments, **changed}
        saved(architecture, tmp_path, **card)
        if not has_json:
            (tmp_path / "config.json").unlink()
        return tmp_path / "model.safetensors", {"model_name": architecture, **card}

    return save_card


def read(path, card, **fields):
    return VisionTransformer.from_preset(path, read={"timm": card}, **fields)


def image_of(changed):
    sizes = {**SMALL, "in_chans": 3, **changed}
    return normal(2, sizes["img_size"], sizes["img_size"], sizes["in_chans"])


def run(model, image):
    """The output of a model of timm, or of transformers' wrapper."""
    with torch.no_grad():
        output = model.eval()(channels_first(image))
    return (output if torch.is_tensor(output) else output[0]).numpy()


@pytest.mark.parametrize(("name", "sizes", "changed", "are_shown"), _ROWS)
def test_our_outputs_are_those_of_timm(name, sizes, changed, are_shown, tmp_path):
    """By config.json; by the arguments of timm; and by the arrays alone for what they show.

    timm's push_to_hf_hub writes no arguments, unless its caller repeats them.
    """
    theirs, folder = saved(name, tmp_path / "x", **sizes | changed), tmp_path / "x"
    alone = shutil.copy(folder / "model.safetensors", tmp_path)
    image = image_of(changed | sizes)
    want = run(theirs, image)
    assert_close(VisionTransformer.from_preset(folder)(image), want)
    card = {"model_name": name, "pretrained": True, **SMALL, **sizes, **changed}
    assert_close(read(alone, card)(image), want)
    if are_shown:
        edit_json(folder / "config.json", model_args={**SMALL, **sizes}, global_pool=...)
        assert_close(VisionTransformer.from_preset(folder)(image), want)


@pytest.mark.parametrize(("name", "sizes", "changed", "are_shown"), TIMM)
def test_timm_and_transformers_read_what_we_write(name, sizes, changed, are_shown, tmp_path):
    theirs, image = saved(name, tmp_path / "theirs", **sizes, **changed), image_of(sizes)
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    assert_comes_back(tmp_path / "theirs", tmp_path, model)
    for again in read_again(tmp_path / "x", model):
        assert_close(run(again, image), run(theirs, image), 1e-6)


def read_again(folder, model):
    """The models that timm and transformers load from a folder that keras_vit wrote."""
    yield load_folder(folder)
    kind = "TimmWrapperForImageClassification" if model.config.num_classes else "TimmWrapperModel"
    wrapper, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    yield wrapper.timm_model


@pytest.mark.parametrize(
    "fields", [{"rope": None, "block": {"epsilon": 1e-5}}, {"rope": {"form": "axial"}}]
)
def test_parts_that_transformers_takes_from_the_architecture(fields, tmp_path):
    """It drops each null in `model_args`, so that the architecture itself lacks these parts."""
    saved("eva02_base_patch14_224", tmp_path / "theirs")
    config = keras_vit.info(tmp_path / "theirs").config.replace(**fields)
    model = randomise(VisionTransformer(config))
    checkpoints.save(model, tmp_path / "ours", "timm/eva")
    image = image_of({})
    for again in read_again(tmp_path / "ours", model):
        assert_close(run(again, image), to_numpy(model(image)))


NOT_OURS = (
    ("vit_base_patch16_224", {"global_pool": "max"}, "global_pool='max'"),
    ("vit_base_patch16_224", {"global_pool": "map", "fc_norm": True}, "norm.weight"),
    # timm adds it before the coordinates are scaled; keras_vit has it for axial positions.
    ("vit_small_patch16_dinov3", {"rope_grid_offset": 1.0}, "rope_grid_offset"),
)


@pytest.mark.parametrize(("name", "changed", "words"), NOT_OURS)
def test_what_we_do_not_compute_is_refused(name, changed, words, tmp_path):
    saved(name, tmp_path / "x", **changed)
    file = shutil.copy(tmp_path / "x" / "model.safetensors", tmp_path)
    card = {"model_name": name, **SMALL, **changed}
    for source, how in ((tmp_path / "x", {}), (file, {"timm": card})):
        refused(source, words, read=how)


@pytest.mark.parametrize("name", ["vit_base_patch16_224", "vit_small_r26_s32_224"])
def test_the_name_of_the_architecture_determines_the_heads(name, tmp_path):
    """Published config.json files have no model_args; the weights alone need the name."""
    theirs = timm.create_model(name, depth=1, num_classes=3, device="meta")
    shapes = {key: ["F32", list(value.shape)] for key, value in theirs.state_dict().items()}
    write_sparse(tmp_path / "model.safetensors", shapes)
    file = tmp_path / "model.safetensors"
    alone = keras_vit.info(file, read={"timm": name}).config
    size, heads = theirs.patch_embed.img_size, theirs.blocks[0].attn.num_heads
    published = {"architecture": name, "num_classes": 3, "num_features": theirs.num_features}
    published["pretrained_cfg"] = {"input_size": [3, *size], "num_classes": 3}
    (tmp_path / "config.json").write_text(json.dumps({**published, "global_pool": "token"}))
    assert keras_vit.info(tmp_path).config == alone
    assert (alone.num_heads, alone.image_size) == (heads, size)


def test_heads_of_an_architecture_belong_to_its_width(tmp_path):
    saved("vit_base_patch16_224", tmp_path)
    edit_json(tmp_path / "config.json", model_args=...)
    with raises(CheckpointError, "num_heads"):
        keras_vit.info(tmp_path)
    assert keras_vit.info(tmp_path, num_heads=3).config.num_heads == 3


def test_the_arguments_of_architectures_are_those_of_timm():
    """The file of the registry is what its script makes of the timm that is installed."""
    own = json.loads(FILE.read_text())
    if timm.__version__ != own["timm"]:
        pytest.skip(f"written with timm {own['timm']}")
    assert json.loads(json.dumps(registry())) == own


def write_trunk(folder, trunk, **vision):
    """Writes a trunk of timm with a projection as open_clip does; returns the projection."""
    projection = torch.from_numpy(normal(10, trunk.num_features))
    arrays = {f"visual.trunk.{name}": value for name, value in trunk.state_dict().items()}
    arrays |= {"visual.head.proj.weight": projection, "text.proj.weight": projection.clone()}
    save_file(arrays, folder / "open_clip_model.safetensors")
    content = {"model_cfg": {"embed_dim": 10, "vision_cfg": {**vision, "timm_proj": "linear"}}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return projection.numpy()


TRUNKS = (
    ("vit_base_patch16_224", ""),  # BiomedCLIP
    ("vit_base_patch16_224", "avg"),
    ("vit_base_patch32_siglip_256", "map"),  # its GELU is not that of the others
    ("vit_pe_core_base_patch16_224", ""),
)


@pytest.mark.parametrize(("architecture", "pool"), TRUNKS)
def test_open_clips_config_names_the_architecture_of_a_trunk(architecture, pool, tmp_path):
    """It decides what no array tells: heads, GELU, epsilon, rotary positions, pooling."""
    side = 64 if "32" in architecture else 32
    sizes = {"embed_dim": 96, "depth": 1, "img_size": side, "num_classes": 0}
    trunk = randomised(timm.create_model(architecture, **sizes))
    if pool == "avg":
        trunk.global_pool = pool  # as `reset_classifier` of the trunk does it
    named = {"timm_model_name": architecture, "timm_pool": pool, "image_size": side}
    projection = write_trunk(tmp_path, trunk, **named)
    image = normal(2, side, side, 3)
    ours = VisionTransformer.from_preset(tmp_path, num_heads=12)  # those of the whole width
    assert_close(ours(image), run(trunk, image) @ projection.T)


def test_open_clips_config_with_a_trunk_that_keras_vit_lacks_is_refused(tmp_path):
    name = "vit_dpwee_patch16_reg1_gap_256"
    trunk = timm.create_model("vit_small_patch16_224", depth=1, num_classes=0)
    write_trunk(tmp_path, trunk, timm_model_name=name)
    with raises(CheckpointError, f"={name!r}", "parallel"):
        keras_vit.info(tmp_path)


def test_a_dinov2_is_written_for_timm_without_its_mask_token(tmp_path, caplog):
    """timm has no place for it, and inference does not read it: a line of log says so."""
    model = load_case("hf_dinov2_model")
    with caplog.at_level("INFO", "keras_vit"):
        checkpoints.save(model, tmp_path / "timm", family="timm")
    assert "mask token" in caplog.text
    image = normal(2, *model.config.image_size, 3)
    assert_close(
        VisionTransformer.from_preset(tmp_path / "timm")(image), to_numpy(model(image)), 1e-6
    )


def test_the_activation_of_a_gated_mlp_that_is_assumed_is_logged(save, caplog):
    """JSON cannot state the class; a word for it beats the assumption, and `block` both."""
    path, _ = save("H0-mini", has_json=True)
    caplog.set_level("INFO", "keras_vit")
    gelu = VisionTransformer.from_preset(path, block={"activation": "gelu"})
    assert gelu.config.block.activation == "gelu"
    assert VisionTransformer.from_preset(path).config.block.activation == "silu"
    assert "SiLU" in caplog.text
    caplog.clear()
    edit_json(path.parent / "config.json", "model_args", act_layer="silu")
    VisionTransformer.from_preset(path)
    assert "SiLU" not in caplog.text


def test_names_of_an_architecture_and_of_classes_are_enough(save):
    """The arrays tell the rest of an architecture of the usual width."""
    path, card = save("lunit", embed_dim=384, num_heads=6)
    assert keras_vit.info(path, read={"timm": "vit_small_patch8_224"}).config.num_heads == 6
    assert read(path, "vit_small_patch8_224").config == read(path, card).config
    path, card = save("Virchow2")
    want = read(path, card).config
    assert (want.block.gated, want.block.activation) == (True, "silu")
    words = {"mlp_layer": "timm.layers.SwiGLUPacked", "act_layer": "torch.nn.SiLU"}
    assert read(path, {**card, **words}).config == want
    gelu = read(path, {**card, "act_layer": torch.nn.GELU}).config
    assert gelu.block.activation == "gelu"


def test_none_in_a_card_leaves_an_argument_to_the_architecture(save):
    """`timm.create_model` leaves out each argument that is None; a class would take its default."""
    path, card = save("lunit", embed_dim=384, num_heads=6)
    card |= {"model_name": "vit_base_patch16_clip_quickgelu_224", "pre_norm": False}
    nothing = dict.fromkeys(("act_layer", "norm_layer", "num_classes", "std"))
    want = keras_vit.info(path, read={"timm": card})
    assert want.config.block.activation == "quick_gelu"
    found = keras_vit.info(path, read={"timm": {**card, **nothing}})
    assert (found.config, found.protocol) == (want.config, want.protocol)


def test_a_card_beats_the_json_beside_it_and_leaves_the_rest_to_it(save):
    """A repository's name stands for its architecture; another architecture's JSON is not read."""
    path, _ = save("UNI2-h", has_json=True)
    edit_json(path.parent / "config.json", "pretrained_cfg", mean=[0.7, 0.6, 0.5])
    card = {"model_name": "hf-hub:MahmoodLab/UNI2-h", "std": (0.1, 0.2, 0.3), "act_layer": "gelu"}
    card["mlp_layer"] = "SwiGLUPacked"
    for source in (path, path.parent):
        info = keras_vit.info(source, read={"timm": card})
        assert (info.protocol["mean"], info.protocol["std"]) == ([0.7, 0.6, 0.5], [0.1, 0.2, 0.3])
        assert (info.config.tokens.registers, info.config.block.activation) == (8, "gelu")
    other = {"model_name": "vit_giant_patch14_reg4_dinov2", "num_heads": 8}
    info = keras_vit.info(path, read={"timm": other})
    assert (info.config.num_heads, complete(info.protocol)["mean"]) == (8, 0.5)


def test_no_classes_leave_out_a_head_and_others_make_a_new_one(save):
    """`num_classes` of the call beats that of the card."""
    path, card = save("UNI", num_classes=3)
    headless = {**card, "num_classes": 0}
    del card["num_classes"]
    assert read(path, card).config.num_classes == 3
    for how in ({}, {"load_weights": False}):
        assert read(path, headless, **how).output_shape == (None, 32)
    assert read(path, headless, num_classes=4).output_shape == (None, 4)


UNFIT = (
    ("mlp_layer", timm.layers.GluMlp, ["Mlp, SwiGLU, SwiGLUPacked"]),
    ("act_layer", torch.nn.ReLU, ["act_layer='ReLU'"]),
    ("norm_layer", torch.nn.LayerNorm, ["norm_layer", "layernorm"]),
    ("block_fn", "ResPostBlock", ["vit_huge_patch14_224", "norm"]),
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
    facts = ("pool.kind", "rope", "block.activation", "block.epsilon", "read={'timm': 'vit_")
    refused(save("Virchow2")[0], *facts, num_heads=4)
    path, name = save("UNI", init_values=None)[0], {"timm": "vit_small_patch16_224"}
    refused(path, "num_heads", "read=", "num_heads=..")
    refused(path, "num_heads", read=name)
    refused(path, "'timm': ...}", "'google'", read={**name, "family": "google"})
