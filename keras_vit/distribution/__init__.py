"""Training and prediction on several GPUs or other devices, and in several processes."""

from keras_vit.distribution.layouts import data_parallel, fully_sharded, tensor_parallel
from keras_vit.distribution.processes import data_shard, process
from keras_vit.distribution.torchrun import ddp

__all__ = [
    "data_parallel",
    "data_shard",
    "ddp",
    "fully_sharded",
    "process",
    "tensor_parallel",
]
__dir__ = __all__.copy
