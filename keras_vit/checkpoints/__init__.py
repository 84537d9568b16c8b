"""Checkpoints of other libraries: `save` writes them, `VisionTransformer.from_preset` reads them.

`info`, `convert` and `verify` are in the top-level package, like the commands of the same names.

Reading a checkpoint takes these steps: `opening` opens arrays and JSON, `stated` reads the JSON,
`prefix` finds the encoder among the arrays, `match` finds its format (one of `families`), `facts`
determines the configuration, `fitting` and `moves` plan the translation and compare it with every
array, `adapt` applies the changes that the caller asks for, and `transfer` fills a model. For
writing, `writing` finds a format that can store the model.
"""

from keras_vit.checkpoints.reading import CheckpointInfo
from keras_vit.checkpoints.transfer import save
from keras_vit.checkpoints.verification import Check, Verification
from keras_vit.presets.source import Source

__all__ = ["Check", "CheckpointInfo", "Source", "Verification", "save"]
__dir__ = __all__.copy
