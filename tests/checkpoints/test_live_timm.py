"""timm reads the JSON that keras_vit writes, and keras_vit that of timm."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.inspection import open_checkpoint
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.checkpoints.translate import plan
from keras_vit.errors import CheckpointError
from keras_vit.models.builders import list_variants, variant
from tests.checkpoints.drawn import accepted
from tests.checkpoints.headers import Headers
from tests.golden import FOLDER, relative_error
from tests.helpers import assert_close, normal, only_under, to_numpy
from tests.words import edit_json, raises

# The goldens of timm are compared on every backend; here files and arguments are.
only_under("torch")
from tests.live import random_transformers, read_shapes, timm, torch, transformers  # noqa: E402

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from safetensors.torch import save_file  # noqa: E402

from tests.data.make_timm_registry import FILE, registry  # noqa: E402


@pytest.mark.parametrize("name", ["timm", "timm/eva", "timm/naflex"])
def test_transformers_opens_what_we_write_for_timm(name, tmp_path):
    """As it opens timm's own folders: no number of classes in `model_args`, and no null there."""
    for number, config in enumerate(accepted(DIALECTS[name])):
        folder = tmp_path / str(number)
        checkpoints.save(VisionTransformer(config), folder, name)
        own = timm.create_model(f"local-dir:{folder}", pretrained=True)
        assert own.num_classes == config.num_classes
        kinds = ["TimmWrapperModel"]
        kinds += ["TimmWrapperForImageClassification"] if config.num_classes else []
        for kind in kinds:
            wrapper, info = getattr(transformers, kind).from_pretrained(
                folder, output_loading_info=True
            )
            assert not info["missing_keys"]
        assert wrapper.timm_model.num_classes == config.num_classes


@pytest.mark.parametrize(
    "fields",
    [{"rope": None, "block": {"epsilon": 1e-5}}, {"rope": {"form": "axial"}}],
    ids=["no layer scale", "no reference grid"],
)
def test_parts_that_transformers_takes_from_the_architecture(fields, tmp_path):
    """It drops each null in `model_args`, so that the architecture itself lacks these parts."""
    config = next(c for c in accepted(DIALECTS["timm/eva"]) if c.rope)
    model = VisionTransformer(config.replace(**fields))
    model.set_weights([normal(*weight.shape) for weight in model.get_weights()])
    checkpoints.save(model, tmp_path, "timm/eva")
    images = normal(1, *model.config.image_size, 3)
    kind = transformers.TimmWrapperForImageClassification
    theirs = kind.from_pretrained(tmp_path).eval()(torch.tensor(images).permute(0, 3, 1, 2))
    assert_close(to_numpy(model(images)), theirs.logits.detach().numpy())


@pytest.mark.parametrize("form", [list, lambda names: dict(enumerate(names))], ids=["list", "dict"])
def test_labels_are_read_from_timm_and_written_to_timm(form, tmp_path):
    """From label_names, a list or an object by number, to `model.labels` and back."""
    names = ["tench", "goldfish", "crane", "crane, bird", "Ä", "f", "g"]
    folder = shutil.copytree(FOLDER / "timm_token", tmp_path / "x")
    edit_json(folder / "config.json", label_names=form(names))
    model = VisionTransformer.from_preset(folder)
    assert model.class_names == tuple(names)
    checkpoints.save(model, tmp_path / "saved", family="timm")
    keras_vit.convert(folder, tmp_path / "converted", "timm")
    for place in ("saved", "converted"):
        theirs = timm.create_model(f"local-dir:{tmp_path / place}", pretrained=True)
        assert theirs.pretrained_cfg["label_names"] == names


