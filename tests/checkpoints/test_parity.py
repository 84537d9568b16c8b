"""Models loaded from files of the reference implementations give the outputs of the references."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.adapt import resize_positions
from keras_vit.config.stem import ARITHMETIC
from keras_vit.explanation import attention_maps
from tests.golden import CASES, FOLDER, expected, load_case, outputs, relative_error
from tests.processes import python
from tests.thorough import sample

pytestmark = pytest.mark.usefixtures("full_compilation")

HEAD = ("logits", "pre_logits")
NAMES = sample(
    CASES,
    *("bv_bf16", "bv_resize_down", "bv_scan_map_rep", "bv_sincos_rep"),
    *("hf_classifier_rectangle", "hf_classifier_tanh", "hybrid_r50_resize", "hybrid_r_ti_61x63"),
    *("kh_gap", "timm_avg_no_class", "timm_map", "timm_no_qkv_bias", "timm_r26_45x45"),
    *("vit_one_channel", "vit_patch_8x4", "vit_rep", "vit_token_unpooled", "vit_unpooled"),
)
"""On JAX and TensorFlow: every library, classifier, stem and form of arithmetic once or twice.

Files are read by NumPy on every backend; the other cases differ in what is read.
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_equals_the_reference(name, record_property):
    """Within the case's tolerance relative to the largest value of the stage."""
    case, want = CASES[name], expected(name)
    image = want.pop("image")
    got = outputs(load_case(name), image, want)
    assert set(got) & {"pre_logits", "encoded", "logits"}
    assert ("logits" in got) == ("logits" in want)
    errors = {}
    for stage, value in got.items():
        channels = want[stage].shape[-1]  # of a stem's stages, only the first channels are stored
        errors[stage] = relative_error(value[..., :channels], want[stage])
    record_property("errors", errors)
    limits = {s: case["tolerance" if s in HEAD else "tolerance_tokens"] for s in errors}
    assert {s: e for s, e in errors.items() if not e <= limits[s]} == {}


@pytest.mark.on_one_backend("tensorflow")
def test_numbers_of_tensorflow_hold_with_onednn():
    """TensorFlow reads the variable when it is imported, and leaves oneDNN off on some CPUs."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("OpenVINO runs this file too")
    code = (
        "import sys; from tests.checkpoints import test_parity\n"
        "for name in sys.argv[1:]:\n"
        "    test_parity.test_every_stage_equals_the_reference(name, lambda *facts: None)"
    )
    names = ("vit_rep", "hf_classifier_tanh", "hybrid_r50_resize", "timm_map")
    on = {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    run = python(code, *names, **on)
    assert run.returncode == 0, run.stderr
    assert "oneDNN custom operations are on" in run.stderr


def test_dialects_declare_the_arithmetic_of_their_references():
    """The goldens record the arithmetic of the reference."""
    gelus = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}
    words = {
        "gelu": lambda c: gelus[c.block.activation],
        "ln_eps": lambda c: c.block.epsilon,
        "gn_eps": lambda c: ARITHMETIC[c.stem.kind].norm_epsilon,
        "std_eps": lambda c: ARITHMETIC[c.stem.kind].epsilon,
        "std_form": lambda c: "sqrt" if ARITHMETIC[c.stem.kind].takes_root_of_sum else "plus",
        "pool_after_norm": lambda c: c.pool.norm == "before",
    }
    for name, case in CASES.items():
        size = tuple(case["config"]["image_size"])
        config = keras_vit.info(FOLDER / case["checkpoint"], image_size=size).config
        for word, read in words.items():
            of_stem = word.startswith(("gn_", "std_"))
            if word in case["config"]["numerics"] and (config.stem.is_resnet or not of_stem):
                assert read(config) == case["config"]["numerics"][word], (name, word)


def test_positions_are_resized_as_by_transformers():
    """Bicubic, as `interpolate_pos_encoding`, on loading and in the graph."""
    want = expected("hf_classifier")
    model = load_case("hf_classifier", image_size=24)
    got = keras.ops.convert_to_numpy(model.get_layer("position_embedding").embedding)
    assert relative_error(got, want["pos_embedding_24x24"]) <= 1e-6
    logits = model.predict(want["image_24x24"], verbose=0)
    assert relative_error(logits, want["logits_24x24"]) <= 1e-5
    any_size = load_case("hf_classifier", image_size=(None, None))
    logits = any_size.predict(want["image_24x24"], verbose=0)
    assert relative_error(logits, want["logits_24x24"]) <= 1e-5


@pytest.mark.parametrize("name", [n for n in NAMES if "attention_00" in expected(n)])
def test_attention_weights_equal_the_reference(name):
    """`attention_maps` against the softmax weights of the reference."""
    want = expected(name)
    stages = {
        f"block_{int(key[-2:])}/attention": value
        for key, value in want.items()
        if key.startswith("attention_")
    }
    got = attention_maps(load_case(name), want["image"], tuple(stages), prepared=True)
    for stage, value in stages.items():
        assert relative_error(got[stage], value) <= CASES[name]["tolerance_tokens"]


def _resizes():
    with np.load(FOLDER / "position_resize.expected.npz") as file:
        arrays = dict(file)
    return [
        pytest.param(arrays[key.split("_to")[0]], arrays[key], int(key.split("_to")[1]), id=key)
        for key in arrays
        if "_to" in key
    ]


@pytest.mark.parametrize(("stored", "want", "side"), _resizes())
def test_resized_positions_equal_the_reference(stored, want, side):
    """`interpolate_posembed` of vit_jax to 1e-6, up and down, with and without a class position."""
    class_position = want.shape[1] != side * side
    source = round((stored.shape[1] - class_position) ** 0.5)
    got = resize_positions(stored, (source, source), (side, side), class_position)
    assert relative_error(got, want) <= 1e-6


@pytest.mark.parametrize("name", ["vit_resize_up", "vit_resize_down", "hybrid_r50_resize"])
def test_resizing_in_the_graph_equals_the_reference(name):
    """A model of any image size resizes its positions per call, to the same logits."""
    want = expected(name)
    model = load_case(name, image_size=(None, None))
    logits = model.predict(want["image"], verbose=0)
    assert relative_error(logits, want["logits"]) <= CASES[name]["tolerance"]
