"""transformers itself: its files come in and go out bit for bit, and it loads what we write."""

import json
import shutil

import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.translate import plan
from keras_vit.variants import list_variants, variant
from tests.golden import CASES, FOLDER, expected, relative_error
from tests.helpers import HYBRID, normal, random_tiny, tiny
from tests.words import raises

torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

transformers = pytest.importorskip("transformers")
from transformers import ViTForImageClassification, ViTModel  # noqa: E402
from transformers.core_model_loading import revert_weight_conversion  # noqa: E402

from tests.live import (  # noqa: E402
    Live,
    assert_same_stages,
    assert_same_weights,
    channels_first,
    randomise,
    stored,
)

pytestmark = pytest.mark.usefixtures("offline", "quick_compilation", "blank_models")

SIZES = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_labels": 5,
}
VIT_S16 = {
    "image_size": 224,
    "patch_size": 16,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "num_labels": 1000,
}
KINDS = {
    "classifier": {"num_hidden_layers": 11},
    "tanh_no_qkv_bias": {"hidden_act": "gelu_new", "qkv_bias": False, "num_channels": 1},
    "rectangle": {"image_size": (18, 24), "patch_size": (4, 8), "layer_norm_eps": 1e-3},
    "model": {"pooler": True},
    "model_tanh": {"pooler": True, "pooler_output_size": 9, "hidden_act": "gelu_pytorch_tanh"},
    "model_no_pooler": {"pooler": False, "image_size": (12, 20), "qkv_bias": False},
    "vit_s16": VIT_S16,
}
"""Fields of a ViTConfig; one with `pooler` is for a ViTModel, others for a classifier."""


def their_model(pooler=None, **fields):
    """A model of transformers with a random value in every parameter."""
    config = transformers.ViTConfig(**{**SIZES, **fields})
    with torch.device("meta"):
        if pooler is None:
            theirs = ViTForImageClassification(config)
        else:
            theirs = ViTModel(config, add_pooling_layer=pooler)
    return randomise(theirs)


def run(theirs, image):
    """Their outputs by the names of ours."""
    with torch.no_grad():
        out = theirs(channels_first(image), output_hidden_states=True)
    if isinstance(theirs, ViTForImageClassification):
        return {"logits": out.logits.numpy()}
    stages = {"encoded": out.last_hidden_state.numpy()}
    if out.pooler_output is not None:
        stages["pre_logits"] = out.pooler_output.numpy()
    return stages


def load(folder, config):
    """Their model of a folder that we wrote; fails if an array is missing or left over."""
    kind, options = ViTForImageClassification, {}
    if not config.num_classes:
        kind, options = ViTModel, {"add_pooling_layer": config.representation_size is not None}
    model, info = kind.from_pretrained(folder, output_loading_info=True, **options)
    assert not any(info.values()), info
    return model.eval()


