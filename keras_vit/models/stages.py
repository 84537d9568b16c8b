"""Intermediate results (features) of a model, by the name of their stage."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from keras import ops

from keras_vit.errors import ConfigError


class Stages:
    """Collects intermediate results (features) of one call of a model, chosen by name.

    Stages have the names of the layers (`patch_embedding`, `block_0`, `encoder_norm`, `pool`,
    `pre_logits`, `head`; see `VisionTransformer`), and:

        logits              output of the head, before softmax or sigmoid
        block_{i}/input     input of a block, (batch, tokens, hidden_size)
        block_{i}/attention softmax weights (Eq. 6), float32 (batch, heads, tokens, tokens)
        block_{i}/norm      output of a block after the last norm of the model
        pool/attention      weights of attention pooling, float32 (batch, heads, 1, tokens)
        {stage}/token       class token of `block_{i}`, `block_{i}/input`, `block_{i}/norm` or
                            `encoder_norm`, float32 (batch, hidden_size)
        {stage}/gap         mean of the patch tokens there
        {stage}/token_and_mean  both concatenated, (batch, 2 * hidden_size)

    Args:
        names: names of the stages to collect.
        changes: `{name: tensor}` to add to stages. The gradient with respect to a change of zeros
            is the gradient with respect to the stage.
        ends_call: whether the call stops after the last chosen stage, without an output.
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
        """Whether the call can stop, because all stages are computed."""
        return self.ends_call and len(self.values) == len(self.names)

    def touches(self, name: str) -> bool:
        """Whether a stage is collected or changed."""
        return name in self.names or name in self.changes

    def keep(self, name: str, value: Any) -> Any:
        """Stores the value of a stage if it was chosen; returns the value with its change."""
        if name in self.changes:
            value = value + ops.cast(self.changes[name], value.dtype)
        if name in self.names:
            self.values[name] = value
        return value

    def reader(self, name: str) -> dict[str, Callable[[Any], Any]]:
        """Returns the argument `read_weights` for a layer whose attention weights are needed."""
        if not self.touches(name):
            return {}
        return {"read_weights": lambda weights: self.keep(name, weights)}


NO_WEIGHTS = (
    "Cannot read the attention weights of {}: its attention layer was replaced by one that does "
    "not support the argument read_weights of keras_vit.layers.Attention."
)


def check_reader(layer: Any, reader: Mapping[str, Any]) -> None:
    """Refuses to read the attention weights of a block or head that was replaced."""
    for part in (layer, getattr(layer, "attention", None)) if reader else ():
        parameters = {} if part is None else inspect.signature(part.call).parameters
        if not any(
            p.name == "read_weights" or p.kind is p.VAR_KEYWORD for p in parameters.values()
        ):
            raise ConfigError(NO_WEIGHTS.format(layer.name))
