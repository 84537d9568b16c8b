"""Distributed data parallel training on torch: one process per GPU, started by torchrun."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.distribution.processes import connect
from keras_vit.errors import ConfigError

_BUCKET = 25 * 2**20  # bytes that are summed in one call, as in torch's DistributedDataParallel


def ddp(model: Any) -> Any:
    """Trains one model in all processes that torchrun started (distributed data parallel).

    Call it between `compile` and `fit`::

        model.compile(**recipe.compile_args(model))
        keras_vit.distribution.ddp(model)
        model.fit(data, shuffle=False, **recipe.fit_args(model))

    Every process computes the gradient of its part of each batch, which `keras_vit.data` reads. The
    recipe's optimizer takes the mean of the gradients over the processes, and then accumulates,
    clips, updates and averages, so the result is that of one process. The loss and the metrics that
    `fit` prints are those of the images of one process; Keras 3.16 adds up those of all processes,
    and averages the gradients itself.

    Args:
        model: a model on torch that a recipe has compiled.

    Returns:
        The model, with the weights of process 0.

    Raises:
        ConfigError: the backend is not torch, torchrun did not start this process, the optimizer
            is not from a recipe, the weights are sharded by FSDP, or the processes have different
            models or settings. Then every process raises it.
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

    if not hasattr(getattr(model, "optimizer", None), "sum_over_processes"):
        raise ConfigError(
            "ddp needs an optimizer of keras_vit.training, which sums gradients before it clips "
            "them: first model.compile(**recipe.compile_args(model))."
        )
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise ConfigError(
            "The weights are sharded by FSDP, whose gradients are not reduced for the variables of "
            "Keras. Call ddp on the plain model."
        )
    connect()
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    with torch.no_grad():
        for variable in [*model.variables, *optimizer.variables]:
            dist.broadcast(variable.value, 0)
    optimizer.sum_over_processes = not _is_wrapped_by_keras(model)
    return model


def _is_wrapped_by_keras(model: Any) -> bool:
    """Whether `fit` calls the model through torch's DistributedDataParallel, as Keras 3.16 does.

    A custom `train_step` may not do so; then the optimizer averages the gradients.
    """
    return hasattr(model, "ddp_model") and type(model).train_step is keras.Model.train_step


def mean_over_processes(gradients: Sequence[Any]) -> list[Any]:
    """Returns the mean of torch gradients over all processes, summed in buckets of 25 MiB."""
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