@pytest.fixture(scope="module", params=KINDS)
def live(request, tmp_path_factory):
    """Each kind of model in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    theirs = their_model(**KINDS[request.param])
    theirs.save_pretrained(folder / "theirs")
    ours = checkpoints.load(folder / "theirs")
    image = normal(1 if request.param == "vit_s16" else 2, *ours.input_shape[1:])
    yield Live(theirs, image, run(theirs, image), folder / "theirs", ours)
    shutil.rmtree(folder)


def test_forward_equals_theirs(live, record_property):
    """Logits; last hidden state and pooler output of a ViTModel: within 1e-5."""
    errors = live.errors()
    record_property("errors", errors)
    assert max(errors.values()) <= 1e-5, errors


def test_theirs_to_ours_to_theirs_is_bitwise_equal(live, tmp_path):
    """And what we write is loaded by their own loader, and computes the same."""
    checkpoints.save(live.ours, tmp_path / "back", dialect="transformers")
    assert_same_weights(live.folder, tmp_path / "back")
    again = load(tmp_path / "back", live.ours.config)
    assert_same_stages(run(again, live.image), live.stages)


def test_convert_is_bitwise_equal(live, tmp_path):
    """theirs -> theirs without a model; the JSON files are those of a save."""
    checkpoints.convert(live.folder, tmp_path / "converted", "transformers")
    checkpoints.save(live.ours, tmp_path / "saved", dialect="transformers")
    assert_same_weights(live.folder, tmp_path / "converted")
    for file in (tmp_path / "saved").glob("*.json"):
        assert file.read_text() == (tmp_path / "converted" / file.name).read_text()


def test_comparison_sees_wrong_numerics(tmp_path):
    """Where embeddings are so small that 1e-12 shows, other arithmetic is far from theirs."""
    theirs = their_model()
    with torch.no_grad():
        for parameter in theirs.vit.embeddings.parameters():
            parameter.mul_(3e-6)
    theirs.save_pretrained(tmp_path)
    image = normal(2, 16, 16, 3)
    want = run(theirs, image)["logits"]
    right = checkpoints.load(tmp_path)
    assert relative_error(right.predict(image, verbose=0), want) <= 1e-5
    for wrong in ({"gelu": "tanh"}, {"layer_norm_epsilon": 1e-6}):
        model = checkpoints.load(tmp_path, numerics={**right.config.numerics.to_dict(), **wrong})
        assert relative_error(model.predict(image, verbose=0), want) > 1e-4


@pytest.mark.parametrize(
    "fields",
    [
        {"image_size": None, "position_grid": (3, 2), "channels": 1, "qkv_bias": False},
        {"num_classes": 0, "numerics": {"gelu": "exact", "layer_norm_epsilon": 1e-12}},
        {"num_classes": 0, "representation_size": 9},
    ],
    ids=["any_size_tanh", "headless_exact", "pooler_tanh"],
)
def test_model_born_here_gives_our_outputs_there(fields, tmp_path):
    """`from_pretrained` reads what `save` writes, and computes what we compute."""
    ours = random_tiny(**fields)
    checkpoints.save(ours, tmp_path / "x", dialect="transformers")
    written = checkpoints.inspect(tmp_path / "x").config
    image = normal(2, *written.image_size, written.channels)
    got = run(load(tmp_path / "x", written), image)
    if "encoded" in got:
        got.setdefault("pre_logits", got["encoded"][:, 0])
    got = got["logits" if written.num_classes else "pre_logits"]
    assert relative_error(got, ours.predict(image, verbose=0)) <= 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "vit_token_published",
        "vit_headless",
        "vit_one_channel",
        "vit_patch_8x4",
        "vit_crop",
        "vit_deep11",
        "timm_token",
        "kh_classifier",
        "bv_from_published",
    ],
)
def test_official_weights_give_official_outputs_there(name, tmp_path):
    """Tanh and epsilon 1e-6 go into config.json: transformers gives the reference's logits."""
    case, want = CASES[name], expected(name)
    size = tuple(case["config"]["image_size"])
    checkpoints.convert(
        FOLDER / case["checkpoint"], tmp_path / "x", "transformers", image_size=size
    )
    config = checkpoints.inspect(tmp_path / "x").config
    got = run(load(tmp_path / "x", config), want["image"])
    if "logits" in want:
        assert relative_error(got["logits"], want["logits"]) <= 1e-5
    else:
        assert relative_error(got["encoded"], want["encoded"]) <= 1e-5


def test_auto_classes_and_processor_read_what_we_write(tmp_path):
    """`AutoModel...` finds the class; their processor prepares pixels as ours does."""
    ours = random_tiny(image_size=(16, 24))
    checkpoints.save(ours, tmp_path / "x", dialect="transformers")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "x")
    assert isinstance(theirs, ViTForImageClassification)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "x")
    pixels = np.random.default_rng(0).integers(0, 256, (16, 24, 3), "uint8")
    got = processor(pixels, return_tensors="np")["pixel_values"]
    assert np.abs(got.transpose(0, 2, 3, 1) - ours.preprocessor(pixels)).max() <= 1e-6


def test_labels_survive_both_ways(tmp_path):
    """id2label -> `model.labels` -> id2label."""
    names = {0: "tench", 1: "goldfish", 2: "crane", 3: "crane, bird", 4: "Ä"}
    theirs = their_model(id2label=names, label2id={name: k for k, name in names.items()})
    theirs.save_pretrained(tmp_path / "theirs")
    ours = checkpoints.load(tmp_path / "theirs")
    assert ours.labels == tuple(names.values())
    checkpoints.save(ours, tmp_path / "saved", dialect="transformers")
    checkpoints.convert(tmp_path / "theirs", tmp_path / "converted", "transformers")
    for folder in ("saved", "converted"):
        config = transformers.AutoConfig.from_pretrained(tmp_path / folder)
        assert config.id2label == names
        assert config.label2id == theirs.config.label2id


def test_placeholder_names_are_no_labels(tmp_path):
    """LABEL_0 and so on stand for no labels, both ways."""
    their_model().save_pretrained(tmp_path / "theirs")
    ours = checkpoints.load(tmp_path / "theirs")
    assert ours.labels is None
    checkpoints.save(ours, tmp_path / "ours", dialect="transformers")
    assert checkpoints.load(tmp_path / "ours").labels is None
    assert transformers.AutoConfig.from_pretrained(tmp_path / "ours").num_labels == 5


