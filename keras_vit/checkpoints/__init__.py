"""Checkpoints of other libraries: `save` writes them, `VisionTransformer.from_preset` reads them.

The functions `info`, `convert` and `verify` stand at the top of the package, as the commands do.
"""

from keras_vit.checkpoints.inspection import CheckpointInfo
from keras_vit.checkpoints.transfer import save
from keras_vit.checkpoints.verification import Check, Verification
from keras_vit.presets.source import Source

__all__ = ["Check", "CheckpointInfo", "Source", "Verification", "save"]
__dir__ = __all__.copy
