"""Good inputs, from which the campaigns begin: a small model in every format, and images."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import load_file, save_file

from keras_vit.checkpoints import save
from keras_vit.checkpoints.families import FORMATS as KNOWN
from keras_vit.checkpoints.families import formats_named
from keras_vit.checkpoints.transfer import convert
from tests.checkpoints.drawn import accepted
from tests.checkpoints.shards import split
from weights.fuzz import answers

CHECKPOINTS = Path(__file__).parents[2] / "tests" / "data" / "golden"

IMAGES = {"png": "PNG", "jpg": "JPEG", "bmp": "BMP", "gif": "GIF", "webp": "WEBP", "tif": "TIFF"}
_NPZ = ("google", "google_linen", "big_vision", "big_vision_scan")
FAMILIES = {
    "timm/eva": "timm_dinov3_plus",
    "timm/naflex": "../naflex/timm_naflex_map",
    "tf_model.h5": "../formats/tf_vit",
    "transformers/beit": "hf_beit_classifier",
    "transformers/data2vec-vision": "hf_data2vec_classifier",
    "transformers/dinov2": "hf_dinov2_classifier",
    "transformers/dinov2_with_registers": "hf_dinov2_reg_swiglu",
    "transformers/dinov3_vit": "hf_dinov3_gated",
    "transformers/deit": "hf_deit_teacher",
    "transformers/vit_mae": "hf_mae_pretraining",
    "transformers/vit_msn": "hf_msn_classifier",
    "transformers/ijepa": "hf_ijepa_classifier",
    "transformers/clip_vision_model": "hf_clip_vision",
    "transformers/clip_vision_model_with_projection": "hf_clip_projection",
    "transformers/clip_classifier": "hf_clip_classifier",
    "transformers/clip": "hf_clip_two_towers",
    "transformers/siglip_vision_model": "hf_siglip_vision",
    "transformers/siglip_classifier": "hf_siglip_classifier",
    "transformers/siglip": "hf_siglip_two_towers",
    "transformers/siglip2_vision_model": "hf_siglip2_naflex",
    "keras_hub": "../golden/kh_classifier",
    "keras_hub/deit": "kh_deit_classifier",
    "keras_hub/dinov2": "kh_dinov2_reg",
    "keras_hub/dinov3": "kh_dinov3_gated_rect",
    "keras_hub/clip": "kh_clip_vision",
    "keras_hub/siglip": "kh_siglip_vision",
    "torchvision": "px_torchvision.safetensors",
    "open_clip": "px_open_clip_quickgelu.safetensors",
    "open_clip/timm_trunk": "px_open_clip_trunk_siglip.safetensors",
    "open_clip/timm_eva_trunk": "timm_eva02_clip",
}
"""Files of `tests/data/families`, as the libraries wrote them, by the format of their names; of
files of other formats, by the name of the file."""
_GIVEN: dict[str, dict[str, Any]] = {
    "facebook": {"num_heads": 3},
    "torchvision": {"num_heads": 3},
    "open_clip/timm_trunk": {
        **{"num_heads": 3, "pool": {"kind": "map"}, "tokens": {"class_tokens": 0}, "rope": None},
        "block": {"epsilon": 1e-6, "activation": "gelu_tanh"},
    },
    "open_clip/timm_eva_trunk": {
        **{"num_heads": 3, "pool": {"kind": "token"}},
        "rope": {"form": "axial", "reference_grid": (16, 16)},
        "block": {"epsilon": 1e-6, "activation": "gelu"},
    },
}
_OF_OPEN_CLIP = {
    "model_cfg": {
        "embed_dim": 6,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 16, "layers": 2, "width": 24, "head_width": 8},
    },
    "preprocess_cfg": {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28]},
}
_SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
}
_PACKED = {**_SIZES, "patch_size": 4, "num_patches": 16}
_VISION = {**_SIZES, "patch_size": 4, "image_size": 16}
_TEXT = {**_SIZES, "vocab_size": 30, "projection_size": 24}
_NECK = {"neck_hidden_sizes": [4] * 4, "fusion_hidden_size": 4, "hidden_act": "gelu"}
_CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "transformers/siglip2": ("Siglip2Model", {"vision_config": _PACKED, "text_config": _TEXT}),
    "transformers/siglip2_classifier": (
        "Siglip2ForImageClassification",
        {"vision_config": _PACKED, "num_labels": 5},
    ),
    "transformers/flava_image_model": ("FlavaImageModel", _VISION),
    "transformers/pixio": (
        "PixioModel",
        {key: _VISION[key] for key in _VISION if key != "intermediate_size"},
    ),
    "transformers/kosmos_2_vision_model": (
        "Kosmos2Model",
        {
            "vision_config": _VISION,
            "text_config": {
                **{"vocab_size": 30, "embed_dim": 24, "layers": 1, "ffn_dim": 16},
                "attention_heads": 3,
            },
        },
    ),
    "transformers/aimv2_vision_model": ("Aimv2VisionModel", _VISION),
    "transformers/radio": (
        "RadioModel",
        {
            **{key: _VISION[key] for key in _VISION if key != "intermediate_size"},
            **{"max_img_size": 32, "mlp_ratio": 2.0},
        },
    ),
    "transformers/dpt": (
        "DPTForDepthEstimation",
        {**_VISION, **_NECK, "backbone_out_indices": [0, 0, 1, 1]},
    ),
}
"""Classes of transformers, and the arguments of small models of them."""
BUILT = ("facebook", *_CLASSES, "keras_hub/clip_backbone", "keras_hub/siglip_backbone")
"""Formats whose input is written anew, with random weights or with other names."""
WRITTEN = {
    f.name: f
    for f in reversed(KNOWN)
    if "/" in f.name and not (f.library.only_read or f.row.only_read)
    if f.name not in (*FAMILIES, *BUILT)
}
"""Formats whose input keras_vit itself writes."""
_TIMM_FAMILIES = {"timm: dinov2": "timm_dinov2_reg4", "timm: siglip": "timm_siglip2_so400m_rect"}
"""Families that share timm's names, and differ in their JSON."""

