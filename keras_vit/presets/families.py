"""Rows of the catalog for the families beyond the paper's ViT, by their repositories on the Hub.

Names are `<size><patch>.<family>_<data>_<pixels>`; data or pixels are left out where the family
has a single choice. No file of these repositories was read here: the sizes come from the papers and
the libraries' configurations. When a preset is loaded, the repository's files decide, and its
`preprocessor_config.json` states the preparation of images; a row states the family's protocol.
"""

import dataclasses
from typing import Any

_SIZES = {  # hidden_size, mlp_dim, num_heads, num_layers
    "ti": (192, 768, 3, 12),
    "s": (384, 1536, 6, 12),
    "m": (512, 2048, 8, 12),
    "b": (768, 3072, 12, 12),
    "l": (1024, 4096, 16, 24),
    "so400m": (1152, 4304, 16, 27),
    "h": (1280, 5120, 16, 32),
    "g": (1408, 6144, 16, 40),
    "bigg": (1664, 8192, 16, 48),
}

_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_OF_CLIP = {
    "mean": [0.48145466, 0.4578275, 0.40821073],
    "std": [0.26862954, 0.26130258, 0.27577711],
}
_CROP_OF_256 = {"name": "timm", "crop_pct": 0.875, "interpolation": "bicubic", **_IMAGENET}
_PROTOCOLS: dict[str, dict[str, Any]] = {
    "dinov2": _CROP_OF_256,
    "dinov3": {"name": "transformers", "interpolation": "bilinear", **_IMAGENET},
    "clip": {"name": "timm", "crop_pct": 1.0, "interpolation": "bicubic", **_OF_CLIP},
    "siglip": {"name": "transformers", "interpolation": "bicubic"},
    "deit": _CROP_OF_256,
    "deit3": {"name": "timm", "crop_pct": 1.0, "interpolation": "bicubic", **_IMAGENET},
    "mae": _CROP_OF_256,
    "msn": _CROP_OF_256,
    "ijepa": {"name": "transformers", "interpolation": "bilinear", **_IMAGENET},
}
UNVERIFIED = "everything but the name: no file of the repository was read here"
GATED = "gated: accept the license on the repository's page and log in by `hf auth login`"


@dataclasses.dataclass(frozen=True)
class FamilyRow:
    """One preset of a family.

    Args:
        name, data, source, image_size, num_classes, license, note: as in `Preset`.
        family: name of the family in `list_presets(family=...)`.
        dialect: dialect of the repository's files.
        fields: fields of `ViTConfig` that the dialect's conventions do not set.
        protocol: preparation of images; the family's protocol if it is empty.
    """

    name: str
    family: str
    data: str
    source: str
    image_size: int
    dialect: str
    fields: dict[str, Any]
    num_classes: int = 0
    license: str = "Apache-2.0"
    note: str = ""
    protocol: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.protocol:
            object.__setattr__(self, "protocol", _PROTOCOLS[self.family])


def _sizes(size: str, patch: int, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "mlp_dim", "num_heads", "num_layers")
    return {"patch_size": patch, **dict(zip(names, _SIZES[size], strict=True)), **more}


def _dinov2(size: str, word: str, registers: int, **more: Any) -> FamilyRow:
    suffix, repo = (f"_reg{registers}", "dinov2-with-registers") if registers else ("", "dinov2")
    fields = {"classifier": "token", "mask_token": True, "num_registers": registers}
    return FamilyRow(
        f"vit_{size}14{suffix}.dinov2",
        "dinov2",
        "lvd142m",
        f"hf://facebook/{repo}-{word}",
        518,
        f"transformers/{repo.replace('-', '_')}",
        {**_sizes(size, 14), **fields, **more},
    )


def _dinov3(size: str, word: str, **more: Any) -> FamilyRow:
    fields = {
        "mask_token": True,
        "num_registers": 4,
        "qkv_bias": (True, False, True),
        "rope": {"form": "dinov3", "theta": 100.0},
    }
    return FamilyRow(
        f"vit_{word.removeprefix('vit')}.dinov3_lvd1689m",
        "dinov3",
        "lvd1689m",
        f"hf://facebook/dinov3-{word}-pretrain-lvd1689m",
        224,
        "transformers/dinov3_vit",
        {**_sizes(size, 16), **fields, **more},
        license="LicenseRef-DINOv3",
        note=GATED,
    )


