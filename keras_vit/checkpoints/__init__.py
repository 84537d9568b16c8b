"""Checkpoints of other libraries: `describe`, `inspect`, `load`, `save`, `convert` and `verify`."""

from keras_vit.checkpoints.inspection import CheckpointInfo, describe, inspect
from keras_vit.checkpoints.source import Source
from keras_vit.checkpoints.transfer import convert, load, save
from keras_vit.checkpoints.verification import Difference, Verification, verify

__all__ = [
    "CheckpointInfo",
    "Difference",
    "Source",
    "Verification",
    "convert",
    "describe",
    "inspect",
    "load",
    "save",
    "verify",
]
