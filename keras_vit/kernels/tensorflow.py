"""TensorFlow kernels: attention in blocks on CPUs, and remat."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_vit.kernels import reference


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """See `reference.remat`."""
    return tf.recompute_grad(function)


def attention(query: Any, key: Any, value: Any, bias: Any = None) -> Any:
    """See `reference.attention`. With many tokens, CPUs compute it block by block.

    Blocks save memory, not time: a training step of ViT-S/16 at 640 pixels takes 2,011 MB above the
    idle process, and 2,845 MB without blocks (benchmarks/decisions.md).
    """
    tokens, others = query.shape[1], key.shape[1]
    few = tokens is None or others is None or tokens * others <= reference.MOST_SCORES
    if few or not _is_on_cpu(query):
        return reference.attention(query, key, value, bias)
    with tf.name_scope("attention_on_cpus"):
        return _in_blocks(query, key, value, bias)


def _is_on_cpu(x: Any) -> bool:
    """Whether a tensor is on a CPU; without a device it goes to an accelerator if there is one."""
    place = tf.DeviceSpec.from_string(x.device).device_type
    kinds = [place] if place else [d.device_type for d in tf.config.list_logical_devices()]
    return set(kinds) == {"CPU"}


def _in_blocks(query: Any, key: Any, value: Any, bias: Any) -> Any:
    size = reference.choose_query_block(key.shape[1])
    attend = tf.recompute_grad(reference.attention)  # does not store scores for the gradient
    done: list[Any] = []
    for start in range(0, query.shape[1], size):
        with tf.control_dependencies(done[-1:]):
            rows = slice(start, start + size)
            further = () if bias is None else (_slice_rows(bias, rows),)
            done.append(attend(query[:, rows], key, value, *further))
    return tf.concat(done, axis=1)


def _slice_rows(bias: Any, rows: slice) -> Any:
    """Returns the bias of some queries; a single row is the bias of every query."""
    return bias if bias.shape[2] == 1 else bias[:, :, rows]