@pytest.mark.parametrize("name", ["vit_base_patch16_224", "vit_small_r26_s32_224"])
def test_the_name_of_the_architecture_determines_the_heads(name, tmp_path):
    """Published config.json files have no model_args; the weights alone need the name."""
    theirs = timm.create_model(name, depth=1, num_classes=3, device="meta")
    size, heads = theirs.patch_embed.img_size, theirs.blocks[0].attn.num_heads
    published = {"architecture": name, "num_classes": 3, "num_features": theirs.num_features}
    published["pretrained_cfg"] = {"input_size": [3, *size], "num_classes": 3}
    published["global_pool"] = "token"
    arrays = Headers(read_shapes(theirs))
    alone = open_checkpoint(OpenSource(arrays, {}), {"timm": name}).info.config
    found = open_checkpoint(OpenSource(arrays, {"config.json": published}), {}).info.config
    assert found == alone
    assert (alone.num_heads, alone.image_size) == (heads, size)


@pytest.mark.parametrize(
    "changed",
    [
        {"qkv_bias": False},
        {"pre_norm": True},
        {"class_token": False, "global_pool": "avg"},
        {"global_pool": "avg"},
        {"global_pool": "map"},
    ],
    ids=str,
)
def test_parts_that_no_argument_states_are_those_of_the_arrays(changed, tmp_path):
    """timm's push_to_hf_hub writes no arguments, unless its caller repeats them."""
    theirs = saved("vit_base_patch16_224", tmp_path, **changed)
    edit_json(tmp_path / "config.json", model_args=_SMALL, global_pool=...)
    images = normal(2, 8, 8, 3)
    with torch.no_grad():
        expected = theirs(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
    assert_close(to_numpy(VisionTransformer.from_preset(tmp_path)(images)), expected)


@pytest.mark.parametrize("fc_norm", [None, True, False])
@pytest.mark.parametrize("pool", ["", "token", "avg", "max", "map"])
def test_pooling_and_the_place_of_the_last_norm_are_those_of_timm(pool, fc_norm, tmp_path):
    """By config.json and by a card, and as timm reads what keras_vit writes; others are refused."""
    changed = {"global_pool": pool, "fc_norm": fc_norm, "reg_tokens": 1}
    theirs = saved("vit_base_patch16_224", tmp_path / "theirs", **changed)
    file = shutil.copy(tmp_path / "theirs" / "model.safetensors", tmp_path)
    card = {"model_name": "vit_base_patch16_224", **_SMALL, **changed}
    images = normal(2, 8, 8, 3)
    expected = theirs(torch.tensor(images).permute(0, 3, 1, 2)).detach().numpy()
    for source, read in ((tmp_path / "theirs", {}), (file, {"timm": card})):
        if pool == "max" or (pool == "map" and fc_norm):
            with raises(CheckpointError, f"global_pool={pool!r}"):
                VisionTransformer.from_preset(source, read=read)
            continue
        model = VisionTransformer.from_preset(source, read=read)
        assert_close(to_numpy(model(images)), expected)
        checkpoints.save(model, tmp_path / "ours", family="timm")
        ours = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
        again = ours(torch.tensor(images).permute(0, 3, 1, 2)).detach().numpy()
        assert_close(again, expected)


def test_heads_of_an_architecture_belong_to_its_width(tmp_path):
    saved("vit_base_patch16_224", tmp_path)
    edit_json(tmp_path / "config.json", model_args=...)
    with raises(CheckpointError, "num_heads cannot be inferred"):
        keras_vit.info(tmp_path)
    assert keras_vit.info(tmp_path, num_heads=3).config.num_heads == 3


def test_the_arguments_of_architectures_are_those_of_timm():
    """The file of the dialect is what its script makes of the timm that is installed."""
    own = json.loads(FILE.read_text())
    if timm.__version__ != own["timm"]:
        pytest.skip(f"written with timm {own['timm']}")
    assert json.loads(json.dumps(registry())) == own


@pytest.mark.parametrize("name", list_variants())
def test_timm_builds_every_variant_with_the_planned_names_and_shapes(name, tmp_path):
    """From the config.json that keras_vit writes for the variant."""
    config = variant(name).config(image_size=448, num_classes=21843)
    written = DIALECTS["timm"].write_json(config, None)["config.json"]
    (tmp_path / "config.json").write_text(json.dumps(written))
    timm_model = timm.create_model(f"local-dir:{tmp_path}", device="meta")
    moves = plan(config, DIALECTS["timm"])
    assert read_shapes(timm_model) == {move.name: move.file_shape for move in moves}
    assert timm_model.blocks[0].attn.num_heads == config.num_heads
    assert timm_model.patch_embed.img_size == config.image_size


_SMALL = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}


