"""Common preprocessing protocols of PyTorch libraries."""

from typing import Any

IMAGENET: dict[str, Any] = {
    "name": "timm",
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
"""The ImageNet preprocessing of most PyTorch models."""

CLIP: dict[str, Any] = {
    "name": "timm",
    "crop_pct": 1.0,
    "mean": [0.48145466, 0.4578275, 0.40821073],
    "std": [0.26862954, 0.26130258, 0.27577711],
}
"""The preprocessing of CLIP."""
