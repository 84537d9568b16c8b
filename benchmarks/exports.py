"""Which model each format holds, and how near: the table of docs/export.md.

    KERAS_BACKEND=torch python -m benchmarks.exports onnx openvino torch

A cell is the largest difference from the model in the format's own runtime, of the largest output,
or the sentence of refusal. Models have two blocks of width 32 and random weights.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import KerasViTError

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
KINDS = {
    "plain": {},
    "gap": {"classifier": "gap"},
    "map": {"classifier": "map"},
    "hybrid": {"resnet": {"num_layers": (1,), "width_factor": 0.5}, "patch_size": 2},
    "any size": ANY_SIZE,
    "any size, rotary, SwiGLU": {
        **ANY_SIZE,
        "position": "none",
        "rope": {"form": "dinov3"},
        "mlp": "gated",
        "num_registers": 2,
        "layer_scale": True,
    },
    "channels first": {"data_format": "channels_first"},
    "remat": {"remat": True},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
}


def model_of(kind: str) -> VisionTransformer:
    """A small model of one row, whose random weights hide nothing."""
    model = VisionTransformer(**{**TINY, **KINDS[kind]})
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(0.2 * rng.standard_normal(weight.shape) + (weight.name == "gamma"))
    return model


def cell(kind: str, format: str) -> str:
    """The difference, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = keras_vit.export(model_of(kind), Path(folder) / "model", format).verification
        except KerasViTError as error:
            return str(error)
    return "not compared" if found is None else f"{found.difference:.0e}"


def main() -> None:
    """Prints a row of the table per kind of model and format."""
    for format in sys.argv[1:]:
        for kind in KINDS:
            print(f"{format} | {kind} | {cell(kind, format)}", flush=True)


if __name__ == "__main__":
    main()
