"""transformers' files are read and written bit for bit, and transformers loads written files."""

import json
import shutil

import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.translate import plan
from keras_vit.variants import list_variants, variant
from tests.golden import CASES, FOLDER, expected, relative_error
from tests.helpers import HYBRID, normal, only_under, random_tiny, tiny
from tests.words import raises

# The goldens of transformers are compared on every backend; here files and arguments are.
only_under("torch")
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

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

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
"""Fields of a ViTConfig; kinds with `pooler` are a ViTModel, the others a classifier."""


def random_library_model(pooler=None, **fields):
    """A model of transformers with random parameters."""
    config = transformers.ViTConfig(**{**SIZES, **fields})
    with torch.device("meta"):
        if pooler is None:
            library_model = ViTForImageClassification(config)
        else:
            library_model = ViTModel(config, add_pooling_layer=pooler)
    return randomise(library_model)


def run(library_model, image):
    """The outputs of a transformers model by the stage names of keras_vit."""
    with torch.no_grad():
        out = library_model(channels_first(image), output_hidden_states=True)
    if isinstance(library_model, ViTForImageClassification):
        return {"logits": out.logits.numpy()}
    stages = {"encoded": out.last_hidden_state.numpy()}
    if out.pooler_output is not None:
        stages["pre_logits"] = out.pooler_output.numpy()
    return stages


def load(folder, config):
    """transformers' model of a folder; fails if an array is missing or left over."""
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
    library_model = random_library_model(**KINDS[request.param])
    library_model.save_pretrained(folder / "original")
    model = checkpoints.load(folder / "original")
    image = normal(1 if request.param == "vit_s16" else 2, *model.input_shape[1:])
    yield Live(library_model, image, run(library_model, image), folder / "original", model)
    shutil.rmtree(folder)


def test_outputs_equal_those_of_transformers(live, record_property):
    """Logits, or last hidden state and pooler output of a ViTModel, within 1e-5."""
    errors = live.errors()
    record_property("errors", errors)
    assert max(errors.values()) <= 1e-5, errors


def test_loading_and_saving_a_folder_is_bitwise_equal(live, tmp_path):
    """transformers loads the saved folder and computes the same outputs."""
    checkpoints.save(live.keras_vit_model, tmp_path / "back", dialect="transformers")
    assert_same_weights(live.folder, tmp_path / "back")
    again = load(tmp_path / "back", live.keras_vit_model.config)
    assert_same_stages(run(again, live.image), live.stages)


def test_converting_a_folder_to_its_own_dialect_is_bitwise_equal(live, tmp_path):
    """Without a model; the JSON files equal those of `save`."""
    checkpoints.convert(live.folder, tmp_path / "converted", "transformers")
    checkpoints.save(live.keras_vit_model, tmp_path / "saved", dialect="transformers")
    assert_same_weights(live.folder, tmp_path / "converted")
    for file in (tmp_path / "saved").glob("*.json"):
        assert file.read_text() == (tmp_path / "converted" / file.name).read_text()


def test_the_comparison_detects_wrong_numerics(tmp_path):
    """With embeddings so small that an epsilon of 1e-12 matters, other numerics differ clearly."""
    library_model = random_library_model()
    with torch.no_grad():
        for parameter in library_model.vit.embeddings.parameters():
            parameter.mul_(3e-6)
    library_model.save_pretrained(tmp_path)
    image = normal(2, 16, 16, 3)
    want = run(library_model, image)["logits"]
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
def test_transformers_gives_the_outputs_of_a_saved_keras_vit_model(fields, tmp_path):
    """`from_pretrained` reads the folder that `save` writes."""
    model = random_tiny(**fields)
    checkpoints.save(model, tmp_path / "x", dialect="transformers")
    written = checkpoints.inspect(tmp_path / "x").config
    image = normal(2, *written.image_size, written.channels)
    got = run(load(tmp_path / "x", written), image)
    if "encoded" in got:
        got.setdefault("pre_logits", got["encoded"][:, 0])
    got = got["logits" if written.num_classes else "pre_logits"]
    assert relative_error(got, model.predict(image, verbose=0)) <= 1e-5


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
def test_transformers_gives_the_official_outputs_from_official_weights(name, tmp_path):
    """config.json tells transformers the tanh GELU and the epsilon of 1e-6."""
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


def test_auto_classes_find_the_model_and_the_image_processor(tmp_path):
    """The processor of transformers prepares pixels as keras_vit's preprocessor does."""
    model = random_tiny(image_size=(16, 24))
    checkpoints.save(model, tmp_path / "x", dialect="transformers")
    library_model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "x")
    assert isinstance(library_model, ViTForImageClassification)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "x")
    pixels = np.random.default_rng(0).integers(0, 256, (16, 24, 3), "uint8")
    got = processor(pixels, return_tensors="np")["pixel_values"]
    assert np.abs(got.transpose(0, 2, 3, 1) - model.preprocessor(pixels)).max() <= 1e-6


