"""Checkpoints of timm (huggingface/pytorch-image-models): one dialect for each class.

As the Hub holds them: a folder with `model.safetensors` and `config.json`, or the safetensors file
alone. timm hides arithmetic behind the name of an architecture, which the file alone lacks
(`architectures.py`).
"""

import dataclasses
import functools

from keras_vit.checkpoints.dialects.timm.bare_files import deduce, undetermined
from keras_vit.checkpoints.dialects.timm.eva import eva
from keras_vit.checkpoints.dialects.timm.vit import vit

FAMILIES = tuple(
    dataclasses.replace(
        family,
        deduce=functools.partial(deduce, family.name),
        undetermined=functools.partial(undetermined, family.name),
    )
    for family in (vit, eva)
)
"""If several families can hold a model, the first is written."""
