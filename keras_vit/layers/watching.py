"""A watcher reads, and may change, what the layers of a model compute on their way.

Explanations need gradients by attention weights and by tokens. No layer returns these, and the
fused attention never forms the weights. While a watcher is in place, `Attention` forms them and
hands them over, and every block hands over the tokens that enter it and those that leave it. The
model itself is called as always, so that a subclass, a hook, LoRA or a quantised part takes part
in what is explained.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Watcher:
    """Sees what passes, and returns what the model goes on with. This one changes nothing."""

    def attention(self, layer: Any, weights: Any) -> Any:
        """Takes the softmax weights of an `Attention`, float32 `(batch, heads, tokens, others)`."""
        return weights

    def enters(self, layer: Any, tokens: Any) -> Any:
        """Takes the tokens that enter a `TransformerBlock`, `(batch, tokens, hidden_size)`."""
        return tokens

    def leaves(self, layer: Any, tokens: Any) -> Any:
        """Takes the tokens that leave a `TransformerBlock`, `(batch, tokens, hidden_size)`."""
        return tokens


_here = threading.local()


def watcher() -> Watcher | None:
    """Returns the watcher of this thread, or None."""
    return getattr(_here, "watcher", None)


@contextmanager
def watched_by(chosen: Watcher) -> Iterator[Watcher]:
    """Puts a watcher in place, in this thread, until the block of code ends."""
    before = watcher()
    _here.watcher = chosen
    try:
        yield chosen
    finally:
        _here.watcher = before