def _clip(
    size: str, patch: int, recipe: str, data: str, repo: str, width: int, pixels: int = 224,
    gelu: str = "quick", license: str = "MIT",
) -> FamilyRow:  # fmt: skip
    return FamilyRow(
        f"vit_{size}{patch}.{recipe}_{pixels}",
        "clip",
        data,
        f"hf://{repo}",
        pixels,
        "transformers/clip",
        _sizes(size, patch, projection_dim=width, numerics={"gelu": gelu}),
        license=license,
    )


def _siglip(size: str, patch: int, pixels: int, version: str = "") -> FamilyRow:
    word = {"b": "base", "l": "large", "so400m": "so400m"}[size]
    name = f"{size}_{patch}" if size == "so400m" else f"{size}{patch}"
    return FamilyRow(
        f"vit_{name}.siglip{version}_webli_{pixels}",
        "siglip",
        "webli",
        f"hf://google/siglip{version}-{word}-patch{patch}-{pixels}",
        pixels,
        "transformers/siglip",
        _sizes(size, patch, classifier="map", crop_remainder=bool(pixels % patch)),
    )


def _deit(size: str, word: str, distilled: bool, pixels: int = 224) -> FamilyRow:
    kind = "distilled-" if distilled else ""
    fields = {"classifier": "token_and_distillation"} if distilled else {}
    return FamilyRow(
        f"vit_{size}16.deit{'_distilled' if distilled else ''}_i1k_{pixels}",
        "deit",
        "i1k",
        f"hf://facebook/deit-{word}-{kind}patch16-{pixels}",
        pixels,
        "transformers/deit" if distilled else "transformers",
        _sizes(size, 16, **fields),
        num_classes=1000,
    )


def _deit3(size: str, word: str, patch: int, pixels: int, data: str = "i1k") -> FamilyRow:
    """A row of DeiT-III, by timm's repository: the authors' own are no repositories of the Hub.

    Models that saw ImageNet-1k alone are evaluated on a crop of 90 % at 224 pixels.
    """
    tag = "fb_in1k" if data == "i1k" else "fb_in22k_ft_in1k"
    crop = {"crop_pct": 0.9} if data == "i1k" and pixels == 224 else {}
    fields = {"layer_scale": True, "layer_scale_init": 1e-6, "position_before_class": True}
    return FamilyRow(
        f"vit_{size}{patch}.deit3_{data}_{pixels}",
        "deit3",
        data,
        f"hf://timm/deit3_{word}_patch{patch}_{pixels}.{tag}",
        pixels,
        "timm",
        _sizes(size, patch, **fields),
        num_classes=1000,
        protocol={**_PROTOCOLS["deit3"], **crop},
    )


def _of_class(
    family: str, size: str, patch: int, data: str, repo: str, dialect: str, pixels: int = 224,
    license: str = "Apache-2.0",
) -> FamilyRow:  # fmt: skip
    name = f"vit_{size}{patch}.{family}_{data}_{pixels}"
    source, fields = f"hf://facebook/{repo}", _sizes(size, patch)
    return FamilyRow(name, family, data, source, pixels, dialect, fields, license=license)


_GATED_MLP = {"mlp": "gated_packed", "hidden_size": 1536, "mlp_dim": 4096, "num_heads": 24}
_NC = "CC-BY-NC-4.0"
_META, _LAION = "facebook/metaclip-", "laion/CLIP-ViT-"

