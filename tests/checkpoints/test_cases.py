"""The laws of the comparisons with other libraries, over the rows of `cases`."""

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.adapt import resize_positions
from keras_vit.errors import CheckpointError, ConfigError
from tests import golden
from tests.checkpoints.cases import CASES, GOLDENS
from tests.checkpoints.files import assert_comes_back, refused
from tests.checkpoints.references import differences, load_again, refer, said
from tests.processes import python
from tests.runs import sample

pytestmark = pytest.mark.usefixtures("offline", "blank_models", "full_compilation")

FEW = sample(
    [str(case) for case in GOLDENS],
    *("bv_bf16", "bv_resize_down", "bv_scan_map_rep", "bv_sincos_rep"),
    *("hf_classifier_rectangle", "hf_classifier_tanh", "hybrid_r50_resize", "hybrid_r_ti_61x63"),
    *("kh_gap", "timm_avg_no_class", "timm_map", "timm_no_qkv_bias", "timm_r26_45x45"),
    *("vit_one_channel", "vit_patch_8x4", "vit_rep", "vit_token_unpooled", "vit_unpooled"),
    *("hf_clip_two_towers", "hf_deit_teacher", "hf_dinov2_reg_classifier", "hf_dinov2_swiglu"),
    *("hf_dinov3_rect", "hf_mae_pretraining", "hf_siglip2_naflex", "kh_dinov3_gated_rect"),
    *("timm_aimv2", "timm_avg_no_norm_rect", "timm_beit3", "timm_eva02_base_rect"),
    *("timm_pe_core", "timm_pe_spatial_rect", "timm_radio", "timm_reg4_map"),
    *("timm_rope_ape_rect", "timm_rope_mixed", "timm_beit", "timm_beit_rect", "timm_beit_shared"),
    *("hf_data2vec_model", "hf_deit_teacher num_classes=0"),
    *(f"{name} image_size=(None, None)" for name in ("vit_resize_up", "hf_classifier")),
    *(f"{name} image_size=(None, None)" for name in ("vit_resize_down", "hybrid_r50_resize")),
)
"""On JAX and TensorFlow: every library, classifier, stem and switch of the families once or twice.

Files are read by NumPy on every backend; the other cases differ in what is read.
"""


def with_runs(case):
    """A row with the marks of its runs: goldens on every backend, libraries on their own."""
    marks = [pytest.mark.on_backend("tensorflow")] if case.library == "keras_hub" else []
    if case.library == "golden" and str(case) in FEW:
        marks = [pytest.mark.every_backend, pytest.mark.openvino]
    return pytest.param(case, marks=marks)


COMPUTED = [case for case in CASES if not case.refused]
WRITTEN = [case for case in COMPUTED if case.is_written]
OBLONG = ({"image_size": (16, 32)}, {"patch_size": (4, 8)})
REFUSED = [case for case in CASES if case.refused]


@pytest.mark.parametrize("case", map(with_runs, COMPUTED), ids=str)
def test_outputs_are_those_of_the_library_and_info_says_so(case, tmp_path):
    """Every stage, at every image size; of a whole model, its tower."""
    reference = refer(case, tmp_path)
    for reading in reference.readings:
        errors = differences(reading)
        assert {s: e for s, e in errors.items() if not e <= case.limit(s)} == {}
        assert errors.keys() & {"logits", "pre_logits", "image_embeds", "encoded"} or case.tokens
        assert "logits" in errors or "logits" not in reading.want
        assert said(reading, reference.facts) == reference.facts
    if case.part:
        refused(tmp_path, "for the vision tower", ask=keras_vit.verify)
    elif case.library == "transformers" and not case.part:
        assert keras_vit.verify(tmp_path).passed


@pytest.mark.parametrize("case", WRITTEN, ids=str)
def test_what_we_write_has_the_arrays_that_we_read_and_the_library_loads_it(case, tmp_path):
    """Bit for bit; the library computes what it computed of its own file.

    Images and patches that are not square are written likewise, or refused.
    """
    pytest.importorskip("tests.live")
    (tmp_path / "theirs").mkdir()
    reference = refer(case, tmp_path / "theirs")
    path, fields, images, want = reference.readings[0]
    model = VisionTransformer.from_preset(path, **(fields if case.library == "golden" else {}))
    assert_comes_back(path, tmp_path, model)
    assert VisionTransformer.from_preset(tmp_path / "x").preprocessor == model.preprocessor
    for again in load_again(tmp_path / "x", model) if reference.compute else ():
        assert case.library != "transformers" or type(again) is type(reference.module)
        for name, value in reference.compute(again, images).items():
            assert golden.relative_error(value, want[name]) <= 1e-6
    for change in OBLONG if case.library == "transformers" else ():  # which few classes have
        try:
            other = VisionTransformer(model.config.replace(position_grid=None, **change))
            checkpoints.save(other, tmp_path / str(change), reference.facts["family"])
        except (CheckpointError, ConfigError):
            assert not (tmp_path / str(change)).exists()
        else:
            assert [*load_again(tmp_path / str(change), other)]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_we_do_not_compute_is_refused_by_its_key(case, tmp_path):
    for reading in refer(case, tmp_path).readings:
        refused(reading.path, *case.refused, **reading.fields)


with np.load(golden.FOLDER / "position_resize.expected.npz") as file:
    POSITIONS = dict(file)


@pytest.mark.parametrize("key", [key for key in POSITIONS if "_to" in key])
def test_resized_positions_equal_the_reference(key):
    """`interpolate_posembed` of vit_jax, up and down, with and without a class position."""
    start, _, side = key.partition("_to")
    table, want, side = POSITIONS[start], POSITIONS[key], int(side)
    prefix = want.shape[1] - side * side
    source = round((table.shape[1] - prefix) ** 0.5)
    found = resize_positions(table, (source, source), (side, side), prefix)
    assert golden.relative_error(found, want) <= 1e-6


@pytest.mark.nightly
@pytest.mark.on_backend("tensorflow")
def test_numbers_of_tensorflow_hold_with_onednn():
    """TensorFlow reads the variable when it is imported, and leaves oneDNN off on some CPUs."""
    names = "[vit_rep] or [hf_classifier_tanh] or [hybrid_r50_resize] or [timm_map]"
    code = "import pytest, sys; sys.exit(pytest.main(['-s', *sys.argv[1:]]))"
    run = python(code, __file__, "-k", names, TF_ENABLE_ONEDNN_OPTS="1", TF_CPP_MIN_LOG_LEVEL="0")
    assert run.returncode == 0, run.stdout
    assert "oneDNN custom operations are on" in run.stderr
