"""The measured models, by the papers' names, and their matrix products."""

import dataclasses
from typing import Any

from keras_vit.config.variants import VARIANTS

FAMILIES: dict[str, dict[str, Any]] = {
    "": {},
    "dinov2": {"block": {"layer_scale": 1e-5, "activation": "gelu"}},
    "dinov3": {
        "position": "none",
        "rope": {"form": "dinov3", "theta": 100.0},
        "tokens": {"registers": 4},
        "block": {
            "layer_scale": 1e-5,
            "qkv_bias": (True, False, True),
            "activation": "gelu",
            "epsilon": 1e-5,
        },
    },
    "siglip": {"pool": {"kind": "map"}, "tokens": {"class_tokens": 0}},
    "clip": {
        "patch_bias": False,
        "block": {"input_norm": "tokens", "activation": "quick_gelu", "epsilon": 1e-5},
    },
}
"""The fields of `keras_vit.ViTConfig` in which a family differs from the paper's model."""


@dataclasses.dataclass(frozen=True)
class Size:
    """A Vision Transformer with 1,000 classes at an image size: the paper's, or of a family.

    Args:
        family: a key of `FAMILIES`; `""` is the paper's model.
        prefix_tokens: class token and registers.
        stem: the fields of a hybrid's ResNet; its `products` are not known.
    """

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    patch_size: int
    image_size: int = 224
    num_classes: int = 1000
    family: str = ""
    prefix_tokens: int = 1
    stem: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def tokens(self) -> int:
        """Patches, the class token and registers."""
        return (self.image_size // self.patch_size) ** 2 + self.prefix_tokens

    def fields(self) -> dict[str, Any]:
        """Returns the fields of `keras_vit.ViTConfig`."""
        own = ("name", "family", "prefix_tokens")
        names = [field.name for field in dataclasses.fields(self) if field.name not in own]
        return {**{name: getattr(self, name) for name in names}, **FAMILIES[self.family]}

    def products(self, batch: int) -> list[tuple[int, int, int, int, int]]:
        """Returns the matrix products of a forward pass as (count, stack, rows, inner, columns).

        The attention pooling of SigLIP, less than 3 % of them, is left out.
        """
        n, d, h = self.tokens, self.hidden_size, self.num_heads
        depth, rows = self.num_layers, batch * self.tokens
        return [
            (1, 1, batch * (n - self.prefix_tokens), 3 * self.patch_size**2, d),  # patches
            (4 * depth, 1, rows, d, d),  # query, key, value, out
            (depth, batch * h, n, d // h, n),  # q k^T
            (depth, batch * h, n, n, d // h),  # weights v
            (depth, 1, rows, d, self.mlp_dim),
            (depth, 1, rows, self.mlp_dim, d),
            (1, 1, batch, d, self.num_classes),
        ]


_SIZES = {
    size.name: size
    for size in (
        Size("tiny", 64, 1, 1, 256, 16, 32, 10),
        Size("tiny DINOv2", 64, 1, 1, 256, 14, 28, 10, family="dinov2"),
        Size("tiny DINOv3", 64, 1, 1, 256, 16, 32, 10, family="dinov3", prefix_tokens=5),
        Size("DINOv2-S/14", 384, 12, 6, 1536, 14, 518, family="dinov2"),
        Size("DINOv2-B/14", 768, 12, 12, 3072, 14, 518, family="dinov2"),
        Size("DINOv3-S/16", 384, 12, 6, 1536, 16, 512, family="dinov3", prefix_tokens=5),
        Size("SigLIP-B/16", 768, 12, 12, 3072, 16, family="siglip", prefix_tokens=0),
        Size("CLIP-B/32", 768, 12, 12, 3072, 32, family="clip"),
    )
}


def name_of_variant(name: str) -> str:
    """Returns `"vit_s16"` for `"S/16"`, `"vit_s14.dinov2"` for `"DINOv2-S/14"`."""
    family, _, model = name.rpartition("-")
    ours = f"vit_{model.lower().replace('/', '')}" if "/" in model else name
    return f"{ours}.{family.lower()}" if family else ours


def size_named(name: str, image_size: int | None = None) -> Size:
    """Returns `"S/16"`, `"r50_vit_l32"` and the like, at its own image size or another.

    Raises:
        KeyError: there is no such size.
    """
    if name in _SIZES:
        size = _SIZES[name]
    else:
        names = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size", "stem")
        fields = VARIANTS[name_of_variant(name)].fields
        size = Size(name, **{field: fields[field] for field in names})
    return size if image_size is None else dataclasses.replace(size, image_size=image_size)
