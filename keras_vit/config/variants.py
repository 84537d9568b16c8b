"""The fourteen sizes of Vision Transformers of the paper and of AugReg, one row each.

Dosovitskiy et al. (2021), table 1; Steiner et al. (2022), table 1; dropout and stems:
`vit_jax/configs/models.py`.
"""

import dataclasses
from typing import Any

from keras_vit.config.rules import choice
from keras_vit.config.vit import ImageSize, ViTConfig


@dataclasses.dataclass(frozen=True)
class Variant:
    """A named size of Vision Transformer.

    Args:
        name: name of the variant, such as `"vit_b16"`.
        fields: the fields of `ViTConfig` that make the variant.
    """

    name: str
    fields: dict[str, Any]

    def config(
        self, image_size: ImageSize = 224, num_classes: int = 1000, **fields: Any
    ) -> ViTConfig:
        """Returns the configuration of the variant with these fields.

        A dict changes only the fields of a part that it names.
        """
        own = ViTConfig.from_dict(self.fields)
        return own.replace(image_size=image_size, num_classes=num_classes, **fields)


VARIANTS: dict[str, Variant] = {}
"""All variants by name, plain Vision Transformers first."""


def _declare(name: str, patch_size: int, hidden_size: int, mlp_dim: int, num_heads: int,
             num_layers: int, dropout_rate: float = 0.0, stem: tuple[int, ...] | None = None) -> None:  # fmt: skip
    VARIANTS[name] = Variant(name, {
        "patch_size": patch_size, "hidden_size": hidden_size, "mlp_dim": mlp_dim,
        "num_heads": num_heads, "num_layers": num_layers, "dropout_rate": dropout_rate,
        "stem": {} if stem is None else {"kind": "resnet", "units": stem},
    })  # fmt: skip


# fmt: off
_declare("vit_ti16", patch_size=16, hidden_size=192,  mlp_dim=768,  num_heads=3,  num_layers=12)
_declare("vit_s16",  patch_size=16, hidden_size=384,  mlp_dim=1536, num_heads=6,  num_layers=12)
_declare("vit_s32",  patch_size=32, hidden_size=384,  mlp_dim=1536, num_heads=6,  num_layers=12)
_declare("vit_b8",   patch_size=8,  hidden_size=768,  mlp_dim=3072, num_heads=12, num_layers=12)
_declare("vit_b16",  patch_size=16, hidden_size=768,  mlp_dim=3072, num_heads=12, num_layers=12)
_declare("vit_b32",  patch_size=32, hidden_size=768,  mlp_dim=3072, num_heads=12, num_layers=12)
_declare("vit_l16",  patch_size=16, hidden_size=1024, mlp_dim=4096, num_heads=16, num_layers=24, dropout_rate=0.1)
_declare("vit_l32",  patch_size=32, hidden_size=1024, mlp_dim=4096, num_heads=16, num_layers=24)
_declare("vit_h14",  patch_size=14, hidden_size=1280, mlp_dim=5120, num_heads=16, num_layers=32, dropout_rate=0.1)

# Despite the 16 in the name, the stride is 32 pixels: the stem downscales 4 times, and a patch has 8 cells.
_declare("r_vit_ti16",  patch_size=8, hidden_size=192,  mlp_dim=768,  num_heads=3,  num_layers=12, stem=())
_declare("r26_vit_s32", patch_size=1, hidden_size=384,  mlp_dim=1536, num_heads=6,  num_layers=12, stem=(2, 2, 2, 2))
_declare("r26_vit_b32", patch_size=1, hidden_size=768,  mlp_dim=3072, num_heads=12, num_layers=12, stem=(2, 2, 2, 2))
# ResNet-50 has (3, 4, 6, 3) units. The fourth stage's units moved into the third keep the stride at 16.
_declare("r50_vit_b16", patch_size=1, hidden_size=768,  mlp_dim=3072, num_heads=12, num_layers=12, dropout_rate=0.1, stem=(3, 4, 9))
_declare("r50_vit_l32", patch_size=1, hidden_size=1024, mlp_dim=4096, num_heads=16, num_layers=24, dropout_rate=0.1, stem=(3, 4, 6, 3))
# fmt: on


def variant_named(name: str) -> Variant:
    """Returns the variant with this name.

    Raises:
        ConfigError: the name is unknown; the message gives the nearest name.
    """
    choice(*VARIANTS).check("variant", name)
    return VARIANTS[name]


def find_variant(config: ViTConfig) -> str | None:
    """Returns the name of the variant with the sizes of a configuration, or None."""
    for name, candidate in VARIANTS.items():
        if _sizes(candidate.config()) == _sizes(config):
            return name
    return None


def _sizes(config: ViTConfig) -> tuple[Any, ...]:
    widths = config.patch_size, config.hidden_size, config.mlp_dim
    counts = config.num_heads, config.num_layers, config.stem.is_resnet, config.stem.units
    return *widths, *counts, config.stem.width_factor
