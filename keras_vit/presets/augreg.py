"""Parses the file names of the 50,000 checkpoints of AugReg.

Steiner et al. (2022), https://arxiv.org/abs/2106.10270. A file's name states its training and,
after two dashes, its fine-tuning:

    B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_384
"""

import re
from typing import Any

from keras_vit.errors import PresetError
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.presets.bucket import OFFICIAL

FOLDER = OFFICIAL + "vit_models/augreg/"
INDEX = FOLDER + "index.csv"

_VARIANTS = {
    "Ti_16": "vit_ti16",
    "S_16": "vit_s16",
    "S_32": "vit_s32",
    "B_8": "vit_b8",
    "B_16": "vit_b16",
    "B_32": "vit_b32",
    "L_16": "vit_l16",
    "R_Ti_16": "r_vit_ti16",
    "R26_S_32": "r26_vit_s32",
    "R26_B_32": "r26_vit_b32",
    "R50_L_32": "r50_vit_l32",
}
"""Key of AUGREG_CONFIGS in `vit_jax/configs/models.py` -> name of the variant."""

_CLASSES = {
    "i1k": 1000,
    "i21k": 21843,
    "imagenet2012": 1000,
    "cifar10": 10,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
}
_LABELS = {"i1k": "imagenet1k", "imagenet2012": "imagenet1k", "i21k": "imagenet21k"}

_NAME = re.compile(
    r"(?P<model>\w+)-(?P<data>\w+)-\d+ep-lr_[\w.]+-aug_\w+-wd_[\w.]+-do_[\w.]+-sd_[\w.]+"
    r"(--(?P<adapt_data>[\w-]+)-steps_\w+-lr_[\w.]+-res_(?P<resolution>\d+))?"
)


def read_file_name(name: str) -> dict[str, Any]:
    """Returns the fields of a catalog row that a file name states, with or without `.npz`.

    Images are cropped from 448 pixels to 384 (`configs/augreg.py`), or from 256 to 224, which is
    big_vision's default.

    Raises:
        PresetError: it is not such a name.
    """
    name = name.removesuffix(".npz")
    match = _NAME.fullmatch(name)
    if match is None:
        raise PresetError(
            f"{name!r}: not a file name of AugReg; expected for example "
            "'S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0', with or without "
            f"'--imagenet2012-steps_20k-lr_0.03-res_384'. {INDEX} lists them."
        )
    last = match["adapt_data"] or match["data"]
    resolution = int(match["resolution"] or 224)  # pre-training is at 224 pixels
    crop: ProtocolSpec = {"name": "big_vision", "resize_small": 448, "image_size": 384}
    return {
        "name": f"augreg/{name}.npz",
        "source": f"{FOLDER}{name}.npz",
        "variant": _VARIANTS.get(match["model"]),
        "data": match["data"] + (f"_ft_{last}" if match["adapt_data"] else ""),
        "image_size": resolution,
        "num_classes": _CLASSES.get(last),
        "class_names": _LABELS.get(last),
        "protocol": crop if resolution == 384 else "big_vision",
    }
