"""Good inputs, from which the campaigns begin: a small model in every dialect, and images."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.checkpoints import convert
from keras_vit.checkpoints.containers import open_arrays

CHECKPOINTS = Path(__file__).parents[1] / "data" / "golden"

IMAGES = {"png": "PNG", "jpg": "JPEG", "bmp": "BMP", "gif": "GIF", "webp": "WEBP", "tif": "TIFF"}
_NPZ = ("google", "google_linen", "big_vision", "big_vision_scan")
FAMILIES = {
    "clip": "hf_clip_two_towers",
    "deit": "hf_deit_teacher",
    "dinov2": "hf_dinov2_reg_swiglu",
    "dinov3": "hf_dinov3_gated",
    "ijepa": "hf_ijepa_classifier",
    "mae": "hf_mae_pretraining",
    "msn": "hf_msn_classifier",
    "siglip": "hf_siglip_two_towers",
}
"""Folders of `tests/data/families`, as transformers wrote them."""
DIALECTS = (*_NPZ, "timm", "transformers", "sharded", "keras_hub", "keras_vit")
READERS = (*DIALECTS, *FAMILIES, "images")
"""What a campaign is about: a dialect with its container and JSON, shards, presets, images."""


def make(reader: str, folder: Path) -> None:
    """Fills a folder with a good input."""
    source = CHECKPOINTS / "vit_token_published.npz"
    if reader == "images":
        rng = np.random.default_rng(0)
        pixels = np.kron(
            rng.integers(0, 256, (6, 8, 3), dtype="uint8"), np.ones((4, 4, 1), "uint8")
        )
        for suffix, name in IMAGES.items():
            Image.fromarray(pixels).save(folder / f"x.{suffix}", name)
    elif reader in FAMILIES:
        shutil.copytree(
            CHECKPOINTS.parent / "families" / FAMILIES[reader], folder, dirs_exist_ok=True
        )
    elif reader in _NPZ:
        convert(source, folder / "x.npz", reader, lossy=True)
    elif reader == "sharded":
        convert(source, folder, "timm", lossy=True)
        _shard(folder)
    elif reader == "keras_vit":
        _preset(source, folder)
    else:
        convert(source, folder, reader, lossy=True)


def _shard(folder: Path) -> None:
    from safetensors.numpy import save_file

    with open_arrays(folder / "model.safetensors") as file:
        names = sorted(file.shapes)
        halves = (names[::2], names[1::2])
        shards = [f"model-{k + 1:05}-of-00002.safetensors" for k in range(2)]
        for half, shard in zip(halves, shards, strict=True):
            save_file({name: np.array(file.read(name)) for name in half}, folder / shard)
    (folder / "model.safetensors").unlink()
    places = {name: s for half, s in zip(halves, shards, strict=True) for name in half}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _preset(source: Path, folder: Path) -> None:
    """A preset as `save_to_preset` writes it; that needs a backend, which one does not matter."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    from keras_vit import VisionTransformer

    labels = [f"class {k}" for k in range(VisionTransformer.from_preset(source).config.num_classes)]
    VisionTransformer.from_preset(source, labels=labels).save_to_preset(folder)
