"""Checkpoints of other libraries: `inspect`, `load`, `save`, `convert` and `verify`."""

from keras_vit.checkpoints.inspection import CheckpointInfo, inspect
from keras_vit.checkpoints.loading import load
from keras_vit.checkpoints.transfer import convert, save
from keras_vit.checkpoints.verification import Check, Verification, verify
from keras_vit.sources.source import Source

__all__ = [
    "Check",
    "CheckpointInfo",
    "Source",
    "Verification",
    "convert",
    "inspect",
    "load",
    "save",
    "verify",
]
