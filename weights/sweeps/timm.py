"""All pretrained tags of timm's modules of Vision Transformers, two blocks of each architecture."""

import collections
import gc
import json
import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_vit import VisionTransformer
from keras_vit.checkpoints.families.timm.architectures import find_row
from keras_vit.errors import CheckpointError
from tests import torchvision_shim  # noqa: F401
from weights.sweeps import HYBRID_TOLERANCE, TOLERANCE, Outcome, judged

import timm  # isort: skip
import torch  # isort: skip
from safetensors.torch import save_file  # isort: skip

MODULES = ("vision_transformer", "vision_transformer_hybrid", "deit", "eva", "beit")


def architectures() -> dict[tuple[str, str], tuple[str, ...]]:
    """Every module and architecture, with the pretrained tags of it."""
    classes: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for module in MODULES:
        for tag in timm.list_models(module=module, pretrained=True):
            classes[module, tag.partition(".")[0]].append(tag)
    return {key: tuple(tags) for key, tags in classes.items()}


def small(name: str):
    """A model of an architecture: two blocks, few patches, a random value in every array."""
    full = timm.create_model(name, num_classes=0, device="meta")
    attention = getattr(full.blocks[0], "attn", None)
    heads = getattr(attention, "num_heads", 2)
    patch = full.patch_embed.patch_size[0]
    has_stem = not hasattr(full.patch_embed, "proj") or patch == 1
    sizes = {"depth": 2, "num_classes": 3, "embed_dim": heads * 16}
    if isinstance(getattr(full.patch_embed, "proj", None), torch.nn.Identity):
        sizes["embed_dim"] = full.embed_dim  # the stem has no projection
    sizes["img_size"] = 128 if has_stem or hasattr(full.patch_embed, "backbone") else 4 * patch
    if 384 % patch and "384" in name:
        sizes["img_size"] = 4 * patch + 6  # as 384 of 14
    if "num_kv_heads" in (find_row(name) or {}):
        sizes["num_kv_heads"] = heads // 2
    torch.manual_seed(zlib.crc32(name.encode()))
    model = timm.create_model(name, **sizes).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            scale = parameter.shape[1:].numel() ** -0.5 if parameter.ndim > 1 else 0.3
            scale = 0.3 if "weight" not in path.rpartition(".")[2] else scale
            is_gain = parameter.ndim == 1 and path.endswith(("weight", "gamma"))
            parameter.copy_(torch.randn_like(parameter) * scale + float(is_gain))
    return model, sizes


def outcome(module: str, name: str, tags: tuple[str, ...]) -> Outcome:
    """Compares one architecture with keras_vit, by folder and by the file with its name."""
    model, sizes = small(name)
    height, width = model.patch_embed.img_size
    image = np.random.default_rng(0).uniform(-1, 1, (1, height, width, 3)).astype("float32")
    with torch.no_grad():
        want = model(torch.from_numpy(image.transpose(0, 3, 1, 2).copy())).numpy()

    def compare(source, **fields) -> float:
        got = VisionTransformer.from_preset(source, **fields)(image)
        got = got.detach().cpu().numpy() if hasattr(got, "detach") else np.asarray(got)
        return float(np.abs(got - want).max() / np.abs(want).max())

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.safetensors"
        save_file(model.state_dict(), file)
        folder = Path(place) / "folder"
        timm.models.save_for_hf(model, folder, safe_serialization=True)
        config = json.loads((folder / "config.json").read_text())
        config["model_args"] = {**(config.get("model_args") or {}), **sizes}
        (folder / "config.json").write_text(json.dumps(config))
        named = {"model_name": name, **sizes}
        tolerance = HYBRID_TOLERANCE if module.endswith("hybrid") else TOLERANCE
        answers = [
            judged(lambda: compare(folder), CheckpointError, tolerance),
            judged(lambda: compare(file, read={"timm": named}), CheckpointError, tolerance),
        ]
    # The path of the file, which is a temporary one.
    answers = [re.sub(r"refused: \S*?: ?", "refused: ", answer, count=1) for answer in answers]
    return Outcome(module, tags, *(answer.split("\n")[0][:300] for answer in answers))


def outcomes(library: str, names: tuple[str, ...] = ()) -> Iterator[Outcome]:
    """Runs the sweep over some architectures, or all."""
    for (module, name), tags in architectures().items():
        if not names or name in names:
            yield outcome(module, name, tags)
            gc.collect()
