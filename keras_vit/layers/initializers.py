"""The reference's random initialisers, and a context that skips them.

A model that is about to load weights does not need random values: inside
`blank_weights()` all initialisers return zeros, which take neither time nor memory
until they are written to.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_vit import kernels
from keras_vit.support.memory import adopt, aligned

_blank = contextvars.ContextVar("blank_weights", default=False)


@contextlib.contextmanager
def blank_weights() -> Iterator[None]:
    """Initialises the layers that are built inside the context to zeros, not random values."""
    token = _blank.set(True)
    try:
        yield
    finally:
        _blank.reset(token)


class _Drawn(keras.initializers.Initializer):
    """Base class of initialisers that are skipped inside `blank_weights()`."""

    def __call__(self, shape, dtype=None, **kwargs):
        if _blank.get():
            return adopt(aligned(shape, dtype or "float32"))
        return super().__call__(shape, dtype=dtype, **kwargs)


@keras.saving.register_keras_serializable("keras_vit")
class LecunNormal(_Drawn, keras.initializers.LecunNormal):
    """Keras's `LecunNormal`, skipped inside `blank_weights()`."""


@keras.saving.register_keras_serializable("keras_vit")
class RandomNormal(_Drawn, keras.initializers.RandomNormal):
    """Keras's `RandomNormal`, skipped inside `blank_weights()`."""


class _Seeded(keras.initializers.Initializer):
    """Base class of initialisers with a seed, which implement `draw`."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._generator = keras.random.SeedGenerator(seed) if seed is None else None

    def __call__(self, shape, dtype=None):
        seed = self.seed if self._generator is None else self._generator
        return ops.cast(self.draw(shape, seed), dtype or "float32")


@keras.saving.register_keras_serializable("keras_vit")
class XavierUniform(_Drawn, _Seeded):
    """Glorot and Bengio's uniform initialiser over a kernel of any rank.

    Flax reshapes a kernel such as `(hidden_size, heads, head_dim)` to a matrix
    before it computes fan-in and fan-out; Keras treats it as a convolution and
    multiplies them by `hidden_size`. Source: `flax/linen/linear.py`, DenseGeneral.

    Args:
        input_axes: number of leading axes of the kernel that are inputs.
        seed: an int, or None to draw one from Keras's global seed.
    """

    def __init__(self, input_axes: int = 1, seed: int | None = None) -> None:
        super().__init__(seed)
        self.input_axes = input_axes

    def draw(self, shape, seed):
        """Returns a tensor of `shape` in [-limit, limit], limit = sqrt(6 / (fan_in + fan_out))."""
        fan_in = math.prod(shape[: self.input_axes])
        fan_out = math.prod(shape[self.input_axes :])
        return kernels.uniform(shape, math.sqrt(6.0 / (fan_in + fan_out)), seed)

    def get_config(self):
        return {"input_axes": self.input_axes, "seed": self.seed}


@keras.saving.register_keras_serializable("keras_vit")
class MixedFrequencies(_Drawn, _Seeded):
    """Initialises learned frequencies of rotary positions, with a random rotation per head.

    Shape `(2, heads, head_dim / 2)`; the first axis is the coordinate. Source:
    `init_random_2d_freqs` of timm's `layers/pos_embed_sincos.py` (Heo et al. 2024,
    arXiv 2403.13298).

    Args:
        theta: base of the frequencies.
        seed: an int, or None to draw one from Keras's global seed.
    """

    def __init__(self, theta: float = 10.0, seed: int | None = None) -> None:
        super().__init__(seed)
        self.theta = theta

    def draw(self, shape, seed):
        """Returns the frequencies, a tensor of `shape`."""
        _, heads, pairs = shape
        sizes = self.theta ** (-np.arange(pairs // 2) / (pairs // 2))
        sizes = ops.convert_to_tensor(sizes, dtype="float32")
        angles = kernels.uniform((heads, 1), math.pi, seed)
        along, across = sizes * ops.cos(angles), sizes * ops.sin(angles)  # (heads, pairs / 2)
        first = ops.concatenate([along, -across], axis=-1)
        second = ops.concatenate([across, along], axis=-1)
        return ops.stack([first, second])

    def get_config(self):
        return {"theta": self.theta, "seed": self.seed}