def saved(architecture, folder, **changed):
    """A small model of timm, and its files as timm writes them."""
    arguments = {**_SMALL, **changed}
    model = timm.create_model(architecture, num_classes=3, **arguments).eval()
    timm.models.save_for_hf(model, folder, model_args=arguments, safe_serialization=True)
    return model


@pytest.mark.parametrize(
    ("architecture", "changed"),
    [
        ("vit_base_patch16_clip_224", {"final_norm": False}),
        ("vit_base_patch16_siglip_224", {"pre_norm": True}),
        ("beit_base_patch16_224", {"use_rel_pos_bias": False}),
    ],
)
def test_arrays_of_a_rotary_model_do_not_outweigh_the_architecture(architecture, changed, tmp_path):
    """The Perception Encoder and EVA-02 have the same arrays, and rotary positions."""
    saved(architecture, tmp_path, **changed)
    assert keras_vit.info(tmp_path).config.rope is None


@pytest.mark.parametrize("is_stated", [True, False])
@pytest.mark.parametrize(
    ("architecture", "changed"),
    [
        ("test_vit4", {}),
        ("vit_giant_patch14_dinov2", {}),
        ("eva02_base_patch14_224", {}),
        ("vit_small_patch16_dinov3", {"embed_dim": 48, "num_heads": 3}),
    ],
)
def test_norms_of_queries_and_keys_are_those_of_timm(architecture, changed, is_stated, tmp_path):
    """Values and derivatives, both ways; the arrays show the norms where `model_args` do not."""
    theirs = saved(architecture, tmp_path / "theirs", qk_norm=True, **changed)
    state = theirs.state_dict()
    for name in state:
        state[name] = torch.from_numpy(normal(*state[name].shape, seed=len(name)))
    theirs.load_state_dict(state)
    save_file(state, tmp_path / "theirs" / "model.safetensors")
    if not is_stated:
        sizes = {"model_args": {**_SMALL, **changed}}
        edit_json(tmp_path / "theirs" / "config.json", **sizes)
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    assert model.config.block.qk_norm == "head"
    image, ours = normal(2, 8, 8, 3), []
    for compute, axes in ((theirs, (0, 3, 1, 2)), (model, (0, 1, 2, 3))):
        x = torch.from_numpy(image.transpose(axes).copy()).requires_grad_()
        y = compute(x)
        (y * torch.arange(3)).sum().backward()
        ours.append((to_numpy(y), to_numpy(x.grad).transpose(np.argsort(axes))))
    for want, found in zip(*ours, strict=True):
        assert relative_error(found, want) <= 1e-5
    checkpoints.save(model, tmp_path / "ours", keras_vit.info(tmp_path / "theirs").family)
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).state_dict()
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], state[name]) for name in state)


