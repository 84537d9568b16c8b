"""All pretrained tags of timm's modules of Vision Transformers, two blocks of each architecture."""

import collections
import gc
import zlib
from collections.abc import Iterator
from typing import Any

from keras_vit.checkpoints.families.timm.architectures import find_row
from tests.checkpoints.cases import Case
from tests.live import timm, torch
from weights.sweeps import Outcome, outcome

MODULES = ("vision_transformer", "vision_transformer_hybrid", "deit", "eva", "beit")


def small(name: str) -> tuple[dict[str, Any], Any]:
    """Sizes of two blocks and few patches, and a model with a random value in every array."""
    full = timm.create_model(name, num_classes=0, device="meta")
    heads = getattr(getattr(full.blocks[0], "attn", None), "num_heads", 2)
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
    return sizes, model


def outcomes(library: str, names: tuple[str, ...] = ()) -> Iterator[Outcome]:
    """Runs the sweep over some architectures, or all, with the pretrained tags of each."""
    for module in MODULES:
        tags = collections.defaultdict(list)
        for tag in timm.list_models(module=module, pretrained=True):
            tags[tag.partition(".")[0]].append(tag)
        for name in tags.keys() & set(names) if names else tags:
            sizes, model = small(name)
            tolerance = 3e-5 if module.endswith("hybrid") else 1e-5
            case = Case("timm", name, sizes=sizes, tolerance=tolerance)
            yield outcome(case, module, tuple(tags[name]), model)
            gc.collect()