def test_labels_are_read_from_transformers_and_written_to_transformers(tmp_path):
    """From id2label to `model.labels` and back."""
    names = {0: "tench", 1: "goldfish", 2: "crane", 3: "crane, bird", 4: "Ä"}
    library_model = random_library_model(
        id2label=names, label2id={name: k for k, name in names.items()}
    )
    library_model.save_pretrained(tmp_path / "original")
    model = checkpoints.load(tmp_path / "original")
    assert model.labels == tuple(names.values())
    checkpoints.save(model, tmp_path / "saved", dialect="transformers")
    checkpoints.convert(tmp_path / "original", tmp_path / "converted", "transformers")
    for folder in ("saved", "converted"):
        config = transformers.AutoConfig.from_pretrained(tmp_path / folder)
        assert config.id2label == names
        assert config.label2id == library_model.config.label2id


def test_placeholder_names_are_no_labels(tmp_path):
    """LABEL_0 and so on are read as no labels, and no labels are written so."""
    random_library_model().save_pretrained(tmp_path / "original")
    model = checkpoints.load(tmp_path / "original")
    assert model.labels is None
    checkpoints.save(model, tmp_path / "written", dialect="transformers")
    assert checkpoints.load(tmp_path / "written").labels is None
    assert transformers.AutoConfig.from_pretrained(tmp_path / "written").num_labels == 5


def test_sharded_files_load(tmp_path):
    """Shards with an index are one checkpoint, with the weights of the single file."""
    library_model = random_library_model()
    library_model.save_pretrained(tmp_path / "whole")
    library_model.save_pretrained(tmp_path / "shards", max_shard_size="8kB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    checkpoints.convert(tmp_path / "shards", tmp_path / "converted", "transformers")
    assert_same_weights(tmp_path / "whole", tmp_path / "converted")
    checkpoints.save(checkpoints.load(tmp_path / "shards"), tmp_path / "saved", "transformers")
    assert_same_weights(tmp_path / "whole", tmp_path / "saved")


def test_a_bare_file_needs_num_heads(tmp_path):
    """The arrays do not determine it; with num_heads, the model is that of the folder."""
    random_library_model().save_pretrained(tmp_path / "original")
    file = tmp_path / "original" / "model.safetensors"
    with raises(
        CheckpointError, str(file), "num_heads cannot be inferred from the arrays; give it by name"
    ):
        checkpoints.load(file)
    model = checkpoints.load(file, num_heads=3)
    assert model.config == checkpoints.inspect(tmp_path / "original").config
    checkpoints.save(model, tmp_path / "back", dialect="transformers")
    assert_same_weights(tmp_path / "original", tmp_path / "back")


def test_a_pooler_beside_a_classifier_is_not_read_as_a_layer_of_it(tmp_path):
    """transformers' classifier reads the class token, not the pooler; the array is refused."""
    library_model = random_library_model()
    library_model.vit.pooler = random_library_model(pooler=True).pooler
    library_model.save_pretrained(tmp_path)
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
def test_a_model_that_transformers_cannot_express_is_not_written(fields, words, tmp_path):
    """The message gives the reason."""
    with raises(CheckpointError, *words):
        checkpoints.save(tiny(**fields), tmp_path / "x", dialect="transformers")
    assert list(tmp_path.iterdir()) == []


def test_transformers_builds_every_plain_variant_as_planned():
    """From the config.json that keras_vit writes for the variant."""
    for name in list_variants():
        config = variant(name).config()
        if config.resnet is not None:
            continue
        written = DIALECTS["transformers"].write_json(config, None)["config.json"]
        with torch.device("meta"):
            library_model = ViTForImageClassification(transformers.ViTConfig.from_dict(written))
        arrays = revert_weight_conversion(library_model, library_model.state_dict())
        moves = plan(config, DIALECTS["transformers"], "vit.")
        planned = {name: move.file_shape for move in moves for name in move.names}
        assert {name: tuple(array.shape) for name, array in arrays.items()} == planned
        assert library_model.config.num_attention_heads == config.num_heads


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"hidden_act": "relu"}, ["hidden_act='relu', expected one of gelu"]),
        ({"pooler_act": "gelu"}, ["pooler_act='gelu', expected 'tanh'"]),
        ({"model_type": "swin"}, ["model_type='swin', expected 'vit'"]),
        ({"num_attention_heads": 5}, ["hidden_size=16 is not divisible by num_heads=5"]),
        ({"hidden_size": 32}, ["misshapen: vit.embeddings.cls_token is (1, 1, 16)"]),
        ({"num_hidden_layers": 2}, ["missing: vit.encoder.layer.1.layernorm_before.weight"]),
        ({"qkv_bias": False}, ["unexpected: vit.encoder.layer.0.attention.attention.key.bias"]),
        ({"image_size": 32}, ["misshapen: vit.embeddings.position_embeddings is (1, 5, 16)"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_contradicts_the_weights_is_refused(stated, words, tmp_path):
    """The message names the value in config.json, or the array that does not fit."""
    checkpoints.save(random_tiny(), tmp_path / "x", dialect="transformers")
    file = tmp_path / "x" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | stated))
    with raises(CheckpointError, *words):
        checkpoints.load(tmp_path / "x")
