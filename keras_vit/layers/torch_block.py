"""Imports torch: a block of the encoder as one function, for inference.

Keras and torch spend 50 microseconds on the call of a layer before it computes, and a block has ten
parts: a fifth of the time of ViT-S/16 with one image. `call_block` examines the block once, and
computes Eqs. 2 and 3 if all parts are as `TransformerBlock.build` has made them. Otherwise, and
wherever a gradient is recorded, Keras calls the block and each part.
"""

from typing import Any

import keras
import torch

from keras_vit import kernels
from keras_vit.fixes.faults import plain_form
from keras_vit.kernels.torch import linear_then_gelu
from keras_vit.layers.activation import activate
from keras_vit.layers.attention import Attention
from keras_vit.layers.dense import Dense, EinsumDense
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP
from keras_vit.layers.rms_norm import RMSNorm
from keras_vit.layers.transformer_block import TransformerBlock


def call_block(block: Any, z: Any, **arguments: Any) -> Any:
    """Returns `block(z, **arguments)`, by one function if no part of the block was changed.

    Args:
        block: a `TransformerBlock`, or a layer that a user put in its place.
        z: a tensor `(batch, tokens, hidden_size)`.
        arguments: the other arguments of `TransformerBlock.call`. The function takes `rotary` and
            `bias`; with any other argument, such as `training=True`, Keras calls the block.
    """
    # `torch.jit.trace` traces with and without gradients and compares both programs.
    is_plain = not (torch.is_grad_enabled() or torch.jit.is_tracing())
    others = (x for name, x in arguments.items() if name not in ("rotary", "bias"))
    is_plain = is_plain and all(x is None or x is False for x in others)
    if is_plain and type(z) is torch.Tensor and not z.is_meta and _is_as_built(block):
        z, rotary = _cast(block, z, arguments.get("rotary"))
        return _encode(block, z, rotary, arguments.get("bias"))
    return block(z, **arguments)


def _cast(block: Any, *tensors: Any) -> Any:
    dtype = getattr(torch, block.compute_dtype)
    return [x if x is None else x.to(dtype) for x in tensors]


def _encode(block: Any, z: Any, rotary: Any, bias: Any) -> Any:
    """Returns the output of a block, Eqs. 2 and 3."""
    bias = block.with_own_bias(bias, z)
    x = _attend(block.attention, block.attention_norm.call(z).to(z.dtype), rotary, bias)
    x = x if block.layer_scale is None else block.attention_scale.call(x)
    z = x + z  # Eq. 2
    x = _transform(block.mlp, block.mlp_norm.call(z).to(z.dtype))
    x = x if block.layer_scale is None else block.mlp_scale.call(x)
    return x + z  # Eq. 3


def _attend(attention: Any, x: Any, rotary: Any, bias: Any) -> Any:
    """Returns MSA(x), Eqs. 5 to 8."""
    query, key = attention.query.call(x), attention.key.call(x)
    query, key = attention.turn(query, key, rotary)
    x = kernels.attention(query, key, attention.value.call(x), bias)
    if attention.sub_norm:
        x = attention.norm.call(x.flatten(2)).to(x.dtype).view(x.shape)
    return attention.out.call(x)


def _transform(mlp: Any, x: Any) -> Any:
    """Returns MLP(x) of Eq. 3."""
    if mlp.gate_activation is not None:
        x = activate(mlp.gate.call(x), mlp.gate_activation) * mlp.value.call(x)
    elif mlp.gelu in ("tanh", "exact"):
        x = _call_then_gelu(mlp.dense_0, x, mlp.gelu == "tanh")
    else:
        x = activate(mlp.dense_0.call(x), mlp.gelu)
    if mlp.sub_norm:
        x = mlp.norm.call(x).to(x.dtype)
    return mlp.dense_1.call(x)


def _call_then_gelu(dense: Any, x: Any, approximate: bool) -> Any:
    if dense.activation is not keras.activations.linear:
        return kernels.gelu(dense.call(x), approximate)
    dtype = dense.compute_dtype
    bias = None if dense.bias is None else kernels.tensor(dense.bias, dtype)
    return linear_then_gelu(x, kernels.tensor(dense.kernel, dtype), bias, approximate)


def _is_as_built(block: Any) -> bool:
    """Whether neither a block nor a part was replaced, hooked, quantised or otherwise changed."""
    if type(block) is not TransformerBlock or not block.built or _has_any_hook():
        return False
    attention, mlp, policy = block.attention, block.mlp, block.dtype_policy
    if type(attention) is not Attention or type(mlp) is not MLP:
        return False
    parts = [block, block.attention_norm, attention, block.mlp_norm, mlp, mlp.dense_1]
    parts += [attention.query, attention.key, attention.value, attention.out]
    parts += [mlp.dense_0] if mlp.gate_activation is None else [mlp.gate, mlp.value]
    parts += [attention.norm] if attention.sub_norm else []
    parts += [mlp.norm] if mlp.sub_norm else []
    parts += [] if block.layer_scale is None else [block.attention_scale, block.mlp_scale]
    is_whole = all(_is_original(part, policy) for part in parts)
    return is_whole and keras.distribution.distribution() is None


def _is_original(part: Any, policy: Any) -> bool:
    kind, state = type(part), vars(part)
    return (
        kind in _CALLS
        and _CALLS[kind] == (kind.call, kind.__call__)
        and _REPLACEABLE.isdisjoint(state)
        and (part.dtype_policy is policy or not part.autocast or kind in _NORMS)
        and part.activity_regularizer is None
        and (kind not in _DENSE or part.quantization_mode is None)
        # A torch without these attributes may have hooks elsewhere: then Keras calls the parts.
        and not getattr(part, "_forward_hooks", True)
        and not getattr(part, "_forward_pre_hooks", True)
        and getattr(part, "_compiled_call_impl", True) is None  # `part.compile()` of torch
    )


_NORMS, _DENSE = (LayerNorm, RMSNorm), (Dense, EinsumDense)
_KINDS = (TransformerBlock, Attention, MLP, LayerScale, *_NORMS, *_DENSE)
_CALLS = {kind: (kind.call, kind.__call__) for kind in _KINDS}
"""The code of the parts as this package defines it: a program may replace methods of a class."""
_REPLACEABLE = frozenset(("call", "__call__", "forward"))
_BY_PARTS = "Keras calls each part of a block, slower with few images"
_has_any_hook = getattr(torch.nn.modules.module, "_has_any_global_hook", None) or plain_form(
    "torch.nn.modules.module._has_any_global_hook", lambda: True, _BY_PARTS
)
"""Whether torch has a hook for the calls of all modules."""
for _name in ("_forward_hooks", "_forward_pre_hooks", "_compiled_call_impl"):
    if not hasattr(torch.nn.Module(), _name):
        plain_form(f"torch.nn.Module.{_name}", None, _BY_PARTS)
