"""The measured models, by the paper's names, and their matrix products."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Size:
    """A plain Vision Transformer with a class token and 1,000 classes, at an image size."""

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    patch_size: int
    image_size: int = 224
    num_classes: int = 1000

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1

    def fields(self) -> dict[str, Any]:
        """Returns the fields of `keras_vit.ViTConfig`."""
        fields = dataclasses.asdict(self)
        del fields["name"]
        return fields

    def products(self, batch: int) -> list[tuple[int, int, int, int, int]]:
        """Returns the matrix products of a forward pass as (count, stack, rows, inner, columns)."""
        n, d, h = self.tokens, self.hidden_size, self.num_heads
        depth, rows = self.num_layers, batch * self.tokens
        return [
            (1, 1, batch * (n - 1), 3 * self.patch_size**2, d),  # patches
            (4 * depth, 1, rows, d, d),  # query, key, value, out
            (depth, batch * h, n, d // h, n),  # q k^T
            (depth, batch * h, n, n, d // h),  # weights v
            (depth, 1, rows, d, self.mlp_dim),
            (depth, 1, rows, self.mlp_dim, d),
            (1, 1, batch, d, self.num_classes),
        ]

    def flops(self, batch: int) -> float:
        """Floating point operations of the products, two per multiply-add."""
        return sum(2.0 * c * s * m * k * n for c, s, m, k, n in self.products(batch))


_SIZES = {
    size.name: size
    for size in (
        Size("Ti/16", 192, 12, 3, 768, 16),
        Size("S/16", 384, 12, 6, 1536, 16),
        Size("B/16", 768, 12, 12, 3072, 16),
        Size("L/16", 1024, 24, 16, 4096, 16),
    )
}


def size_named(name: str, image_size: int = 224) -> Size:
    """Returns `"S/16"` and the like at an image size. Raises `KeyError`."""
    return dataclasses.replace(_SIZES[name], image_size=image_size)
