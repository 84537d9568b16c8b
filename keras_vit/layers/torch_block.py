"""Computes an encoder block as one function, for faster inference on PyTorch.

Keras and torch spend 50 microseconds on each call of a layer, and a block has ten sublayers: a
fifth of the time of ViT-S/16 with one image. `call_block` inspects the block once, and
computes Eqs. 2 and 3 if all sublayers are as `TransformerBlock.build` has made them. Otherwise, and
whenever gradients are recorded, Keras calls the block and each sublayer.

The inference function makes the functions of all blocks once for its weights, with `kept_blocks`. A
tiny model of twelve blocks then takes 7 ms instead of 10.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import torch

from keras_vit import kernels
from keras_vit.kernels import torch_products
from keras_vit.kernels.torch import linear_then_gelu
from keras_vit.layers.attention import Attention, norm_over_width
from keras_vit.layers.dense import Dense, EinsumDense
from keras_vit.layers.mlp import MLP, activate
from keras_vit.layers.norms import LayerNorm, RMSNorm
from keras_vit.layers.transformer_block import LayerScale, TransformerBlock
from keras_vit.support.fixes.private_names import fallback


class BlockFunction:
    """Computes Eqs. 2 and 3 for an unmodified block.

    Args:
        block: a `TransformerBlock`.
        keeps_weights: whether the function is called many times with the current weights, which it
            then stores in oneDNN's layout.
    """

    def __init__(self, block: Any, keeps_weights: bool = False) -> None:
        self._block, self._dtype = block, getattr(torch, block.compute_dtype)
        self.policy = block.dtype_policy
        self._keeps_weights = keeps_weights
        self.has_copies = False
        self._attention_norm = self._norm(block.attention_norm)
        self._mlp_norm = self._norm(block.mlp_norm)
        self._query_key_value = self._three(block.attention)
        self._query_key_norms = [self._norm(layer) for layer in _query_key_norms(block.attention)]
        self._out = self._dense(block.attention.out)
        self._hidden, self._dense_1 = self._choose_hidden(block.mlp), self._dense(block.mlp.dense_1)

    def __call__(self, z: Any, rotary: Any, bias: Any) -> Any:
        """Returns the output of the block.

        Args:
            z: a tensor `(batch, tokens, hidden_size)`.
            rotary, bias: arguments of `TransformerBlock.call`.
        """
        block, dtype = self._block, self._dtype
        z, rotary = z.to(dtype), None if rotary is None else rotary.to(dtype)
        x = self._attend(self._attention_norm(z), rotary, bias)
        for layer in block.after_attention:
            x = layer.call(x)
        z = x + z  # Eq. 2
        x = self._transform(self._mlp_norm(z))
        for layer in block.after_mlp:
            x = layer.call(x)
        return x + z  # Eq. 3

    def _attend(self, x: Any, rotary: Any, bias: Any) -> Any:
        """Returns MSA(x), Eqs. 5 to 8."""
        attention = self._block.attention
        query, key, value = self._query_key_value(x)
        query, key = attention.norm_and_rotate(query, key, rotary, self._query_key_norms)
        x = kernels.attention(query, key, value, bias)
        if attention.norm is not None:
            x = norm_over_width(attention.norm.call, x)
        return self._out(x)

    def _transform(self, x: Any) -> Any:
        """Returns MLP(x) of Eq. 3."""
        mlp, x = self._block.mlp, self._hidden(x)
        return self._dense_1(mlp.norm.call(x).to(x.dtype) if mlp.norm is not None else x)

    def _norm(self, layer: Any) -> Callable[[Any], Any]:
        if self._keeps_weights and isinstance(layer, LayerNorm) and layer.is_fast(rank=3):
            gamma, beta = kernels.tensor(layer.gamma), kernels.tensor(layer.beta)
            return lambda z: kernels.layer_norm(z, gamma, beta, layer.epsilon)
        return lambda z: layer.call(z).to(z.dtype)

    def _three(self, attention: Any) -> Callable[[Any], Any]:
        """Returns the function that maps tokens to queries, keys and values."""
        layers, heads = (attention.query, attention.key, attention.value), attention.num_heads
        product = self._product(*layers)
        if product is None:
            calls = [self._dense(layer, (heads, -1)) for layer in layers]
            return lambda x: [call(x) for call in calls]
        return lambda x: product(x.flatten(0, 1)).view(*x.shape[:2], 3, heads, -1).unbind(2)

    def _choose_hidden(self, mlp: Any) -> Callable[[Any], Any]:
        """Returns the function that maps tokens to the hidden layer of an MLP."""
        activation = mlp.block.activation
        if mlp.gate is not None:
            gate, value = self._dense(mlp.gate), self._dense(mlp.value)
            return lambda x: activate(gate(x), activation) * value(x)
        if activation not in ("gelu", "gelu_tanh"):
            dense_0 = self._dense(mlp.dense_0)
            return lambda x: activate(dense_0(x), activation)
        product, approximate = self._product(mlp.dense_0), activation == "gelu_tanh"
        if product is None or not product.by_onednn:
            return lambda x: _call_then_gelu(mlp.dense_0, x, approximate)
        return lambda x: product.then_gelu(x.flatten(0, 1), approximate).view(*x.shape[:2], -1)

    def _dense(self, layer: Any, outputs: Sequence[int] = (-1,)) -> Callable[[Any], Any]:
        """Returns the function of a linear layer, whose output ends with the axes `outputs`."""
        product = self._product(layer)
        if product is None:
            return layer.call
        return lambda x: product(x.reshape(len(x) * x.shape[1], -1)).view(*x.shape[:2], *outputs)

    def _product(self, *layers: Any) -> Any:
        """Returns a kept product of layers with the same input, or None."""
        variables = [layer.kernel for layer in layers]  # with LoRA a sum, not a variable
        if not self._keeps_weights or not all(isinstance(x, keras.Variable) for x in variables):
            return None
        weights = [variable.value for variable in variables]
        if not all(weight.is_contiguous() for weight in weights):
            return None
        inputs = math.prod(weights[0].shape[: 2 if layers[0] is self._block.attention.out else 1])
        matrices = [weight.view(inputs, -1) for weight in weights]
        biases = [None if layer.bias is None else layer.bias.value.reshape(-1) for layer in layers]
        product = torch_products.kept(matrices, biases, self._dtype)
        self.has_copies |= product is not None and product.is_copy
        return product


_kept: ContextVar[Mapping[Any, BlockFunction] | None] = ContextVar("_kept", default=None)


def call_block(block: Any, z: Any, **arguments: Any) -> Any:
    """Returns `block(z, **arguments)`, with one function if the block is unmodified.

    Args:
        block: a `TransformerBlock`, or a layer that replaces it.
        z: a tensor `(batch, tokens, hidden_size)`.
        arguments: further arguments of `TransformerBlock.call`. The function takes `rotary` and
            `bias`; with any other argument, such as `training=True`, Keras calls the block.
    """
    # `torch.jit.trace` traces with and without gradients and compares both programs.
    is_plain = not (torch.is_grad_enabled() or torch.jit.is_tracing())
    others = (x for name, x in arguments.items() if name not in ("rotary", "bias"))
    is_plain = is_plain and all(x is None or x is False for x in others)
    if is_plain and type(z) is torch.Tensor and not z.is_meta and _is_as_built(block):
        kept = None if torch.compiler.is_compiling() else _kept.get()
        function = kept.get(block) if kept else None
        if function is None or function.policy is not block.dtype_policy:
            function = BlockFunction(block)
        return function(z, arguments.get("rotary"), arguments.get("bias"))
    return block(z, **arguments)


def kept_blocks(layers: Iterable[Any]) -> dict[Any, BlockFunction]:
    """Returns the functions, with the current weights, of the unmodified blocks in `layers`."""
    blocks = filter(_is_as_built, layers)
    return {block: BlockFunction(block, keeps_weights=True) for block in blocks}


@contextlib.contextmanager
def using(functions: Mapping[Any, BlockFunction]) -> Iterator[None]:
    """Lets `call_block` use functions of `kept_blocks` inside the context, in this thread."""
    token = _kept.set(functions)
    try:
        yield
    finally:
        _kept.reset(token)


def _query_key_norms(attention: Any) -> list[Any]:
    norms = (attention.query_norm, attention.key_norm)
    return [norm for norm in norms if norm is not None]


def _call_then_gelu(dense: Any, x: Any, approximate: bool) -> Any:
    dtype = dense.compute_dtype
    bias = None if dense.bias is None else kernels.tensor(dense.bias, dtype)
    return linear_then_gelu(x, kernels.tensor(dense.kernel, dtype), bias, approximate)


def _is_as_built(block: Any) -> bool:
    """Whether neither the block nor a sublayer was replaced, hooked, quantised or changed."""
    if type(block) is not TransformerBlock or not block.built or _has_any_hook():
        return False
    attention, mlp, policy = block.attention, block.mlp, block.dtype_policy
    if type(attention) is not Attention or type(mlp) is not MLP:
        return False
    parts = [block, block.attention_norm, attention, block.mlp_norm, mlp, mlp.dense_1]
    parts += [attention.query, attention.key, attention.value, attention.out]
    parts += [mlp.dense_0] if mlp.gate is None else [mlp.gate, mlp.value]
    parts += _query_key_norms(attention)
    parts += [norm for norm in (attention.norm, mlp.norm) if norm is not None]
    parts += [*block.after_attention, *block.after_mlp]
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
        and (kind not in _DENSE or part.activation is keras.activations.linear)
        # A torch without these attributes may have hooks elsewhere: then Keras calls the sublayers.
        and not getattr(part, "_forward_hooks", True)
        and not getattr(part, "_forward_pre_hooks", True)
        and getattr(part, "_compiled_call_impl", True) is None  # `part.compile()` of torch
    )


_NORMS, _DENSE = (LayerNorm, RMSNorm), (Dense, EinsumDense)
_KINDS = (TransformerBlock, Attention, MLP, LayerScale, *_NORMS, *_DENSE)
_CALLS = {kind: (kind.call, kind.__call__) for kind in _KINDS}
"""The methods of the sublayers as this package defines them: a program may replace methods."""
_REPLACEABLE = frozenset(("call", "__call__", "forward"))
_BY_PARTS = "Keras calls each layer of a block, slower with few images"
_has_any_hook = getattr(torch.nn.modules.module, "_has_any_global_hook", None) or fallback(
    "torch.nn.modules.module._has_any_global_hook", lambda: True, _BY_PARTS
)
"""Whether torch has a hook for all modules."""
for _name in ("_forward_hooks", "_forward_pre_hooks", "_compiled_call_impl"):
    if not hasattr(torch.nn.Module(), _name):
        fallback(f"torch.nn.Module.{_name}", None, _BY_PARTS)
