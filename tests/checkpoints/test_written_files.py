"""timm and transformers compute the model's outputs from files of keras_vit."""

import pytest

import keras_vit
from keras_vit import checkpoints
from keras_vit.checkpoints.libraries import run_library
from keras_vit.errors import CheckpointError
from tests.golden import CASES, FOLDER, expected, relative_error
from tests.helpers import assert_same_arrays, normal, only_under, random_tiny, stored, tiny
from tests.words import raises

# The goldens are compared on every backend; here the libraries read files.
only_under("torch")
from tests import torchvision_shim  # noqa: E402, F401

pytestmark = pytest.mark.usefixtures("offline")

ANY_SIZE = {
    "image_size": None,
    "position_grid": (3, 2),
    "channels": 1,
    "block": {"qkv_bias": False},
}
MODELS = {
    "timm": (
        ANY_SIZE,
        {"pool": {"kind": "gap", "norm": "after"}, "block": {"activation": "gelu"}},
        {"pool": {"kind": "map"}, "position": "learned_patches"},
    ),
    "transformers": (
        ANY_SIZE,
        {"block": {"activation": "gelu", "epsilon": 1e-12}},
        {"num_classes": 0, "representation_size": 9},
        {"num_classes": 0},
    ),
}


def compute_outputs(dialect, folder, image):
    """The logits, or pooled features, of the library's model."""
    pytest.importorskip(dialect, exc_type=ImportError)
    _, found = run_library(dialect, folder, image)
    return found


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [(dialect, fields) for dialect, rows in MODELS.items() for fields in rows],
    ids=str,
)
def test_a_library_gives_the_outputs_of_a_saved_model(dialect, fields, tmp_path):
    """Of random weights; the library reads the JSON and the arrays that `save` writes."""
    model = random_tiny(**fields)
    checkpoints.save(model, tmp_path / "x", dialect)
    written = keras_vit.info(tmp_path / "x").config
    image = normal(2, *written.image_size, written.channels)
    found = compute_outputs(dialect, tmp_path / "x", image)
    assert relative_error(found, model.predict(image, verbose=0)) <= 1e-5


def test_an_activation_that_a_library_lacks_is_left_out_with_a_line_of_log(tmp_path, caplog):
    """The library computes logits."""
    checkpoints.save(tiny(classifier_activation="softmax"), tmp_path / "x.npz")
    assert "without the model's softmax" in caplog.text


OFFICIAL = {
    "timm": (
        *("vit_token_published", "vit_gap", "vit_headless", "vit_one_channel", "vit_patch_8x4"),
        *("vit_crop", "vit_deep11", "vit_unpooled", "bv_none", "bv_tok", "bv_gap", "bv_map"),
        *("kh_classifier", "kh_gap"),
    ),
    "transformers": (
        *("vit_token_published", "vit_headless", "vit_one_channel", "vit_patch_8x4", "vit_crop"),
        *("vit_deep11", "timm_token", "kh_classifier", "bv_from_published"),
    ),
}


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect, names in OFFICIAL.items() for name in names]
)
def test_a_library_gives_the_official_outputs_from_official_weights(dialect, name, tmp_path):
    """config.json tells the library the GELU, epsilons, pooling and place of the class token."""
    case, want = CASES[name], expected(name)
    config = {"image_size": tuple(case["config"]["image_size"])}
    if case["config"]["pooling"].endswith("unpooled"):  # the arrays do not show it
        config["pool"] = {"kind": "unpooled"}
    keras_vit.convert(FOLDER / case["checkpoint"], tmp_path / "x", dialect, **config)
    found = compute_outputs(dialect, tmp_path / "x", want["image"])
    assert relative_error(found, want["logits" if "logits" in want else "pre_logits"]) <= 1e-5


def test_official_hybrids_are_written_only_as_lossy(tmp_path):
    """timm's stem standardises kernels otherwise, so its logits differ by up to 10 %."""
    source, want = FOLDER / "hybrid_r_ti.npz", expected("hybrid_r_ti")
    with raises(
        CheckpointError,
        "timm cannot express this model",
        "stem.kind='resnet', where it computes 'resnet_timm'",
        "Nothing was written. lossy=True writes the weights nevertheless",
    ):
        keras_vit.convert(source, tmp_path / "x", "timm")
    assert list(tmp_path.iterdir()) == []
    keras_vit.convert(source, tmp_path / "x", "timm", lossy=True)
    error = relative_error(compute_outputs("timm", tmp_path / "x", want["image"]), want["logits"])
    assert 1e-5 < error < 1e-1
    keras_vit.convert(tmp_path / "x", tmp_path / "back.npz", "google", lossy=True)
    assert_same_arrays(stored(source), stored(tmp_path / "back.npz"))
