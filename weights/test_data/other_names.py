"""Writes cases of `tests/data/families/other_names.json`: known arrays under the names of others.

    python -m weights.test_data.other_names

Facebook's own files of DINOv2, DINO, DeiT III and MAE, once they are safetensors, have the arrays
of transformers' and timm's cases under the names of Facebook's code. torchvision named its MLP's
layers otherwise before 0.13, and may put a layer before its head, for which torchvision is run.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests import torchvision_shim  # noqa: F401

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "families"
OF_TRANSFORMERS = (
    (r"^vit\.|^decoder\.", ""),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.", ""),
    (r"^encoder\.layer\.", "blocks."),
    (r"attention\.output\.dense", "attn.proj"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(?<!attn\.)output\.dense", "mlp.fc2"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"weights_in", "w12"),
    (r"weights_out", "w3"),
    (r"^layernorm", "norm"),
)
"""Names of transformers -> names of Facebook's code, but for query, key and value."""

Arrays = dict[str, np.ndarray]
CASES = {
    "px_facebook_dinov2": ("hf_dinov2_model", {}),
    "px_facebook_dinov2_swiglu": ("hf_dinov2_reg_swiglu", {}),
    "px_facebook_mae": ("hf_mae_pretraining", {}),
    "px_facebook_dino": ("hf_msn_model", {}),
    "px_facebook_deit3": ("timm_deit3_rect", {"read": {"family": "facebook"}}),
    "px_torchvision_before_0_13": ("px_torchvision", {}),
    "px_torchvision_representation": ("px_torchvision", {}),
}
"""New case -> the case that it comes from, and arguments besides the size and the heads."""


def as_facebook(arrays: Arrays) -> Arrays:
    """The arrays of a case of transformers by Facebook's names; query, key and value are one."""
    found = {}
    for name, array in arrays.items():
        for pattern, word in OF_TRANSFORMERS:
            name = re.sub(pattern, word, name)  # noqa: PLW2901
        found[name] = array
    for query in [name for name in found if ".attention.attention.query." in name]:
        parts = [found.pop(query.replace(".query.", f".{q}.")) for q in ("query", "key", "value")]
        found[query.replace("attention.attention.query", "attn.qkv")] = np.concatenate(parts)
    return found


def run_torchvision(image: np.ndarray) -> tuple[Arrays, np.ndarray]:
    """The arrays and the logits of a model with a layer before its head."""
    import torch
    from torchvision.models import VisionTransformer  # type: ignore[import-not-found]

    torch.manual_seed(0)
    sizes = {"image_size": 16, "patch_size": 4, "num_layers": 2, "num_heads": 3, "hidden_dim": 24}
    model = VisionTransformer(**sizes, mlp_dim=32, num_classes=5, representation_size=9).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
        logits = model(torch.tensor(image.transpose(0, 3, 1, 2))).numpy()
    return {name: array.numpy() for name, array in model.state_dict().items()}, logits


def main() -> None:
    """Writes every case, and its row."""
    rows = {
        case["name"]: case
        for file in FOLDER.glob("*.json")
        for case in json.loads(file.read_text())["cases"]
    }
    own = json.loads((FOLDER / "other_names.json").read_text())
    own["cases"] = [case for case in own["cases"] if case["name"] not in CASES]
    for name, (source, arguments) in CASES.items():
        place = FOLDER / rows[source]["checkpoint"]
        arrays = load_file(place / "model.safetensors" if place.is_dir() else place)
        row: dict[str, Any] = {**rows[source], "name": name, "layout": "torch"}
        if name.startswith("px_facebook"):
            epsilon = row["config"]["numerics"]["ln_eps"]
            arguments = {"block": {"epsilon": epsilon}, **arguments}  # noqa: PLW2901
            arrays = as_facebook(arrays)
        if name == "px_facebook_deit3":
            arrays = {re.sub(r"ls(\d)\.gamma", r"gamma_\1", n): a for n, a in arrays.items()}
            arguments["image_size"] = row["config"]["image_size"]
        if name == "px_torchvision_before_0_13":
            for new, old in (("mlp.0", "mlp.linear_1"), ("mlp.3", "mlp.linear_2")):
                arrays = {n.replace(new, old): array for n, array in arrays.items()}
        if name == "px_torchvision_representation":
            image = np.load(FOLDER / row["expected"])["image"]
            arrays, logits = run_torchvision(image)
            row["expected"] = f"{name}.expected.npz"
            row["config"] = {**row["config"], "mlp_dim": 32, "representation_size": 9}
            np.savez_compressed(FOLDER / row["expected"], image=image, logits=logits)
        row["checkpoint"] = f"{name}.safetensors"
        row["load_with"] = {"num_heads": row["config"]["num_heads"], **arguments}
        save_file(arrays, FOLDER / row["checkpoint"])
        own["cases"].append(row)
    (FOLDER / "other_names.json").write_text(json.dumps(own, indent=1) + "\n")


if __name__ == "__main__":
    main()
