"""keras-hub presets are read and written bit for bit, and keras-hub loads the written presets."""

import dataclasses
import json
import shutil
from pathlib import Path

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

from keras_vit import CheckpointError, checkpoints
from tests.golden import FOLDER, relative_error
from tests.helpers import normal, numpy_of, only_under, random_tiny, tiny
from tests.thorough import THOROUGH

# The goldens of keras-hub are compared on every backend; here files and arguments are.
only_under("tensorflow")
keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("offline")

BACKBONE = {
    "image_shape": (16, 16, 3),
    "patch_size": (8, 8),
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "mlp_dim": 32,
}
VIT_S16 = {
    "image_shape": (224, 224, 3),
    "patch_size": 16,
    "num_layers": 12,
    "num_heads": 6,
    "hidden_dim": 384,
    "mlp_dim": 1536,
}
KINDS = {
    "token": ({}, {}),
    "intermediate": ({}, {"intermediate_dim": 9}),
    "gap": ({}, {"pooling": "gap"}),
    "gap_no_class": ({"use_class_token": False}, {"pooling": "gap", "intermediate_dim": 9}),
    "rectangle": ({"image_shape": (24, 16, 3), "patch_size": (4, 8)}, {}),
    "one_channel": ({"image_shape": (16, 16, 1)}, {}),
    "twelve_blocks": ({"num_layers": 12}, {}),
    "epsilon": ({"layer_norm_epsilon": 1e-3}, {}),
    "backbone": ({}, None),
    "backbone_no_class": ({"use_class_token": False}, None),
    "no_attention_biases": ({"use_mha_bias": False}, {}),
    "no_other_biases": ({"use_mlp_bias": False, "use_patch_bias": False}, {}),
    **({"vit_s16": (VIT_S16, {"num_classes": 1000})} if THOROUGH else {}),
}
"""Arguments of a ViTBackbone and of its ViTImageClassifier; None for a backbone alone."""

EXACT = {"numerics": {"gelu": "exact"}}
BLOCK = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block"


def random_hub_model(backbone=None, task=None, seed=0):
    """A model of keras-hub with a random value in every weight; `task=None` for a backbone."""
    model = keras_hub.models.ViTBackbone(**{**BACKBONE, **(backbone or {})})
    hidden = model.hidden_dim
    if task is not None:
        model = keras_hub.models.ViTImageClassifier(model, **{"num_classes": 5, **task})
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.standard_normal(weight.shape, "float32")
        values *= min(0.3, (hidden / values.size) ** 0.5)  # keeps wide layers in bounds
        weight.assign(values + (weight.name == "gamma"))
    return model


def stored(folder) -> dict[str, np.ndarray]:
    """The weights of a preset folder by file and name, without the optimizer's counters."""
    arrays = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith(("optimizer/", "preprocessor/")):
            arrays[f"{path.name}/{name}"] = item[()]

    for path in sorted(Path(folder).glob("*.h5")):
        with h5py.File(path) as file:
            file.visititems(add)
    return arrays


def assert_same_arrays(left, right):
    """Same files, names, shapes, types and bits."""
    left, right = stored(left), stored(right)
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert (array.shape, array.dtype) == (right[name].shape, right[name].dtype), name
        assert array.tobytes() == right[name].tobytes(), name


def arguments(folder, name) -> dict:
    """The arguments of a model in a JSON file of a preset, without the names of objects."""
    config = json.loads((Path(folder) / name).read_text())["config"]
    others = ("name", "trainable", "dtype", "backbone", "preprocessor")
    return {key: value for key, value in config.items() if key not in others}


def edit(file, **values):
    """Changes arguments in a JSON file of a preset."""
    content = json.loads(file.read_text())
    content["config"] |= values
    file.write_text(json.dumps(content))


@dataclasses.dataclass
class Preset:
    """A preset that keras-hub wrote, its outputs, keras_vit's model of it, and its preset.

    Args:
        folder: the preset that keras-hub wrote.
        model: keras_vit's model, loaded from `folder`.
        written: the preset that keras_vit wrote from `model`.
    """

    folder: Path
    image: np.ndarray
    tokens: np.ndarray
    logits: np.ndarray | None
    model: keras.Model
    written: Path


