"""Models of timm: its outputs from its files, and timm and transformers read what we write."""

import json
import shutil

import pytest
from safetensors.numpy import load_file

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests.checkpoints.cases import TIMM
from tests.checkpoints.headers import write_sparse
from tests.checkpoints.test_written_files import assert_comes_back
from tests.family_goldens import load_case
from tests.helpers import assert_close, normal, only_under, randomise, to_numpy
from tests.words import edit_json, raises

# The goldens of timm are compared on every backend; here files and arguments are.
only_under("torch")
from tests.live import (  # noqa: E402
    channels_first,
    load_folder,
    randomised,
    timm,
    torch,
    transformers,
)

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from safetensors.torch import save_file  # noqa: E402

from tests.data.make_timm_registry import FILE, registry  # noqa: E402

SMALL = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}


def saved(architecture, folder, **changed):
    """A small model of timm with random weights, and its files as timm writes them."""
    arguments = {**SMALL, "num_classes": 3, **changed}
    model = randomised(timm.create_model(architecture, **arguments))
    stated = {key: value for key, value in arguments.items() if key != "num_classes"}
    timm.models.save_for_hf(model, folder, model_args=stated, safe_serialization=True)
    return model


def image_of(changed):
    size = {**SMALL, **changed}["img_size"]
    return normal(2, size, size, 3)


def run(model, image):
    """The output of a model of timm, or of transformers' wrapper."""
    with torch.no_grad():
        output = model.eval()(channels_first(image))
    return (output if torch.is_tensor(output) else output[0]).numpy()


@pytest.mark.parametrize(("name", "sizes", "changed", "are_shown"), TIMM)
def test_our_outputs_are_those_of_timm(name, sizes, changed, are_shown, tmp_path):
    """By config.json; by the arguments of timm; and by the arrays alone for what they show.

    timm's push_to_hf_hub writes no arguments, unless its caller repeats them.
    """
    theirs, folder = saved(name, tmp_path / "x", **sizes, **changed), tmp_path / "x"
    alone = shutil.copy(folder / "model.safetensors", tmp_path)
    image = image_of(sizes)
    want = run(theirs, image)
    assert_close(VisionTransformer.from_preset(folder)(image), want)
    read = {"timm": {"model_name": name, **SMALL, **sizes, **changed}}
    assert_close(VisionTransformer.from_preset(alone, read=read)(image), want)
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
    "fields",
    [{"rope": None, "block": {"epsilon": 1e-5}}, {"rope": {"form": "axial"}}],
    ids=["no layer scale", "no reference grid"],
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


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("vit_base_patch16_224", {"global_pool": "max"}, "global_pool='max'"),
        ("vit_base_patch16_224", {"global_pool": "map", "fc_norm": True}, "norm.weight"),
        # timm adds it before the coordinates are scaled; keras_vit has it for axial positions.
        ("vit_small_patch16_dinov3", {"rope_grid_offset": 1.0}, "rope_grid_offset"),
    ],
)
def test_what_we_do_not_compute_is_refused(name, changed, words, tmp_path):
    saved(name, tmp_path / "x", **changed)
    file = shutil.copy(tmp_path / "x" / "model.safetensors", tmp_path)
    card = {"model_name": name, **SMALL, **changed}
    for source, read in ((tmp_path / "x", {}), (file, {"timm": card})):
        with raises(CheckpointError, words):
            VisionTransformer.from_preset(source, read=read)


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


@pytest.mark.parametrize(
    ("architecture", "pool"),
    [
        ("vit_base_patch16_224", ""),  # BiomedCLIP
        ("vit_base_patch16_224", "avg"),
        ("vit_base_patch32_siglip_256", "map"),  # its GELU is not that of the others
        ("vit_pe_core_base_patch16_224", ""),
    ],
)
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
        VisionTransformer.from_preset(tmp_path)


@pytest.mark.parametrize("has_token", [True, False])
def test_a_dinov2_is_written_for_timm_without_its_mask_token(has_token, tmp_path, caplog):
    """timm has no place for it, and inference does not read it: a line of log says so."""
    given = {} if has_token else {"tokens": {"mask": False}}
    model = load_case("hf_dinov2_model", **given)
    with caplog.at_level("INFO", "keras_vit"):
        checkpoints.save(model, tmp_path / "timm", family="timm")
    assert ("mask token" in caplog.text) == has_token
    assert not any("mask" in name for name in load_file(tmp_path / "timm" / "model.safetensors"))
    image = normal(2, *model.config.image_size, 3)
    written = VisionTransformer.from_preset(tmp_path / "timm")
    assert_close(written(image), to_numpy(model(image)), 1e-6)
