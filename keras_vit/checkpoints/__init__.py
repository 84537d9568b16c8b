"""Checkpoints of other libraries: `save` writes them, `VisionTransformer.from_preset` reads them.

The functions `info`, `convert` and `verify` stand at the top of the package, as the commands do.

A checkpoint passes, in this order, `opening` (arrays and JSON), `stated` (what the JSON says),
`prefix` (the encoder among the arrays), `match` (its format, one of `families`), `facts` (the
configuration), `fitting` and `moves` (the plan, compared with every array), `adapt` (the model that
a caller asks for) and `transfer` (into a model). On the way back, `writing` finds the format that
can hold a model.
"""

from keras_vit.checkpoints.reading import CheckpointInfo
from keras_vit.checkpoints.transfer import save
from keras_vit.checkpoints.verification import Check, Verification
from keras_vit.presets.source import Source

__all__ = ["Check", "CheckpointInfo", "Source", "Verification", "save"]
__dir__ = __all__.copy
