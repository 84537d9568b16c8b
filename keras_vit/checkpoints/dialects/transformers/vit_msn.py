"""transformers' MSN (arXiv 2204.07141)."""

import dataclasses

from keras_vit.checkpoints.dialects.base import Names
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers import common, vit

_WORDS: dict[str, Names] = {
    # transformers 5 writes a classifier's tokens and last norm with `vit.`, its blocks without.
    path: (*names, *(dataclasses.replace(name, outside=True) for name in names))
    if path.startswith("block_")
    else names
    for path, names in TORCH.names(vit.NAMES).items()
}

FAMILIES = (
    vit.family_with_blocks(
        "vit_msn",
        "vit.",
        ("ViTMSNForImageClassification", "ViTMSNModel"),
        {**_WORDS, **common.classifier_names()},
        epsilon=1e-6,
    ),
)