@pytest.fixture(scope="module", params=KINDS)
def preset(request, tmp_path_factory):
    """Each kind of preset in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    hub_model = random_hub_model(*KINDS[request.param])
    is_task = KINDS[request.param][1] is not None
    backbone = hub_model.backbone if is_task else hub_model
    image = normal(1 if request.param == "vit_s16" else 2, *backbone.image_shape)
    hub_model.save_to_preset(str(folder / "original"))
    model = checkpoints.load(folder / "original")
    checkpoints.save(model, folder / "written", dialect="keras_hub")
    yield Preset(
        folder=folder / "original",
        image=image,
        tokens=numpy_of(backbone(image)),
        logits=numpy_of(hub_model(image)) if is_task else None,
        model=model,
        written=folder / "written",
    )
    shutil.rmtree(folder)


def test_loading_and_saving_a_preset_is_bitwise_equal(preset):
    """Files, names, shapes and bits."""
    assert_same_arrays(preset.folder, preset.written)


def test_converting_a_preset_to_its_own_dialect_is_bitwise_equal(preset):
    """Without a model."""
    checkpoints.convert(preset.folder, preset.folder.with_name("converted"), "keras_hub")
    assert_same_arrays(preset.folder, preset.folder.with_name("converted"))


def test_written_json_files_have_the_arguments_of_the_original(preset):
    """The arguments with which keras-hub builds the model."""
    names = ["config.json"] if preset.logits is None else ["config.json", "task.json"]
    for name in names:
        assert arguments(preset.written, name) == arguments(preset.folder, name)


def test_tokens_and_logits_equal_those_of_keras_hub(preset, record_property):
    """Within 1e-5 of the largest value."""
    want = {"encoder_norm": preset.tokens, "head": preset.logits}
    stages = {
        name: preset.model.get_layer(name).output
        for name, value in want.items()
        if value is not None
    }
    got = keras.Model(preset.model.input, stages)(preset.image)
    errors = {name: relative_error(numpy_of(got[name]), want[name]) for name in stages}
    record_property("errors", errors)
    assert max(errors.values()) <= 1e-5


def test_keras_hub_loads_a_preset_written_by_keras_vit(preset):
    """`from_preset` gives a model with the same outputs."""
    if preset.logits is None:
        model, want = keras_hub.models.Backbone.from_preset(str(preset.written)), preset.tokens
    else:
        model = keras_hub.models.ImageClassifier.from_preset(str(preset.written))
        want = preset.logits
    assert relative_error(numpy_of(model(preset.image)), want) <= 1e-6


def test_a_hub_classifier_with_softmax_is_loaded_as_logits(tmp_path):
    """The softmax of the logits equals the probabilities of keras-hub."""
    hub_model = random_hub_model({}, {"activation": "softmax"})
    hub_model.save_to_preset(str(tmp_path / "preset"))
    image = normal(2, 16, 16, 3)
    got = keras.ops.softmax(checkpoints.load(tmp_path / "preset")(image))
    assert relative_error(numpy_of(got), numpy_of(hub_model(image))) <= 1e-5


MODELS = {
    "token": {},
    "representation": {"representation_size": 9},
    "gap": {"classifier": "gap"},
    "mean_with_class_token": {
        "classifier": "gap",
        "class_token": True,
        "class_token_in_mean": True,
    },
    "rectangle": {"image_size": (24, 16), "patch_size": (4, 8)},
    "one_channel": {"channels": 1},
    "epsilon": {"numerics": {"gelu": "exact", "layer_norm_epsilon": 1e-3}},
}


@pytest.mark.parametrize("kind", MODELS)
def test_keras_hub_gives_the_logits_of_a_classifier_of_keras_vit(kind, tmp_path):
    """Within 1e-5 of the largest logit."""
    model = random_tiny(**{**EXACT, **MODELS[kind]})
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    image = normal(2, *model.input_shape[1:])
    hub_model = keras_hub.models.ViTImageClassifier.from_preset(str(tmp_path / "preset"))
    assert relative_error(numpy_of(hub_model(image)), numpy_of(model(image))) <= 1e-5


def test_an_any_size_model_is_written_with_the_size_of_its_stored_grid(tmp_path):
    """keras-hub does not resize positions."""
    model = random_tiny(**EXACT, image_size=None, position_grid=(2, 3))
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    assert hub_model.backbone.input_shape == (None, 16, 24, 3)
    assert hub_model.preprocessor.image_size == (16, 24)
    want = model.config.replace(image_size=(16, 24), position_grid=None)
    assert checkpoints.load(tmp_path / "preset").config == want


@pytest.mark.parametrize("kind", ["token", "gap", "rectangle"])
def test_keras_hub_loads_a_model_without_a_head_as_a_backbone(kind, tmp_path):
    """The backbone gives the tokens after the encoder norm."""
    model = random_tiny(**{**EXACT, **MODELS[kind], "num_classes": 0})
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    image = normal(2, *model.input_shape[1:])
    hub_model = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)(image)
    assert relative_error(numpy_of(hub_model(image)), numpy_of(tokens)) <= 1e-5
    backbone = checkpoints.load(tmp_path / "preset")
    assert backbone.config == model.config


@pytest.mark.parametrize("fields", [{}, {"image_size": (24, 16), "channels": 1}])
def test_the_written_preprocessor_scales_pixels_to_minus_one_to_one(fields, tmp_path):
    """keras-hub loads the image converter alone and in its preprocessor."""
    model = random_tiny(**EXACT, **fields)
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    pixels = np.zeros((1, *model.input_shape[1:]), "uint8")
    pixels[:, ::2] = 255
    for loader in (
        keras_hub.layers.ImageConverter,
        keras_hub.models.ImageClassifierPreprocessor,
    ):
        got = np.asarray(loader.from_preset(str(tmp_path / "preset"))(pixels))
        assert got.shape == pixels.shape
        np.testing.assert_allclose(got, pixels / 127.5 - 1, atol=1e-6)


def test_both_libraries_give_the_same_logits_from_pixels(tmp_path):
    """Each prepares images of another size by its own preprocessing.

    keras_hub's runs in tf.data: Grain, which its `predict` takes if it is installed, resizes
    otherwise.
    """
    import tensorflow as tf

    model = random_tiny(**EXACT, image_size=(24, 16))
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 37, 41, 3)).astype("uint8")
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    batches = tf.data.Dataset.from_tensors(pixels).map(hub_model.preprocessor)
    hub_model.preprocessor = None
    want = hub_model.predict(next(batches.as_numpy_iterator()), verbose=0)
    got = model.predict(model.preprocessor(pixels), verbose=0)
    assert relative_error(got, want) <= 1e-5


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"classifier": "map"},
            "no place for pool/probe: keras-hub's ViT has no attention pooling",
        ),
        ({"numerics": {"gelu": "tanh"}}, "numerics.gelu='tanh', where it computes 'exact'"),
        (
            {"classifier": "gap", "numerics": {"gelu": "exact", "pool_before_norm": True}},
            "numerics.pool_before_norm=True",
        ),
        ({"qkv_bias": False}, "biases of some of query, key, value and the projection behind"),
        ({"position": "sincos2d"}, "position='sincos2d'"),
        ({"position_before_class": True}, "position_before_class=True"),
        ({"classifier": "token_unpooled"}, "a classifier other than 'token' or a mean"),
        ({"classifier": "gap", "class_token": True}, "a classifier other than 'token' or a mean"),
        ({"representation_size": 9, "num_classes": 0}, "a representation layer without a head"),
        (
            {"image_size": 17, "crop_remainder": True},
            "an image_size that patch_size does not divide",
        ),
    ],
)
def test_a_model_that_keras_hub_cannot_express_is_not_written(fields, reason, tmp_path):
    """The message gives the reason."""
    model = tiny(**{**EXACT, **fields})
    with pytest.raises(CheckpointError) as caught:
        checkpoints.save(model, tmp_path / "preset", dialect="keras_hub")
    assert reason in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_hybrid_is_not_written_even_with_lossy(tmp_path):
    """keras-hub's ViT has no ResNet stem."""
    with pytest.raises(CheckpointError, match="no place for root/conv/kernel: keras-hub has no hy"):
        checkpoints.convert(FOLDER / "hybrid_r26.npz", tmp_path / "preset", "keras_hub", lossy=True)
    assert list(tmp_path.iterdir()) == []


