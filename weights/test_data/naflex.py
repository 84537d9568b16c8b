"""Writes `tests/data/naflex`: networks of transformers and timm for images of unequal shape.

    python -m weights.test_data.naflex

A case is a folder as the library writes it, with random weights, and an npz: pictures of unequal
shape, the patches, shapes and mask that the library's own preparation makes of them, and the
outputs of the network for them as one batch. Padding is part of the batch.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from tests import torchvision_shim  # noqa: F401

import timm  # isort: skip
import transformers  # isort: skip
from timm.data import create_transform  # isort: skip
from transformers.models.siglip2.image_processing_pil_siglip2 import (  # isort: skip
    Siglip2ImageProcessorPil,
)

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "naflex"
SIDES = ((30, 41), (60, 13), (9, 64), (32, 32))
_TRANSFORMERS = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
    "num_patches": 25,
}
_TIMM: dict[str, Any] = {
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 3,
    "mlp_ratio": 2.0,
    "patch_size": 4,
    "pos_embed_grid_size": (5, 5),
    "num_classes": 5,
}
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "timm_naflex_map": ("naflexvit_base_patch16_map", {}),
    "timm_naflex_gap": ("naflexvit_base_patch16_gap", {}),
    "timm_naflex_siglip": ("naflexvit_base_patch16_siglip", {"num_classes": 0}),
    "timm_naflex_token": (
        "naflexvit_base_patch16_gap",
        {"class_token": True, "global_pool": "token", "fc_norm": False, "qkv_bias": False},
    ),
}


def pictures() -> list[np.ndarray]:
    """Smooth pictures, so that filters of preparation agree beyond the rounding of noise."""
    rng = np.random.default_rng(0)
    small = [rng.integers(0, 256, (5, 5, 3), dtype=np.uint8) for _ in SIDES]
    return [
        np.asarray(Image.fromarray(image).resize(side[::-1], Image.Resampling.BICUBIC))
        for image, side in zip(small, SIDES, strict=True)
    ]


def randomised(model):
    """Gives every parameter a random number; returns the model in evaluation mode."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    return model.eval()


def save(name: str, patches, shapes, mask, **outputs) -> None:
    """Writes the npz of a case."""
    arrays: dict[str, Any] = {"patches": patches, "shapes": shapes, "mask": mask, **outputs}
    given = {f"picture_{k}": picture for k, picture in enumerate(pictures())}
    files: dict[str, Any] = {key: np.asarray(value) for key, value in {**given, **arrays}.items()}
    np.savez_compressed(FOLDER / f"{name}.npz", **files)


def make_transformers() -> None:
    """SigLIP 2's vision model and its classifier."""
    processor = Siglip2ImageProcessorPil(patch_size=4, max_num_patches=25)
    inputs = processor(images=[Image.fromarray(p) for p in pictures()], return_tensors="pt")
    given = (inputs["pixel_values"], inputs["spatial_shapes"], inputs["pixel_attention_mask"])
    vision = transformers.Siglip2VisionModel(transformers.Siglip2VisionConfig(**_TRANSFORMERS))
    classifier = transformers.Siglip2ForImageClassification(
        transformers.Siglip2Config(vision_config=_TRANSFORMERS, num_labels=5)
    )
    for name, model in (("hf_siglip2", vision), ("hf_siglip2_classifier", classifier)):
        randomised(model).save_pretrained(FOLDER / name)
        processor.save_pretrained(FOLDER / name)
        with torch.no_grad():
            answer = model(**inputs, output_hidden_states=True)
        outputs = (
            {"logits": answer.logits}
            if "classifier" in name
            else {"logits": answer.pooler_output, "encoded": answer.last_hidden_state}
        )
        save(name, *given, **outputs)


def make_timm() -> None:
    """NaFlexViT with attention pooling, the mean, and a class token."""
    for name, (architecture, more) in TIMM.items():
        arguments = {**_TIMM, **more}
        model = randomised(timm.create_model(architecture, **arguments))
        transform = create_transform(
            (3, 20, 20), naflex=True, patch_size=4, max_seq_len=25, patchify=True,
            interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3, crop_pct=1.0,
        )  # fmt: skip
        found = [transform(Image.fromarray(picture)) for picture in pictures()]
        shape = (len(found), 25)
        patches = torch.zeros(*shape, 4 * 4 * 3)
        coords, valid = torch.zeros(*shape, 2, dtype=torch.int64), torch.zeros(shape).bool()
        for k, one in enumerate(found):
            count = len(one["patches"])
            patches[k, :count], coords[k, :count] = one["patches"], one["patch_coord"]
            valid[k, :count] = True
        with torch.no_grad():
            inputs = {"patches": patches, "patch_coord": coords, "patch_valid": valid}
            features = model.forward_features(**inputs)["patches"]
            answer = model(inputs)
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(model.state_dict(), folder / "model.safetensors")
        pretrained = {
            **{"input_size": [3, 20, 20], "crop_pct": 1.0, "interpolation": "bicubic"},
            **{"mean": [0.5] * 3, "std": [0.5] * 3, "num_classes": arguments["num_classes"]},
            **{"first_conv": "embeds.proj", "pooling": "head"},
        }
        content = {
            "architecture": architecture,
            "num_classes": arguments["num_classes"],
            "num_features": 24,
            "global_pool": model.global_pool,
            "model_args": {k: v for k, v in arguments.items() if k != "num_classes"},
            "pretrained_cfg": pretrained,
        }
        (folder / "config.json").write_text(json.dumps(content, indent=1) + "\n")
        save(name, patches, coords.amax(dim=1) + 1, valid, logits=answer, encoded=features)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    make_transformers()
    make_timm()
