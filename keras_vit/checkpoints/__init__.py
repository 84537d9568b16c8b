"""Checkpoints of other libraries: `load` and `save`.

The functions `info`, `convert` and `verify` stand at the top of the package, as the commands do.
"""

from keras_vit.checkpoints.inspection import CheckpointInfo
from keras_vit.checkpoints.loading import load
from keras_vit.checkpoints.transfer import save
from keras_vit.checkpoints.verification import Check, Verification
from keras_vit.presets.source import Source

__all__ = ["Check", "CheckpointInfo", "Source", "Verification", "load", "save"]
