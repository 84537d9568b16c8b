"""Names and shapes of full-size ViTs of timm and transformers, built without weights.

    python -m tests.data.make_manifests     # timm 1.0.31, transformers 5.23.0: 15 seconds

Writes `manifests/timm.json.gz` and `manifests/transformers.json.gz`: for each checkpoint that
the library publishes for a keras_vit variant, the arrays of `model.safetensors`. The published
files themselves are not read. torch builds the library's own model on its "meta" device, where
arrays have shapes and no values. timm states its checkpoints in its registry; those of
transformers are the eleven `google/vit-*` of the Hub, a ViTModel with its pooler where they were
not fine-tuned. transformers gives arrays other names in files than in memory; its function
`revert_weight_conversion` translates them here as in `save_pretrained`.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from tests import torchvision_shim  # noqa: F401  before the two that follow

import timm  # isort: skip
import transformers  # isort: skip
from transformers.core_model_loading import revert_weight_conversion  # isort: skip

FOLDER = Path(__file__).parent / "manifests"

ARCHITECTURES = {
    "vit_tiny_patch16": "vit_ti16",
    "vit_small_patch16": "vit_s16",
    "vit_small_patch32": "vit_s32",
    "vit_base_patch8": "vit_b8",
    "vit_base_patch16": "vit_b16",
    "vit_base_patch32": "vit_b32",
    "vit_large_patch16": "vit_l16",
    "vit_large_patch32": "vit_l32",
    "vit_huge_patch14": "vit_h14",
    "vit_tiny_r_s16_p8": "r_vit_ti16",
    "vit_small_r26_s32": "r26_vit_s32",
    "vit_base_r26_s32": "r26_vit_b32",
    "vit_base_r50_s16": "r50_vit_b16",
    "vit_large_r50_s32": "r50_vit_l32",
}
"""timm's architectures, without the image size, and keras_vit's variants."""

TRAININGS = ("orig", "augreg", "untrained")
"""First words of timm's tags: the paper's weights, AugReg's, and R26+B/32 without weights."""

SIZES = {
    "base": {},
    "large": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
    "huge": {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
    },
}
"""Fields of transformers' ViTConfig, whose defaults are the base size."""

HUB = (
    "google/vit-base-patch16-224",
    "google/vit-base-patch16-384",
    "google/vit-base-patch32-384",
    "google/vit-large-patch16-224",
    "google/vit-large-patch16-384",
    "google/vit-large-patch32-384",
    "google/vit-base-patch16-224-in21k",
    "google/vit-base-patch32-224-in21k",
    "google/vit-large-patch16-224-in21k",
    "google/vit-large-patch32-224-in21k",
    "google/vit-huge-patch14-224-in21k",
)


def of_timm() -> Iterator[tuple[str, dict]]:
    """Every image size and number of classes in which timm has a keras_vit variant."""
    described = set()
    for name in timm.list_models(["vit_*"], include_tags=True):
        architecture, _, tag = name.partition(".")
        family, _, size = architecture.rpartition("_")
        num_classes = timm.get_pretrained_cfg(name).num_classes
        key = (architecture, num_classes)
        is_variant = family in ARCHITECTURES and tag.partition("_")[0] in TRAININGS
        if not is_variant or key in described:
            continue
        described.add(key)
        model = timm.create_model(name, device="meta")
        yield (
            name,
            {
                "variant": ARCHITECTURES[family],
                "image_size": int(size),
                "num_classes": num_classes,
                "representation_size": None,
                "shapes": _shapes(model.state_dict()),
            },
        )


def of_transformers() -> Iterator[tuple[str, dict]]:
    """The checkpoints of the Hub."""
    for name in HUB:
        _, size, patch, side, *is_pretrained = name.removeprefix("google/").split("-")
        patch_size = int(patch.removeprefix("patch"))
        config = transformers.ViTConfig(
            **SIZES[size],
            patch_size=patch_size,
            image_size=int(side),
            num_labels=0 if is_pretrained else 1000,
        )
        kind = transformers.ViTModel if is_pretrained else transformers.ViTForImageClassification
        with torch.device("meta"):
            model = kind(config)
        yield (
            name,
            {
                "variant": f"vit_{size[0]}{patch_size}",
                "image_size": int(side),
                "num_classes": 0 if is_pretrained else 1000,
                "representation_size": config.pooler_output_size if is_pretrained else None,
                "shapes": _shapes(revert_weight_conversion(model, model.state_dict())),
            },
        )


def _shapes(arrays: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    return {name: list(array.shape) for name, array in arrays.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for library, presets in ((timm, of_timm()), (transformers, of_transformers())):
        name = library.__name__
        text = json.dumps({name: library.__version__, "presets": dict(presets)})
        file = FOLDER / f"{name}.json.gz"
        file.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
