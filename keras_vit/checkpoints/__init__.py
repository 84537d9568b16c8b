"""Checkpoints of other libraries: `inspect`, `load`, `save`, `convert`, `attest` and `verify`."""

from keras_vit.checkpoints.inspection import CheckpointInfo, inspect
from keras_vit.checkpoints.loading import load
from keras_vit.checkpoints.passports import Passport
from keras_vit.checkpoints.transfer import convert, save
from keras_vit.checkpoints.verification import Check, Verification, attest, verify
from keras_vit.sources.source import Source

__all__ = [
    "Check",
    "CheckpointInfo",
    "Passport",
    "Source",
    "Verification",
    "attest",
    "convert",
    "inspect",
    "load",
    "save",
    "verify",
]
