"""timm's files are read and written bit for bit, and timm loads the written files."""

import json

import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.translate import plan
from keras_vit.variants import list_variants, variant
from tests.golden import CASES, FOLDER, expected, relative_error
from tests.helpers import normal, only_under, random_tiny
from tests.words import raises

# The goldens of timm are compared on every backend; here files and arguments are.
only_under("torch")
torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

timm = pytest.importorskip("timm")
from safetensors.torch import save_file  # noqa: E402

from tests.data.make_timm_registry import FILE, registry  # noqa: E402
from tests.live import (  # noqa: E402
    channels_first,
    randomise,
    shapes_of,
    stored,
)

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

PLAIN = {
    "model_name": "vit_tiny_patch16_224",
    "img_size": 16,
    "patch_size": 4,
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 3,
    "num_classes": 5,
}
ROOT = {"model_name": "vit_tiny_r_s16_p8_224", "img_size": (32, 48), "patch_size": 4}


def random_timm_model(**arguments):
    """A model of timm with random parameters; tiny unless only a name is given."""
    if arguments.keys() != {"model_name"}:
        arguments = {**PLAIN, **arguments}
    return randomise(timm.create_model(**arguments, device="meta"))


def write(timm_model, folder, **config):
    """Writes a timm model as timm writes it for the Hub."""
    timm.models.save_for_hf(timm_model, folder, safe_serialization=True, model_config=config)


def load(folder):
    """timm's model of a folder; timm fails if an array is missing or left over."""
    return timm.create_model(f"local-dir:{folder}", pretrained=True).eval()


def run(timm_model, image):
    """The outputs of a timm model by the stage names of keras_vit."""
    with torch.no_grad():
        features = timm_model.forward_features(channels_first(image))
        stages = {"pre_logits": timm_model.forward_head(features, pre_logits=True)}
        if isinstance(timm_model.fc_norm, torch.nn.Identity):
            stages["encoded"] = features
        if timm_model.num_classes:
            stages["logits"] = timm_model(channels_first(image))
    return {name: tensor.numpy() for name, tensor in stages.items()}


def test_the_comparison_detects_wrong_numerics(tmp_path):
    """Loaded with other numerics, a hybrid's outputs differ clearly from timm's."""
    timm_model = random_timm_model(**ROOT)
    with torch.no_grad():  # a kernel with a variance so small that an epsilon of 1e-8 matters
        timm_model.patch_embed.backbone.conv.weight.mul_(1e-3)
    write(timm_model, tmp_path)
    image = normal(2, 32, 48, 3)
    want = run(timm_model, image)["logits"]
    right = checkpoints.load(tmp_path)
    assert relative_error(right.predict(image, verbose=0), want) <= 1e-5
    for wrong in ({"gelu": "tanh"}, {"std_conv_epsilon": 1e-9}):
        model = checkpoints.load(tmp_path, numerics={**right.config.numerics.to_dict(), **wrong})
        assert relative_error(model.predict(image, verbose=0), want) > 3e-5, wrong


@pytest.mark.parametrize(
    "fields",
    [
        {"image_size": None, "position_grid": (3, 2), "channels": 1, "qkv_bias": False},
        {"classifier": "gap", "numerics": {"gelu": "exact", "pool_before_norm": True}},
        {"classifier": "map", "class_token": True, "position_before_class": True},
    ],
    ids=["any_size_tanh", "gap_exact", "map_tanh"],
)
def test_timm_gives_the_logits_of_a_saved_keras_vit_model(fields, tmp_path):
    """`create_model("local-dir:...")` reads the folder that `save` writes."""
    model = random_tiny(**fields)
    checkpoints.save(model, tmp_path / "x", dialect="timm")
    timm_model = load(tmp_path / "x")
    image = normal(2, *timm_model.patch_embed.img_size, model.config.channels)
    assert relative_error(run(timm_model, image)["logits"], model.predict(image, verbose=0)) <= 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "vit_token_published",
        "vit_gap",
        "vit_headless",
        "vit_one_channel",
        "vit_patch_8x4",
        "vit_crop",
        "vit_deep11",
        "vit_unpooled",
        "bv_none",
        "bv_tok",
        "bv_gap",
        "bv_map",
        "kh_classifier",
        "kh_gap",
    ],
)
def test_timm_gives_the_official_outputs_from_official_weights(name, tmp_path):
    """config.json tells timm the GELU, the pooling and the place of the class token."""
    case, want = CASES[name], expected(name)
    config = {"image_size": tuple(case["config"]["image_size"])}
    config["classifier"] = case["config"]["classifier"]
    checkpoints.convert(FOLDER / case["checkpoint"], tmp_path / "x", "timm", **config)
    got = run(load(tmp_path / "x"), want["image"])
    errors = {stage: relative_error(got[stage], want[stage]) for stage in got if stage in want}
    assert errors.keys() & {"logits", "pre_logits"}
    assert max(errors.values()) <= 1e-5, errors


