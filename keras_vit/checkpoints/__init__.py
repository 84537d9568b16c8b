"""Checkpoints of other libraries: `inspect`, `load`, `save`, `convert` and `verify`."""

from keras_vit.checkpoints.inspection import CheckpointInfo, inspect
from keras_vit.checkpoints.transfer import convert, load, save
from keras_vit.checkpoints.verification import Difference, Verification, verify

__all__ = [
    "CheckpointInfo",
    "Difference",
    "Verification",
    "convert",
    "inspect",
    "load",
    "save",
    "verify",
]