def test_sharded_files_load(tmp_path):
    """Shards and their index are one checkpoint, with the same weights as a single file."""
    theirs = their_model()
    theirs.save_pretrained(tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="8kB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    checkpoints.convert(tmp_path / "shards", tmp_path / "converted", "transformers")
    assert_same_weights(tmp_path / "whole", tmp_path / "converted")
    checkpoints.save(checkpoints.load(tmp_path / "shards"), tmp_path / "saved", "transformers")
    assert_same_weights(tmp_path / "whole", tmp_path / "saved")


def test_a_bare_file_asks_for_the_heads(tmp_path):
    """Without config.json the arrays do not tell num_heads; given, the model is the same."""
    their_model().save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    with raises(
        CheckpointError, str(file), "num_heads cannot be inferred from the arrays; give it by name"
    ):
        checkpoints.load(file)
    ours = checkpoints.load(file, num_heads=3)
    assert ours.config == checkpoints.inspect(tmp_path / "theirs").config
    checkpoints.save(ours, tmp_path / "back", dialect="transformers")
    assert_same_weights(tmp_path / "theirs", tmp_path / "back")


def test_a_pooler_beside_a_classifier_is_not_read_as_a_layer_of_it(tmp_path):
    """Their classifier reads the class token, not the pooler; such a file is refused by name."""
    theirs = their_model()
    theirs.vit.pooler = their_model(pooler=True).pooler
    theirs.save_pretrained(tmp_path)
    assert "vit.pooler.dense.weight" in stored(tmp_path / "model.safetensors")
    with raises(CheckpointError, "unexpected: vit.pooler.dense.weight"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (HYBRID, ["no place for root/conv/kernel", "ViT has no ResNet stem"]),
        ({"classifier": "map"}, ["no place for pool/probe", "ViT has no attention pooling"]),
        (
            {"classifier": "gap", "class_token": True},
            ["cannot express this model", "a classifier other than 'token'"],
        ),
        ({"representation_size": 9}, ["a head behind a representation layer"]),
        ({"position": "sincos2d"}, ["position='sincos2d'"]),
        ({"position_before_class": True}, ["position_before_class=True"]),
        ({"position_grid": (3, 3)}, ["positions stored for another grid than that of image_size"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_transformers_cannot_express_is_not_written(fields, words, tmp_path):
    """A hybrid, a MAP head and the rest are refused with the reason, before a byte is written."""
    with raises(CheckpointError, *words):
        checkpoints.save(tiny(**fields), tmp_path / "x", dialect="transformers")
    assert list(tmp_path.iterdir()) == []


def test_every_plain_variant_fills_their_model():
    """From the config.json of each variant they build a model of our names and shapes."""
    for name in list_variants():
        config = variant(name).config()
        if config.resnet is not None:
            continue
        written = DIALECTS["transformers"].write_json(config, None)["config.json"]
        with torch.device("meta"):
            theirs = ViTForImageClassification(transformers.ViTConfig.from_dict(written))
        arrays = revert_weight_conversion(theirs, theirs.state_dict())
        moves = plan(config, DIALECTS["transformers"], "vit.")
        ours = {name: move.file_shape for move in moves for name in move.names}
        assert {name: tuple(array.shape) for name, array in arrays.items()} == ours
        assert theirs.config.num_attention_heads == config.num_heads


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"hidden_act": "relu"}, ["hidden_act='relu', expected one of gelu"]),
        ({"pooler_act": "gelu"}, ["pooler_act='gelu', expected 'tanh'"]),
        ({"model_type": "beit"}, ["model_type='beit', expected 'vit'"]),
        ({"num_attention_heads": 5}, ["hidden_size=16 is not divisible by num_heads=5"]),
        ({"hidden_size": 32}, ["misshapen: vit.embeddings.cls_token is (1, 1, 16)"]),
        ({"num_hidden_layers": 2}, ["missing: vit.encoder.layer.1.layernorm_before.weight"]),
        ({"qkv_bias": False}, ["unexpected: vit.encoder.layer.0.attention.attention.key.bias"]),
        ({"image_size": 32}, ["misshapen: vit.embeddings.position_embeddings is (1, 5, 16)"]),
        ({"id2label": {"0": "a", "7": "b"}}, ["id2label of the keys 0, 7, expected 0 to 1"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config_that_disagrees_with_the_weights_is_refused(stated, words, tmp_path):
    """One error names what config.json says, or the array that it does not fit."""
    checkpoints.save(random_tiny(), tmp_path / "x", dialect="transformers")
    file = tmp_path / "x" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | stated))
    with raises(CheckpointError, *words):
        checkpoints.load(tmp_path / "x")
