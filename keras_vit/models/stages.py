"""The intermediate results of a model that a call keeps or changes."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from keras import ops

from keras_vit.errors import ConfigError


class Stages:
    """Intermediate results of one call of a model, chosen by name.

    Names are those of the layers (`patch_embedding`, `block_0`, `encoder_norm`, `pool`,
    `pre_logits`, `head`; see `VisionTransformer`), and:

        logits              output of the head, before softmax or sigmoid
        block_{i}/input     tokens that enter a block, (batch, tokens, hidden_size)
        block_{i}/attention softmax weights (Eq. 6), float32 (batch, heads, tokens, tokens)
        block_{i}/norm      output of a block after the last norm of the model
        pool/attention      weights of attention pooling, float32 (batch, heads, 1, tokens)
        {stage}/token       class token of `block_{i}`, `block_{i}/input`, `block_{i}/norm` or
                            `encoder_norm`, float32 (batch, hidden_size)
        {stage}/gap         mean of the patches there, without the learned tokens
        {stage}/token_and_mean  both side by side, (batch, 2 * hidden_size)

    Args:
        names: names of the stages to keep.
        changes: `{name: tensor}` that are added to stages. The gradient by a change of zeros is
            the gradient by the stage.
        ends_call: whether the call stops at the last chosen stage, without an output.
    """

    def __init__(
        self,
        names: Iterable[str],
        changes: Mapping[str, Any] | None = None,
        *,
        ends_call: bool = False,
    ) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.ends_call = ends_call
        self.changes = dict(changes or {})
        self.values: dict[str, Any] = {}

    def end_call(self) -> bool:
        """Whether the call can stop, because every stage was computed."""
        return self.ends_call and len(self.values) == len(self.names)

    def touches(self, name: str) -> bool:
        """Whether a stage is kept or changed."""
        return name in self.names or name in self.changes

    def keep(self, name: str, value: Any) -> Any:
        """Keeps the value of a stage if it was chosen; returns the value with its change."""
        if name in self.changes:
            value = value + ops.cast(self.changes[name], value.dtype)
        if name in self.names:
            self.values[name] = value
        return value

    def reader(self, name: str) -> dict[str, Callable[[Any], Any]]:
        """Returns the argument by which a layer passes on its attention weights, if needed."""
        if not self.touches(name):
            return {}
        return {"read_weights": lambda weights: self.keep(name, weights)}


NO_WEIGHTS = (
    "{} computed no attention weights in the way of keras_vit's Attention: its attention was "
    "replaced, so that its weights cannot be read."
)


def check_reader(layer: Any, reader: Mapping[str, Any]) -> None:
    """Refuses to read the attention weights of a block or head that was replaced."""
    for part in (layer, getattr(layer, "attention", None)) if reader else ():
        parameters = {} if part is None else inspect.signature(part.call).parameters
        if not any(
            p.name == "read_weights" or p.kind is p.VAR_KEYWORD for p in parameters.values()
        ):
            raise ConfigError(NO_WEIGHTS.format(layer.name))
