"""Weights in several files with an index, as transformers writes them."""

import json
from pathlib import Path

from safetensors.numpy import load_file, save_file

INDEX = "model.safetensors.index.json"


def split(folder: Path) -> dict[str, str]:
    """Splits the weights of a folder into two files; returns the file of each array."""
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places: dict[str, str] = {}
    for k in range(2):
        part = dict(sorted(arrays.items())[k::2])
        name = f"model-{k + 1:05}-of-00002.safetensors"
        save_file(part, folder / name, {"format": "pt"})
        places |= dict.fromkeys(part, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return places
