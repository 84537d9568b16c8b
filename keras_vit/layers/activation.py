"""The activations of the MLPs, by their names in `keras_vit.config.Numerics`."""

from typing import Any

from keras import ops

from keras_vit import kernels


def activate(x: Any, form: str) -> Any:
    """Returns the activation of every number in `x`.

    Args:
        x: a tensor of any shape.
        form: `"exact"`: GELU; `"tanh"`: its approximation in the official code; `"quick"`:
            x sigmoid(1.702 x), the approximation of CLIP; `"silu"`: x sigmoid(x).
    """
    if form == "silu":
        return ops.silu(x)
    if form == "quick":
        return x * ops.sigmoid(1.702 * x)
    return kernels.gelu(x, form == "tanh")