# fmt: off
ROWS: tuple[FamilyRow, ...] = (
    # Oquab et al. (2023), arXiv 2304.07193; registers: Darcet et al. (2023), arXiv 2309.16588.
    *(row for r in (0, 4) for row in (
        _dinov2("s", "small", r), _dinov2("b", "base", r), _dinov2("l", "large", r),
        _dinov2("g", "giant", r, **_GATED_MLP),
    )),
    # Siméoni et al. (2025), arXiv 2508.10104.
    _dinov3("s", "vits16"),
    _dinov3("s", "vits16plus", mlp="gated"),
    _dinov3("b", "vitb16"),
    _dinov3("l", "vitl16"),
    # Radford et al. (2021), arXiv 2103.00020.
    _clip("b", 32, "clip_openai", "wit400m", "openai/clip-vit-base-patch32", 512),
    _clip("b", 16, "clip_openai", "wit400m", "openai/clip-vit-base-patch16", 512),
    _clip("l", 14, "clip_openai", "wit400m", "openai/clip-vit-large-patch14", 768),
    _clip("l", 14, "clip_openai", "wit400m", "openai/clip-vit-large-patch14-336", 768, 336),
    # Cherti et al. (2022), arXiv 2212.07143: OpenCLIP on LAION-2B.
    _clip("b", 32, "clip_laion2b", "laion2b", _LAION + "B-32-laion2B-s34B-b79K", 512, gelu="exact"),
    _clip("b", 16, "clip_laion2b", "laion2b", _LAION + "B-16-laion2B-s34B-b88K", 512, gelu="exact"),
    _clip("l", 14, "clip_laion2b", "laion2b", _LAION + "L-14-laion2B-s32B-b82K", 768, gelu="exact"),
    _clip("h", 14, "clip_laion2b", "laion2b", _LAION + "H-14-laion2B-s32B-b79K", 1024,
          gelu="exact"),
    _clip("bigg", 14, "clip_laion2b", "laion2b", _LAION + "bigG-14-laion2B-39B-b160k", 1280,
          gelu="exact"),
    # Xu et al. (2023), arXiv 2309.16671: MetaCLIP.
    _clip("b", 32, "metaclip_400m", "metaclip400m", _META + "b32-400m", 512, license=_NC),
    _clip("b", 16, "metaclip_400m", "metaclip400m", _META + "b16-400m", 512, license=_NC),
    _clip("l", 14, "metaclip_400m", "metaclip400m", _META + "l14-400m", 768, license=_NC),
    _clip("b", 16, "metaclip_2pt5b", "metaclip2.5b", _META + "b16-fullcc2.5b", 512, license=_NC),
    _clip("l", 14, "metaclip_2pt5b", "metaclip2.5b", _META + "l14-fullcc2.5b", 768, license=_NC),
    _clip("h", 14, "metaclip_2pt5b", "metaclip2.5b", _META + "h14-fullcc2.5b", 1024, license=_NC),
    # Zhai et al. (2023), arXiv 2303.15343; Tschannen et al. (2025), arXiv 2502.14786.
    *(_siglip("b", 16, pixels) for pixels in (224, 256, 384, 512)),
    *(_siglip("l", 16, pixels) for pixels in (256, 384)),
    *(_siglip("so400m", 14, pixels) for pixels in (224, 384)),
    *(_siglip("b", 16, pixels, "2") for pixels in (224, 256, 384, 512)),
    _siglip("b", 32, 256, "2"),
    *(_siglip("l", 16, pixels, "2") for pixels in (256, 384, 512)),
    *(_siglip("so400m", 14, pixels, "2") for pixels in (224, 384)),
    *(_siglip("so400m", 16, pixels, "2") for pixels in (256, 384, 512)),
    # Touvron et al. (2020), arXiv 2012.12877.
    *(_deit(size, word, distilled) for distilled in (False, True)
      for size, word in (("ti", "tiny"), ("s", "small"), ("b", "base"))),
    _deit("b", "base", False, 384),
    _deit("b", "base", True, 384),
    # Touvron, Cord and Jégou (2022), arXiv 2204.07118: DeiT-III.
    *(_deit3(size, word, patch, pixels, data) for data in ("i1k", "i21k_ft_i1k")
      for size, word, patch, sides in (
          ("s", "small", 16, (224, 384)), ("m", "medium", 16, (224,)),
          ("b", "base", 16, (224, 384)), ("l", "large", 16, (224, 384)), ("h", "huge", 14, (224,)),
      ) for pixels in sides),
    # He et al. (2021), arXiv 2111.06377; Assran et al. (2022), arXiv 2204.07141, and (2023),
    # arXiv 2301.08243.
    _of_class("mae", "b", 16, "i1k", "vit-mae-base", "transformers/vit_mae"),
    _of_class("mae", "l", 16, "i1k", "vit-mae-large", "transformers/vit_mae"),
    _of_class("mae", "h", 14, "i1k", "vit-mae-huge", "transformers/vit_mae"),
    _of_class("msn", "s", 16, "i1k", "vit-msn-small", "transformers/vit_msn"),
    _of_class("msn", "b", 16, "i1k", "vit-msn-base", "transformers/vit_msn"),
    _of_class("msn", "l", 16, "i1k", "vit-msn-large", "transformers/vit_msn"),
    _of_class("msn", "b", 4, "i1k", "vit-msn-base-4", "transformers/vit_msn"),
    _of_class("msn", "l", 7, "i1k", "vit-msn-large-7", "transformers/vit_msn"),
    _of_class("ijepa", "h", 14, "i1k", "ijepa_vith14_1k", "transformers/ijepa", license=_NC),
    _of_class("ijepa", "h", 14, "i21k", "ijepa_vith14_22k", "transformers/ijepa", license=_NC),
    _of_class("ijepa", "h", 16, "i1k", "ijepa_vith16_1k", "transformers/ijepa", 448, license=_NC),
    _of_class("ijepa", "g", 16, "i21k", "ijepa_vitg16_22k", "transformers/ijepa", license=_NC),
)
# fmt: on
