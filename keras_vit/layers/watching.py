"""Watchers: objects that read, and may change, intermediate results of a model's layers.

Explanations need gradients by attention weights and by tokens. No layer returns these, and the
fused attention never forms the weights. While a watcher is active, `Attention` forms the weights
and passes them to the watcher, and every block passes the tokens that enter and leave it. The
model itself is called as always, so that the explanation includes a subclass, a hook, LoRA or a
quantised part.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Watcher:
    """Gets intermediate results and returns their replacements; this base class changes none."""

    def attention(self, layer: Any, weights: Any) -> Any:
        """Gets the softmax weights of an `Attention`, float32 `(batch, heads, tokens, others)`."""
        return weights

    def enters(self, layer: Any, tokens: Any) -> Any:
        """Gets the tokens that enter a `TransformerBlock`, `(batch, tokens, hidden_size)`."""
        return tokens

    def leaves(self, layer: Any, tokens: Any) -> Any:
        """Gets the tokens that leave a `TransformerBlock`, `(batch, tokens, hidden_size)`."""
        return tokens


_here = threading.local()


def watcher() -> Watcher | None:
    """Returns the watcher of this thread, or None."""
    return getattr(_here, "watcher", None)


@contextmanager
def watched_by(chosen: Watcher) -> Iterator[Watcher]:
    """Makes a watcher active in this thread, until the `with` block ends."""
    before = watcher()
    _here.watcher = chosen
    try:
        yield chosen
    finally:
        _here.watcher = before
