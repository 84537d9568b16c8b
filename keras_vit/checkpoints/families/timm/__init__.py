"""Checkpoints of timm (huggingface/pytorch-image-models), with one table per class.

A checkpoint is a folder with `model.safetensors` and `config.json`, as in the Hub's
`timm/vit_base_patch16_224.augreg_in21k`, or the safetensors file alone. In timm the name of an
architecture implies arithmetic (`architectures.py`); for a file alone, the caller gives the name
(`by_name.py`).
"""

from keras_vit.checkpoints.families.timm import eva, naflex, vit

FAMILIES = (*vit.FAMILIES, *eva.FAMILIES, *naflex.FAMILIES)
"""If several families can store a model, the first is written."""
