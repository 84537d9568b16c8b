"""Every format holds every kind of model, or refuses it in a sentence; its program is run.

The suite exports a few cells of every format in its own backend; `make test-thorough` exports all
cells under each backend.
"""

import importlib.util
import sys
from typing import get_args

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.cli.products import Format
from keras_vit.errors import ExportError
from keras_vit.exporting import FORMATS, verification
from keras_vit.exporting.formats import load_format
from keras_vit.models import inference
from tests.helpers import assert_close, copy_weights, random_tiny
from tests.plain import HYBRID
from tests.runs import THOROUGH

pytestmark = pytest.mark.every_backend

BACKEND = keras.backend.backend()
TINY = {"image_size": 32, "hidden_size": 32, "mlp_dim": 64, "num_layers": 2, "num_classes": 10}
ANY_SIZE = {"image_size": None, "position_grid": (4, 4)}
DINOV2 = {"tokens": {"registers": 2}, "block": {"layer_scale": 1e-5}}
SWIGLU = {"layer_scale": 1e-5, "gated": True, "activation": "silu"}
DINOV3 = {**DINOV2, "position": "none", "rope": {"form": "dinov3"}, "block": SWIGLU}
TWO_HEADS = {"pool": {"kind": "token_and_distillation"}, "tokens": {"distillation": True}}
CLIP = {"input_norm": "tokens", "activation": "quick_gelu"}
LINEAR = {"stages": (0, 1)}
DPT = {"kind": "dpt", "stages": (0, 1, 2, 3), "widths": (4,) * 4, "fusion_size": 8}
DEPTH = {"num_classes": 1, **ANY_SIZE}
KINDS = {
    "plain": {},
    "gap": {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}},
    "map": {"pool": {"kind": "map"}, "tokens": {"class_tokens": 0}},
    "hybrid": HYBRID,
    "any size": ANY_SIZE,
    "any size, hybrid": {**HYBRID, **ANY_SIZE, "position_grid": (2, 2)},
    "registers (DINOv2)": DINOV2,
    "rotary, SwiGLU (DINOv3)": DINOV3,
    "any size, rotary, SwiGLU": {**DINOV3, **ANY_SIZE},
    "two heads (DeiT)": TWO_HEADS,
    "quick GELU (CLIP)": {"block": CLIP, "patch_bias": False},
    "relative bias (BEiT)": {"relative_position_bias": "block"},
    "head of two blocks": {"pool": {"kind": "token_and_mean", "blocks": 2}},
    "remat": {"remat": True},
    "channels_first": {"data_format": "channels_first"},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
    "8 bits": {},
    # 4 columns of pixels fill no patch.
    "linear map": {"dense": LINEAR, "image_size": (32, 44), "class_names": [*"abcdefghij"]},
    "any size, linear depth": {"dense": {**LINEAR, "output": "sigmoid"}, **DEPTH},
    "any size, DPT depth": {"dense": {**DPT, "output": "relu"}, "num_layers": 4, **DEPTH},
}
INT8, FLOAT16 = {"precision": "int8"}, {"precision": "float16"}
PREPARED = {"preprocessing": False}
CELLS = {
    "torch": [
        ("torch", "quick GELU (CLIP)", {}),
        ("torch", "any size, rotary, SwiGLU", {"batch": 2, "outputs": "features"}),
        ("onnx", "map", INT8),
        ("onnx", "relative bias (BEiT)", {}),
        ("onnx", "head of two blocks", {**FLOAT16, **PREPARED}),
        ("onnx", "8 bits", PREPARED),
        ("openvino", "hybrid", FLOAT16),
        ("openvino", "any size", {**INT8, **PREPARED}),
        ("onnx", "linear map", {}),
        ("openvino", "any size, linear depth", {}),
    ],
    "jax": [pytest.param("torch", "map", PREPARED, marks=pytest.mark.nightly)],
    "tensorflow": [
        ("saved_model", "any size", {"batch": 2, "outputs": "features"}),
        ("saved_model", "8 bits", PREPARED),
        ("litert", "channels_first", {}),
        ("litert", "map", INT8),
        ("litert", "linear map", PREPARED),
    ],
}
EVERY_CELL = [(form, kind, {}) for form in FORMATS for kind in KINDS] if THOROUGH else []
LIMITS = {"float32": 1e-5, "float16": 0.01, "int8": 0.1}


def test_each_format_has_a_cell_of_the_sample_and_is_known_to_the_command():
    """Without a cell, the quick suite would not export a new format."""
    assert get_args(Format) == FORMATS
    assert {form for name in ("torch", "tensorflow") for form, *_ in CELLS[name]} == set(FORMATS)


def make(kind, **fields):
    model = random_tiny(**{**TINY, **KINDS[kind], **fields})
    if kind == "8 bits":
        model.quantize("int8")
    return model


def run_program(folder, photo, monkeypatch):
    """The outputs of the program in a README, which runs without keras_vit, for a photo."""
    Image.fromarray(photo).save(folder / "photo.png")
    text = folder.joinpath("README.md").read_text().split("```python\n")[1].split("```")[0]
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(sys.modules, "keras_vit", None)
        names = {}
        exec(text.replace("photo.jpg", "photo.png"), names)
    return names["outputs"]


@pytest.mark.filterwarnings("ignore")  # of converters
@pytest.mark.parametrize(("format", "kind", "options"), [*CELLS[BACKEND], *EVERY_CELL], ids=str)
def test_what_runs_without_keras_vit_answers_as_the_model(
    tmp_path, format, kind, options, monkeypatch
):
    """On an image of the comparison, as near as the README states; any size at three sizes."""
    form, folder = load_format(format), tmp_path / "model"
    for module in {**form.writes, **form.reads}:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    model = make(kind)
    try:
        exported = keras_vit.export(model, folder, format, **{"outputs": "logits", **options})
    except ExportError as refusal:
        assert "any size" in kind, refusal
        return
    compared = exported.verification
    assert f"{compared.difference:.1e}" in (folder / "README.md").read_text()
    limit = (
        verification.ROUNDED if kind == "8 bits" else LIMITS[options.get("precision", "float32")]
    )
    assert compared.difference <= limit
    if kind.startswith("any size"):
        assert len({shape[1:] for shape, _ in compared.runs}) == 3
    shape, difference = compared.runs[0]
    assert shape[0] == options.get("batch", 1)
    if kind == "mixed_bfloat16":
        assert "mixed_bfloat16 became float32" in exported.notes[0]
        model = copy_weights(model, make(kind, dtype="float32"))
    photo = np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)[0]
    stage = "pre_logits" if options.get("outputs") == "features" else "logits"
    images = model.preprocessor(np.repeat(photo[None], shape[0], axis=0))
    expected = inference.run(model, images, [stage])[stage]
    # XLA rounds otherwise than torch, which runs what is written on JAX.
    least = 2e-6 if BACKEND == "jax" else 1e-6
    tolerance = limit if kind == "8 bits" else max(2 * difference, least)
    assert_close(run_program(folder, photo, monkeypatch), expected, tolerance)
