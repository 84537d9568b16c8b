"""Coordinates several processes of JAX or torch: indices, parts of a batch, and who writes.

torch: `torchrun --nproc-per-node 2 train.py` starts the processes, and `ddp(model)` connects them.
JAX: `keras.distribution.initialize(...)` connects them before the first computation.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.errors import ConfigError, WriteError


def process() -> tuple[int, int]:
    """Returns the index of this process, and the number of processes that train together."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        # Without this check JAX would start its devices to count one process.
        if jax.distributed.is_initialized():
            return jax.process_index(), jax.process_count()
    if backend == "torch":
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has started the process
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def data_shard() -> tuple[int, int]:
    """Returns which part of each training batch this process reads: its index and the number.

    On torch every process reads its own part. On JAX the distribution decides: processes whose
    devices divide one copy of the model read the same images, and without a distribution every
    process trains a separate model.

    Returns:
        The index of the part, and the number of parts.

    Raises:
        ConfigError: the devices of a process are not contiguous in the mesh.
    """
    index, count = process()
    if count == 1 or keras.backend.backend() != "jax":
        return index, count
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 0, 1
    mesh = distribution.device_mesh.backend_mesh
    devices = np.moveaxis(mesh.devices, mesh.axis_names.index(distribution.batch_dim_name), 0)
    rows = devices.reshape(len(devices), -1)
    own = [k for k, row in enumerate(rows) if any(d.process_index == index for d in row)]
    if not own or own != list(range(own[0], own[0] + len(own))) or own[0] % len(own):
        raise ConfigError(
            f"Process {index} has the parts {own} of the {len(rows)} along the axis "
            f"{distribution.batch_dim_name!r} of the mesh; expected neighbours. Give the mesh the "
            "devices in the order of keras.distribution.list_devices()."
        )
    return own[0] // len(own), len(rows) // len(own)


def batch_parts() -> int:
    """Returns the number of devices or replicas of a distribution that divide each batch."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return int(tf.distribute.get_strategy().num_replicas_in_sync)
    distribution = keras.distribution.distribution() if backend == "jax" else None
    if distribution is None:
        return 1
    return int(distribution.device_mesh.backend_mesh.shape[distribution.batch_dim_name])


def process_group() -> tuple[int, int]:
    """Returns the index and the number of the processes that call one model together.

    On JAX these are the processes of a distribution. On torch each process has its own model.
    """
    shared = keras.backend.backend() == "jax" and keras.distribution.distribution() is not None
    return process() if shared else (0, 1)


def write_on_first_process(write: Callable[[], object], place: object) -> None:
    """Lets process 0 write; all other processes wait for it, and fail if it fails.

    Raises:
        WriteError: process 0 could not write.
    """
    index, count = process()
    if count == 1:
        write()
        return
    error: BaseException | None = None
    if index == 0:
        try:
            write()
        except BaseException as caught:
            error = caught
    failed = gather_numbers([error is not None])[0][0]
    if error is not None:
        raise error
    if failed:
        message = f"{place}: process 0 could not write it, so process {index} stops."
        raise WriteError(message, OSError(message))


def write_once(write: Callable[[], object], place: object) -> None:
    """Lets one of the processes that share a model write, while the rest wait.

    A process that does not share its model writes itself.
    """
    if process_group()[1] == 1:
        write()
    else:
        write_on_first_process(write, place)


def broadcast_from_first(value: Any) -> Any:
    """Returns the value of process 0, of JSON types; every process must call it.

    Processes that read a file at different moments could have different values.
    """
    if process()[1] == 1:
        return value
    text = json.dumps(value).encode()
    length = gather_numbers([len(text)])[0][0]
    padded = text[:length].ljust(length)  # a process with another text gives as many bytes
    return json.loads(bytes(gather_numbers(list(padded))[0]))


def whole(variable: Any) -> np.ndarray:
    """Returns a variable as one array, even if devices of other processes hold parts of it.

    The parts are gathered in every process, so every process must call it.
    """
    value = getattr(variable, "value", variable)
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(variable)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


def count_replicas() -> int:
    """Returns the number of torch processes, or TensorFlow replicas, that train one model.

    It is 1 on JAX, where a program computes with the images of all devices.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        import torch.distributed as dist

        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if backend == "tensorflow":
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        return 1 if context is None else context.num_replicas_in_sync
    return 1


def mean_over_replicas(tensor: Any) -> Any:
    """Returns the mean of a tensor over all replicas, see `count_replicas`; it has a gradient.

    A loss that is computed from means of all replicas has the gradient of one process.
    """
    count = count_replicas()
    if count == 1:
        return tensor
    if keras.backend.backend() == "torch":
        from torch.distributed.nn.functional import all_reduce

        return all_reduce(tensor) / count
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, tensor)


def on_all_devices() -> Any:
    """Returns the layout of a JAX array that is replicated on all devices; None in one process."""
    if process_group()[1] == 1:
        return None
    import jax

    mesh = keras.distribution.distribution().device_mesh.backend_mesh
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def gather_numbers(numbers: Sequence[int]) -> list[list[int]]:
    """Gathers ints from all processes, a list per process.

    Every process must call it, with equally many ints below 2**31.
    """
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(np.array(numbers, "int32")).tolist()
    import torch
    import torch.distributed as dist

    connect()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    everywhere = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, own)
    return [numbers.tolist() for numbers in everywhere]


def connect() -> None:
    """Connects the processes of torchrun.

    Raises:
        ConfigError: torchrun did not start this process.
    """
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise ConfigError(
            "ddp: torchrun did not start this process. Start it by: torchrun train.py"
        )
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
