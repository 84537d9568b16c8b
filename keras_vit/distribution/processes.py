"""The processes that train one model together, by torch.distributed or JAX's own runtime.

torch: `torchrun --nproc-per-node 2 train.py` starts the processes, and `ddp(model)` connects them.
JAX: `keras.distribution.initialize(...)` connects them before the first computation.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.errors import ConfigError, WriteError

_BUCKET = 25 * 2**20  # bytes that are summed in one call, as in torch's DistributedDataParallel


def process() -> tuple[int, int]:
    """Returns the index of this process, and the number of processes that train together."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        # JAX would start its devices to count the processes of one.
        if jax.distributed.is_initialized():
            return jax.process_index(), jax.process_count()
    if backend == "torch":
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has started the process
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def ddp(model: Any) -> Any:
    """Connects the processes that torchrun started, so that they train a model together.

    The order of the calls is::

        model.compile(**recipe.compile_args)
        keras_vit.distribution.ddp(model)
        model.fit(data, shuffle=False, **recipe.fit_args)

    Every process computes the gradient of its share of each batch, which `keras_vit.data` gives it.
    The recipe's optimizer takes the mean of the gradients over the processes, and then
    accumulates, clips, updates and averages, so that the training is that of one process. The loss
    and the metrics that `fit` prints are those of the process's own images.

    Args:
        model: a model on torch that a recipe has compiled.

    Returns:
        The model, with the weights of process 0.

    Raises:
        ConfigError: the backend is not torch, torchrun did not start this process, the optimizer
            is not a recipe's, the weights are sharded by FSDP, or the processes were given
            different models or settings; then every process raises.
    """
    if keras.backend.backend() != "torch":
        raise ConfigError(
            f"ddp is for torch; Keras runs on {keras.backend.backend()}. See "
            "keras_vit.distribution.data_parallel (JAX) and tf.distribute.MirroredStrategy "
            "(TensorFlow)."
        )
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    if not hasattr(model.optimizer, "sum_over_processes"):
        raise ConfigError(
            "ddp needs an optimizer of keras_vit.finetune, which sums gradients before it clips "
            "them: first model.compile(**recipe.compile_args)."
        )
    if any(isinstance(variable.value, DTensor) for variable in model.variables):
        raise ConfigError(
            "The weights are sharded by FSDP, whose gradients are not reduced for the variables of "
            "Keras. Call ddp on the plain model."
        )
    _connect()
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    _agree(
        {
            "weights": [[w.path, list(w.shape), str(w.dtype)] for w in model.variables],
            "optimizer": {k: v for k, v in optimizer.get_config().items() if k != "name"},
        }
    )
    with torch.no_grad():
        for variable in [*model.variables, *optimizer.variables]:
            dist.broadcast(variable.value, 0)
    optimizer.sum_over_processes = True
    return model


def mean_over_processes(gradients: Sequence[Any]) -> list[Any]:
    """Returns the mean of torch gradients over all processes, bucket by bucket."""
    import torch
    import torch.distributed as dist

    count = dist.get_world_size()
    means: list[Any] = []
    bucket: list[Any] = []

    def reduce() -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        parts = torch.split(flat.div_(count), [gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            # In place: a gradient that its variable holds is clipped in place later.
            means.append(gradient.copy_(part.view_as(gradient)))
        bucket.clear()

    with torch.no_grad():
        for gradient in gradients:
            if bucket and (
                gradient.dtype != bucket[0].dtype or sum(g.nbytes for g in bucket) > _BUCKET
            ):
                reduce()
            bucket.append(gradient)
        reduce()
    return means


def by_the_first(write: Callable[[], object], place: object) -> None:
    """Lets process 0 write; the others wait for it, and fail if it fails.

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
    failed = _all([error is not None])[0][0]
    if error is not None:
        raise error
    if failed:
        message = f"{place}: process 0 could not write it, so process {index} stops too."
        raise WriteError(message, OSError(message))


def as_the_first(value: bool) -> bool:
    """Returns the value of process 0, which may differ in a process that asks a moment later."""
    return value if process()[1] == 1 else bool(_all([value])[0][0])


def _agree(facts: dict[str, Any]) -> None:
    """Raises in every process if the processes have different facts."""
    digests = []
    for value in facts.values():
        text = json.dumps(value, sort_keys=True, default=str)
        digests.append(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))
    everywhere = _all(digests)
    differing = [
        name for k, name in enumerate(facts) if len({digest[k] for digest in everywhere}) > 1
    ]
    if differing:
        raise ConfigError(
            f"The {len(everywhere)} processes have different {' and '.join(differing)}. Start all "
            "with the same program and arguments."
        )


def _connect() -> None:
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise ConfigError("ddp: torchrun did not start this process. torchrun train.py does.")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def _all(numbers: Sequence[int]) -> list[list[int]]:
    """Returns the numbers of every process."""
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(np.array(numbers, "int32")).tolist()
    import torch
    import torch.distributed as dist

    _connect()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    everywhere = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, own)
    return [numbers.tolist() for numbers in everywhere]