def test_the_heads_of_attention_pooling_are_those_of_the_architecture(tmp_path):
    """The Perception Encoder pools with 8 heads, which no array shows."""
    name, sizes = "vit_pe_core_gigantic_patch14_448", {"embed_dim": 256, "num_heads": 16}
    theirs = saved(name, tmp_path, **sizes, img_size=56, patch_size=14)
    (tmp_path / "config.json").unlink()
    images = normal(1, 56, 56, 3)
    want = theirs(torch.from_numpy(images).permute(0, 3, 1, 2)).detach().numpy()
    model = VisionTransformer.from_preset(
        tmp_path / "model.safetensors", read={"timm": {"model_name": name, **sizes}}
    )
    assert model.config.pool.num_heads == 8
    assert_close(model(images), want, 1e-5)


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
    trunk = timm.create_model(architecture, **sizes).eval()
    if pool == "avg":
        trunk.global_pool = pool  # as `reset_classifier` of the trunk does it
    with torch.no_grad():
        for weight in trunk.parameters():
            weight.normal_(std=0.1)
    projection = torch.from_numpy(normal(10, 96))
    arrays = {f"visual.trunk.{name}": value for name, value in trunk.state_dict().items()}
    arrays |= {"visual.head.proj.weight": projection, "text.proj.weight": projection.clone()}
    save_file(arrays, tmp_path / "open_clip_model.safetensors")
    vision = {"timm_model_name": architecture, "timm_pool": pool, "image_size": side}
    content = {"model_cfg": {"embed_dim": 10, "vision_cfg": {**vision, "timm_proj": "linear"}}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content))
    images = normal(2, side, side, 3)
    with torch.no_grad():
        want = trunk(torch.from_numpy(images).permute(0, 3, 1, 2)) @ projection.T
    assert_close(VisionTransformer.from_preset(tmp_path)(images), want.numpy(), 1e-5)


def test_open_clips_config_with_a_trunk_that_keras_vit_lacks_is_refused(tmp_path):
    trunk = timm.create_model("vit_small_patch16_224", depth=1, num_classes=0)
    arrays = {f"visual.trunk.{name}": value for name, value in trunk.state_dict().items()}
    save_file(arrays, tmp_path / "open_clip_model.safetensors")
    vision = {"timm_model_name": "vit_dpwee_patch16_reg1_gap_256"}
    content = {"model_cfg": {"vision_cfg": vision}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content))
    with raises(CheckpointError, "timm_model_name='vit_dpwee_patch16_reg1_gap_256'", "parallel"):
        VisionTransformer.from_preset(tmp_path)


def test_an_offset_of_rotary_positions_of_dinov3_is_refused(tmp_path):
    """timm adds it before the coordinates are scaled; keras_vit has it for axial positions."""
    saved("vit_small_patch16_dinov3", tmp_path, rope_grid_offset=1.0)
    with raises(CheckpointError, "rope_grid_offset", "('dinov3', True, 'ij', 1.0)"):
        VisionTransformer.from_preset(tmp_path)


def test_timm_runs_an_image_whose_last_pixels_fill_no_patch(tmp_path):
    """Of the Perception Encoder, which is written as an architecture for images of any size."""
    image = torch.zeros(1, 3, 10, 10)
    saved("vit_pe_core_base_patch16_224", tmp_path / "theirs", img_size=10)(image)
    checkpoints.save(
        VisionTransformer.from_preset(tmp_path / "theirs"), tmp_path / "ours", "timm/eva"
    )
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    assert again(image).shape == (1, 3)


@pytest.mark.parametrize("has_token", [True, False])
def test_a_dinov2_is_written_for_timm_without_its_mask_token(has_token, tmp_path, caplog):
    """timm has no place for it, and inference does not read it: a line of log says so."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    theirs = random_transformers("Dinov2Model", **sizes, image_size=28, patch_size=14)
    theirs.save_pretrained(tmp_path / "own")
    given = {} if has_token else {"tokens": {"mask": False}}
    again = VisionTransformer.from_preset(tmp_path / "own", **given)
    assert again.config.tokens.mask == has_token
    with caplog.at_level("INFO", "keras_vit"):
        checkpoints.save(again, tmp_path / "timm", family="timm")
    assert ("no place for the mask token" in caplog.text) == has_token
    images = normal(2, 28, 28, 3)
    arrays = load_file(tmp_path / "timm" / "model.safetensors")
    assert not any("mask" in name for name in arrays)
    written = VisionTransformer.from_preset(tmp_path / "timm")
    assert_close(written(images), to_numpy(again(images)), 1e-6)