FORMATS = (*_NPZ, "timm", "transformers", "sharded", "keras_vit")
READERS = (*FORMATS, *FAMILIES, *BUILT, *WRITTEN, *_TIMM_FAMILIES, "images", *answers.READERS)
"""What a campaign is about: a format with its container and JSON, presets, images, servers."""


def given(reader: str) -> dict[str, Any]:
    """Arguments of `inspect` that the files of a reader leave open."""
    return _GIVEN.get(reader, {})


def make(reader: str, folder: Path) -> None:
    """Fills a folder with a good input."""
    from tests.helpers import random_tiny  # Keras, which a child of a campaign need not import

    source = CHECKPOINTS / "vit_token_published.npz"
    family = {**FAMILIES, **_TIMM_FAMILIES}.get(reader)
    if reader == "images":
        rng = np.random.default_rng(0)
        pixels = np.kron(
            rng.integers(0, 256, (6, 8, 3), dtype="uint8"), np.ones((4, 4, 1), "uint8")
        )
        for suffix, name in IMAGES.items():
            Image.fromarray(pixels).save(folder / f"x.{suffix}", name)
    elif reader in answers.READERS:
        answers.make(reader, folder)
    elif reader == "open_clip/timm_eva_trunk":
        _trunk(CHECKPOINTS.parent / "families" / FAMILIES[reader], folder)
    elif reader == "open_clip":
        _copy(CHECKPOINTS.parent / "families" / FAMILIES[reader], folder)
        (folder / "open_clip_config.json").write_text(json.dumps(_OF_OPEN_CLIP))
    elif family is not None:
        _copy(CHECKPOINTS.parent / "families" / family, folder)
    elif reader in BUILT:
        _build(reader, folder)
    elif reader in WRITTEN:
        save(random_tiny(**accepted(WRITTEN[reader])[0].to_dict()), folder, reader)
    elif reader == "sharded":
        convert(source, folder, "timm", lossy=True)
        split(folder)
    elif reader == "keras_vit":
        _preset(source, folder)
    else:
        library = formats_named(reader)[0].library
        file = folder / f"x.{library.container}"
        convert(source, folder if library.write else file, reader, lossy=True)


def _copy(source: Path, folder: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, folder, dirs_exist_ok=True)
    else:
        shutil.copy(source, folder / "x.safetensors")


def _trunk(source: Path, folder: Path) -> None:
    """A tower of timm as open_clip stores it: behind a prefix, with the JSON of open_clip."""
    arrays = load_file(source / "model.safetensors")
    stored = {
        "visual.head.proj.weight" if name == "head.weight" else f"visual.trunk.{name}": array
        for name, array in arrays.items()
        if name != "head.bias"
    }
    save_file(stored, folder / "x.safetensors")


def _build(reader: str, folder: Path) -> None:
    """A model of transformers with random weights, or one of its files under Facebook's names."""
    if reader == "facebook":
        from tests.plain import stored
        from weights.test_data.other_names import FOLDER, as_facebook

        arrays = as_facebook(stored(FOLDER / "hf_dinov2_model" / "model.safetensors"))
        return save_file(arrays, folder / "x.safetensors")
    if reader.startswith("keras_hub"):
        from tests.checkpoints.keras_hub_backbones import make_backbone

        family = "CLIP" if "/clip" in reader else "SigLIP"
        return make_backbone(family)[0].save_to_preset(str(folder))
    import transformers

    from tests import torchvision_shim  # noqa: F401

    name, fields = _CLASSES[reader]
    kind = getattr(transformers, name)
    return kind(kind.config_class(**fields)).save_pretrained(folder)


def _preset(source: Path, folder: Path) -> None:
    """A preset as `save_to_preset` writes it; that needs a backend, which one does not matter."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    from keras_vit import VisionTransformer

    labels = [f"class {k}" for k in range(VisionTransformer.from_preset(source).config.num_classes)]
    VisionTransformer.from_preset(source, class_names=labels).save_to_preset(folder)