def test_official_hybrids_are_written_only_as_lossy(tmp_path):
    """timm's stem computes with other numerics, so its logits differ by up to 10 %."""
    source, want = FOLDER / "hybrid_r_ti.npz", expected("hybrid_r_ti")
    with raises(
        CheckpointError,
        "timm cannot express this model",
        "numerics.group_norm_epsilon=1e-06, where it computes 1e-05",
        "numerics.std_conv='std_plus_epsilon', where it computes 'sqrt_var_plus_epsilon'",
        "numerics.std_conv_epsilon=1e-05, where it computes 1e-08",
        "Nothing was written. lossy=True writes the weights nevertheless",
    ):
        checkpoints.convert(source, tmp_path / "x", "timm")
    assert list(tmp_path.iterdir()) == []
    checkpoints.convert(source, tmp_path / "x", "timm", lossy=True)
    error = relative_error(run(load(tmp_path / "x"), want["image"])["logits"], want["logits"])
    assert 1e-5 < error < 1e-1
    checkpoints.convert(tmp_path / "x", tmp_path / "back.npz", "google", lossy=True)
    arrays, back = stored(source), stored(tmp_path / "back.npz")
    assert arrays.keys() == back.keys()
    assert all(np.array_equal(array, back[name]) for name, array in arrays.items())


def test_labels_are_read_from_timm_and_written_to_timm(tmp_path):
    """From label_names, a list or an object by number, to `model.labels` and back."""
    names = ["tench", "goldfish", "crane", "crane, bird", "Ä"]
    timm_model = random_timm_model()
    write(timm_model, tmp_path / "list", label_names=names)
    write(timm_model, tmp_path / "dict", label_names=dict(enumerate(names)))
    for folder in ("list", "dict"):
        model = checkpoints.load(tmp_path / folder)
        assert model.labels == tuple(names)
    checkpoints.save(model, tmp_path / "saved", dialect="timm")
    checkpoints.convert(tmp_path / "list", tmp_path / "converted", "timm")
    for folder in ("saved", "converted"):
        assert load(tmp_path / folder).pretrained_cfg["label_names"] == names


def test_labels_of_timm_are_converted_to_transformers(tmp_path):
    """From label_names to id2label."""
    write(random_timm_model(act_layer="gelu_tanh"), tmp_path / "x", label_names=list("abcde"))
    checkpoints.convert(tmp_path / "x", tmp_path / "y", "transformers")
    config = json.loads((tmp_path / "y" / "config.json").read_text())
    assert config["id2label"] == dict(zip("01234", "abcde", strict=True))


@pytest.mark.parametrize("name", ["vit_base_patch16_224", "vit_small_r26_s32_224"])
def test_the_name_of_the_architecture_determines_the_heads(name, tmp_path):
    """Published config.json files have no model_args; the weights alone need num_heads."""
    timm_model = timm.create_model(name, depth=1, num_classes=3, device="meta")
    published = {
        "architecture": name,
        "num_classes": 3,
        "num_features": timm_model.num_features,
        "global_pool": "token",
        "pretrained_cfg": {"input_size": [3, *timm_model.patch_embed.img_size], "num_classes": 3},
    }
    file = tmp_path / "model.safetensors"
    save_file(timm_model.to_empty(device="cpu").state_dict(), file)
    with raises(
        CheckpointError, str(file), "num_heads cannot be inferred from the arrays; give it by name"
    ):
        checkpoints.inspect(file)
    heads = timm_model.blocks[0].attn.num_heads
    alone = checkpoints.inspect(file, num_heads=heads).config
    (tmp_path / "config.json").write_text(json.dumps(published))
    assert checkpoints.inspect(tmp_path).config == alone
    assert alone.image_size == timm_model.patch_embed.img_size


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
    assert shapes_of(timm_model) == {move.name: move.file_shape for move in moves}
    assert timm_model.blocks[0].attn.num_heads == config.num_heads
    assert timm_model.patch_embed.img_size == config.image_size
