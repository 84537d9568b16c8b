"""Checkpoints of timm (huggingface/pytorch-image-models): one dialect for each class.

A checkpoint is a folder with `model.safetensors` and `config.json`, as in the Hub's
`timm/vit_base_patch16_224.augreg_in21k`, or the safetensors file alone. In timm the name of an
architecture implies arithmetic (`architectures.py`). A file alone lacks the name (`bare_files.py`).
"""

import dataclasses
import functools

from keras_vit.checkpoints.dialects.timm.bare_files import deduce, undetermined
from keras_vit.checkpoints.dialects.timm.eva import eva
from keras_vit.checkpoints.dialects.timm.naflex import naflex
from keras_vit.checkpoints.dialects.timm.vit import vit

FAMILIES = (
    *(
        dataclasses.replace(
            family,
            deduce=functools.partial(deduce, family.name),
            undetermined=functools.partial(undetermined, family.name),
        )
        for family in (vit, eva)
    ),
    naflex,
)
"""If several families can hold a model, the first is written."""