def test_lossy_writes_a_model_with_the_tanh_gelu(tmp_path):
    """The weights are unchanged, and keras-hub computes with the exact GELU."""
    model = random_tiny()
    checkpoints.save(model, tmp_path / "preset", dialect="keras_hub", lossy=True)
    image = normal(2, 16, 16, 3)
    hub_model = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"))
    hub_logits = numpy_of(hub_model(image))
    exact = checkpoints.load(tmp_path / "preset")
    assert exact.config == model.config.replace(**EXACT)
    assert relative_error(numpy_of(exact(image)), hub_logits) <= 1e-5
    assert relative_error(numpy_of(model(image)), hub_logits) > 3e-5


@pytest.fixture(scope="module")
def unspoilt(tmp_path_factory):
    """A classifier's preset as keras-hub writes it."""
    folder = tmp_path_factory.mktemp("unspoilt")
    random_hub_model({}, {"intermediate_dim": 9}).save_to_preset(str(folder))
    return folder


@pytest.fixture
def folder(unspoilt, tmp_path):
    """A copy of the preset `unspoilt`, which the tests damage."""
    return shutil.copytree(unspoilt, tmp_path / "preset")


def refused(folder) -> str:
    """Loads and converts a preset; returns the message, which must be the same for both."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(folder)
    with pytest.raises(CheckpointError) as again:
        checkpoints.convert(folder, folder.with_name("converted"), "google")
    assert str(again.value) == str(caught.value)
    assert str(folder) in str(caught.value)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "field", "value", "line"),
    [
        ("config.json", "hidden_dim", 24, f"misshapen: {BLOCK}_1/layer_norm_1/vars/0 is (16,)"),
        ("config.json", "mlp_dim", 33, f"misshapen: {BLOCK}/mlp/dense_1/vars/0 is (16, 32)"),
        ("config.json", "num_heads", 4, f"{BLOCK}/mha/key_dense/vars/0 is (16, 2, 8)"),
        ("config.json", "num_layers", 3, f"missing: {BLOCK}_2/mha/query_dense/vars/1, expected"),
        ("config.json", "num_layers", 1, f"unexpected: {BLOCK}_1/mlp/dense_2/vars/1 (16,)"),
        ("config.json", "patch_size", [8, 4], "patch_embedding/vars/0 is (8, 8, 3, 16)"),
        ("config.json", "image_shape", [16, 16, 1], "expected (8, 8, 1, 16)"),
        ("config.json", "image_shape", [24, 16, 3], "position_embedding/vars/0 is (5, 16)"),
        (
            "config.json",
            "use_class_token",
            False,
            "task.json has pooling='token', where use_class_token=False goes with 'gap'",
        ),
        ("config.json", "use_mlp_bias", False, f"unexpected: {BLOCK}/mlp/dense_1/vars/1 (32,)"),
        ("config.json", "hidden_dim", 15, "hidden_size=15 is not divisible by num_heads=2"),
        ("task.json", "num_classes", 6, "misshapen: task/layers/dense_1/vars/0 is (9, 5)"),
        ("task.json", "intermediate_dim", 8, "misshapen: task/layers/dense/vars/1 is (9,)"),
        ("task.json", "intermediate_dim", None, "unexpected: task/layers/dense_1/vars/1 (5,)"),
        ("task.json", "pooling", None, "task.json has pooling=None"),
    ],
)
def test_json_that_contradicts_the_weights_is_refused(file, field, value, line, folder):
    """The message names the arrays that do not fit, or the value in the JSON file."""
    edit(folder / file, **{field: value})
    assert line in refused(folder)


def test_a_class_token_that_config_json_denies_is_refused(tmp_path):
    """In a preset of a backbone alone."""
    folder = tmp_path / "preset"
    random_hub_model().save_to_preset(str(folder))
    edit(folder / "config.json", use_class_token=False)
    message = refused(folder)
    assert "2 arrays do not fit" in message
    assert "unexpected: layers/vi_t_patching_and_embedding/vars/0 (1, 1, 16)" in message
    assert "position_embedding/vars/0 is (5, 16), expected (4, 16)" in message


@pytest.mark.parametrize(
    ("backbone", "task", "reason"),
    [
        ({"use_class_token": False}, {}, "task.json has pooling='token'"),
        ({}, {"pooling": None}, "task.json has pooling=None"),
    ],
)
def test_a_hub_model_that_keras_vit_cannot_express_is_refused(backbone, task, reason, tmp_path):
    """It is not read as another model."""
    random_hub_model(backbone, task).save_to_preset(str(tmp_path / "preset"))
    assert reason in refused(tmp_path / "preset")


def test_a_preset_of_another_class_is_refused_by_its_class(folder):
    """GemmaBackbone in this case."""
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "class_name": "GemmaBackbone"}))
    assert "config.json has class_name='GemmaBackbone', expected 'ViTBackbone' or" in refused(
        folder
    )


@pytest.mark.parametrize("name", ["model.weights.h5", "task.weights.h5"])
@pytest.mark.parametrize("kept", [0, 20, 0.5, 0.99])
def test_a_cut_weights_file_is_refused_by_name(name, kept, folder):
    """Wherever it is cut."""
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else kept])
    message = refused(folder)
    assert str(folder / name) in message


def test_a_missing_task_weights_file_names_every_array_of_the_head(folder):
    """As missing arrays."""
    (folder / "task.weights.h5").unlink()
    message = refused(folder)
    assert "4 arrays do not fit" in message
    for array in ("dense/vars/0", "dense/vars/1", "dense_1/vars/0", "dense_1/vars/1"):
        assert f"missing: task/layers/{array}, expected" in message


def test_a_missing_task_json_names_the_arrays_of_the_head(folder):
    """As unexpected arrays."""
    (folder / "task.json").unlink()
    assert "unexpected: task/layers/dense_1/vars/0 (9, 5)" in refused(folder)


def test_a_preset_without_both_json_files_is_refused(folder):
    """Without them the layer of the head is unknown, and it is not guessed."""
    (folder / "config.json").unlink()
    (folder / "task.json").unlink()
    message = refused(folder)
    assert "config.json and task.json, which name the layer of the head, are missing" in message


def test_a_preset_without_model_weights_is_refused(folder):
    """The weights of a head alone are no checkpoint."""
    (folder / "model.weights.h5").unlink()
    assert "expected one file of weights" in refused(folder)


def test_bfloat16_presets_are_read_and_written_bit_for_bit(tmp_path):
    """HDF5 has no bfloat16, so Keras marks the arrays by an attribute."""
    folder, converted = tmp_path / "preset", tmp_path / "converted"
    random_hub_model({"dtype": "bfloat16", "num_layers": 1}, {}).save_to_preset(str(folder))
    arrays = stored(folder)
    assert {array.dtype.str for array in arrays.values()} == {"|V2"}
    kernel = numpy_of(checkpoints.load(folder).get_layer("head").kernel)
    want = arrays["task.weights.h5/layers/dense/vars/0"].view(ml_dtypes.bfloat16)
    assert np.array_equal(kernel, want.astype("float32"))
    checkpoints.convert(folder, converted, "keras_hub")
    assert_same_arrays(folder, converted)
    image = normal(2, 16, 16, 3)
    left, right = (
        numpy_of(keras_hub.models.ImageClassifier.from_preset(str(path))(image))
        for path in (folder, converted)
    )
    assert np.array_equal(left, right)
