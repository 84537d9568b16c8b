"""Every format holds every kind of model, or refuses it in a sentence; the result is compared.

The suite exports a cell of every format in its own backend, and one on JAX, which torch writes;
`make test-thorough` exports all cells under each backend.
"""

import importlib.util

import keras
import pytest

import keras_vit
from keras_vit.errors import ExportError
from keras_vit.exporting import FORMATS
from keras_vit.exporting.formats import load_format
from tests.helpers import random_tiny
from tests.plain import HYBRID
from tests.runs import THOROUGH

pytestmark = pytest.mark.every_backend

BACKEND = keras.backend.backend()
TINY = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "mlp_dim": 64,
    "num_heads": 2,
    "num_layers": 2,
    "num_classes": 10,
}
ANY_SIZE = {"image_size": None, "position_grid": (4, 4)}
DINOV2 = {"tokens": {"registers": 2}, "block": {"layer_scale": 1e-5}}
SWIGLU = {"layer_scale": 1e-5, "gated": True, "activation": "silu"}
DINOV3 = {**DINOV2, "position": "none", "rope": {"form": "dinov3"}, "block": SWIGLU}
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
    "two heads (DeiT)": {
        "pool": {"kind": "token_and_distillation"},
        "tokens": {"distillation": True},
    },
    "quick GELU (CLIP)": {
        "block": {"input_norm": "tokens", "activation": "quick_gelu"},
        "patch_bias": False,
    },
    "relative bias (BEiT)": {"relative_position_bias": "block"},
    "head of two blocks": {"pool": {"kind": "token_and_mean", "blocks": 2}},
    "remat": {"remat": True},
    "channels_first": {"data_format": "channels_first"},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
}
SAMPLE = {
    "torch": [
        ("torch", "quick GELU (CLIP)"),
        ("onnx", "map"),
        ("onnx", "relative bias (BEiT)"),
        ("onnx", "head of two blocks"),
        ("openvino", "hybrid"),
        ("torch", "any size, rotary, SwiGLU"),
    ],
    "jax": [("torch", "any size, hybrid")],
    "tensorflow": [("saved_model", "remat"), ("litert", "channels_first")],
}
CELLS = [(form, kind) for form in FORMATS for kind in KINDS] if THOROUGH else SAMPLE[BACKEND]


def test_each_format_has_a_cell_of_the_sample():
    """Without a cell, the quick suite would not export a new format."""
    assert {form for cells in SAMPLE.values() for form, _ in cells} == set(FORMATS)


@pytest.mark.filterwarnings("ignore")  # of converters
@pytest.mark.parametrize(("format", "kind"), CELLS)
def test_an_artefact_answers_as_the_model_or_is_refused(tmp_path, format, kind):
    """A model of any size is compared at three sizes."""
    form = load_format(format)
    for module in {**form.writes, **form.reads}:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    model = random_tiny(**{**TINY, **KINDS[kind]})
    try:
        exported = keras_vit.export(model, tmp_path / "model", format, outputs="logits")
    except ExportError as refusal:
        assert "any size" in kind, refusal
        return
    assert exported.verification.difference <= 1e-5
    if kind.startswith("any size"):
        assert len({shape[1:] for shape, _ in exported.verification.runs}) == 3
