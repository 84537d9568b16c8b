"""Models loaded from files of other implementations give the outputs of these implementations."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.explanation import attention_maps
from tests import family_goldens, golden
from tests.golden import CASES, FOLDER, expected, load_case, relative_error
from tests.helpers import random_tiny, to_numpy
from tests.processes import python
from tests.runs import sample

pytestmark = [
    pytest.mark.every_backend,
    pytest.mark.openvino,
    pytest.mark.usefixtures("full_compilation"),
]

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
OF_FAMILIES = sample(
    family_goldens.CASES,
    *("hf_clip_two_towers", "hf_deit_teacher", "hf_dinov2_reg_classifier", "hf_dinov2_swiglu"),
    *("hf_dinov3_rect", "hf_mae_pretraining", "hf_siglip2_naflex", "kh_dinov3_gated_rect"),
    *("timm_aimv2", "timm_avg_no_norm_rect", "timm_beit3", "timm_eva02_base_rect"),
    *("timm_pe_core", "timm_pe_spatial_rect", "timm_radio", "timm_reg4_map"),
    *("timm_rope_ape_rect", "timm_rope_mixed", "timm_beit", "timm_beit_rect", "timm_beit_shared"),
    "hf_data2vec_model",
)
"""On JAX and TensorFlow: every switch of the families, in the richest form."""


@pytest.mark.parametrize(
    ("goldens", "name"),
    [*((golden, name) for name in NAMES), *((family_goldens, name) for name in OF_FAMILIES)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_stage_equals_the_library(goldens, name):
    """At every image size, within the case's tolerance relative to the largest value."""
    case, want = goldens.CASES[name], goldens.expected(name)
    errors = {}
    sizes = [n.removeprefix("image") for n in want if n.startswith("image") and "embeds" not in n]
    for suffix in sizes:
        given = {"image_size": want[f"image{suffix}"].shape[1:3]} if suffix else {}
        model = goldens.load_case(name, **given)
        stages = [n.removesuffix(suffix) for n in want if n.endswith(suffix)]
        for stage, value in goldens.outputs(model, want[f"image{suffix}"], stages).items():
            channels = want[stage + suffix].shape[-1]  # a stem's stages have the first channels
            errors[stage + suffix] = relative_error(value[..., :channels], want[stage + suffix])
    assert set(errors) & {"logits", "pre_logits", "image_embeds", "encoded"}
    assert "logits" in errors or "logits" not in want
    limits = {
        s: case["tolerance" if s.startswith(family_goldens.OF_THE_HEAD) else "tolerance_tokens"]
        for s in errors
    }
    assert {s: e for s, e in errors.items() if not e <= limits[s]} == {}


def test_a_distilled_model_without_heads_returns_the_mean_of_two_tokens():
    """The mean of class and distillation token is timm's pre_logits of DeiT."""
    want = family_goldens.expected("hf_deit_teacher")
    model = family_goldens.load_case("hf_deit_teacher", num_classes=0)
    assert relative_error(model.predict(want["image"], verbose=0), want["pre_logits"]) <= 1e-5


@pytest.mark.on_backend("tensorflow")
def test_numbers_of_tensorflow_hold_with_onednn():
    """TensorFlow reads the variable when it is imported, and leaves oneDNN off on some CPUs."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("OpenVINO runs this file too")
    code = (
        "import sys; from tests import golden; from tests.checkpoints import test_parity\n"
        "for name in sys.argv[1:]:\n"
        "    test_parity.test_every_stage_equals_the_library(golden, name)"
    )
    names = ("vit_rep", "hf_classifier_tanh", "hybrid_r50_resize", "timm_map")
    run = python(code, *names, TF_ENABLE_ONEDNN_OPTS="1", TF_CPP_MIN_LOG_LEVEL="0")
    assert run.returncode == 0, run.stderr
    assert "oneDNN custom operations are on" in run.stderr


def test_families_declare_the_arithmetic_of_their_references():
    """The goldens record the arithmetic of the reference."""
    gelus = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}
    words = {
        "gelu": lambda c: gelus[c.block.activation],
        "ln_eps": lambda c: c.block.epsilon,
        "pool_after_norm": lambda c: c.pool.norm == "before",
    }
    for name, case in CASES.items():
        size = tuple(case["config"]["image_size"])
        config = keras_vit.info(FOLDER / case["checkpoint"], image_size=size).config
        for word, read in words.items():
            if word in case["config"]["numerics"]:
                assert read(config) == case["config"]["numerics"][word], (name, word)


def read_positions(model):
    return to_numpy(model.get_layer("position_embedding").embedding)


@pytest.mark.parametrize("name", [n for n in NAMES if "attention_00" in expected(n)])
def test_attention_weights_equal_the_reference(name):
    """`attention_maps` against the softmax weights of the reference."""
    want = expected(name)
    stages = {f"block_{int(key[-2:])}/attention": want[key] for key in want if "attention_" in key}
    got = attention_maps(load_case(name), want["image"], tuple(stages), prepared=True)
    for stage, value in stages.items():
        assert relative_error(got[stage], value) <= CASES[name]["tolerance_tokens"]


with np.load(FOLDER / "position_resize.expected.npz") as file:
    POSITIONS = dict(file)


@pytest.mark.parametrize("key", [key for key in POSITIONS if "_to" in key])
def test_resized_positions_equal_the_reference(key, tmp_path):
    """`interpolate_posembed` of vit_jax to 1e-6, up and down, with and without a class position."""
    start, _, side = key.partition("_to")
    stored, want, side = POSITIONS[start], POSITIONS[key], int(side)
    has_token = want.shape[1] != side * side
    source = round((stored.shape[1] - has_token) ** 0.5)
    parts = {} if has_token else {"tokens": {"class_tokens": 0}, "pool": {"kind": "gap"}}
    sizes = {"patch_size": 2, "hidden_size": stored.shape[-1], "num_heads": 1, **parts}
    model = random_tiny(image_size=2 * source, **sizes)
    model.get_layer("position_embedding").embedding.assign(stored)
    checkpoints.save(model, tmp_path / "x.npz")
    resized = VisionTransformer.from_preset(tmp_path / "x.npz", image_size=2 * side, num_heads=1)
    assert relative_error(read_positions(resized), want) <= 1e-6


def test_positions_are_resized_as_by_transformers():
    """Bicubic, as `interpolate_pos_encoding`, on loading."""
    got = read_positions(load_case("hf_classifier", image_size=24))
    assert relative_error(got, expected("hf_classifier")["pos_embedding_24x24"]) <= 1e-6


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        *(("vit_resize_up", ""), ("vit_resize_down", ""), ("hybrid_r50_resize", "")),
        ("hf_classifier", "_24x24"),
    ],
)
def test_resizing_in_the_graph_equals_the_reference(name, suffix):
    """A model of any image size resizes its positions per call, to the same logits."""
    want = expected(name)
    model = load_case(name, image_size=(None, None))
    logits = model.predict(want["image" + suffix], verbose=0)
    assert relative_error(logits, want["logits" + suffix]) <= CASES[name]["tolerance"]
