"""Muon: momentum whose steps are orthogonal matrices, for the products of the blocks."""

import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.kernels.reference import at_least_float32
from keras_vit.training.optimizers import LayerwiseAdamW, check_pattern

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The quintic polynomial of the reference code (github.com/KellerJordan/Muon)."""

_ROUNDS = 5


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseMuon(LayerwiseAdamW):
    """Muon for the kernels of the blocks, `LayerwiseAdamW` for all other variables.

        trace  = momentum * trace + gradient
        step   = orthogonal(gradient + momentum * trace)
        weight = weight - rate * (0.2 * sqrt(max(rows, columns)) * step + weight_decay * weight)

    `orthogonal` brings the singular values of a matrix near 1 by five Newton-Schulz iterations
    (K. Jordan and others, *Muon*, 2024). The factor of the step gives it the root mean square of a
    step of AdamW, so that both share learning rate and weight decay (Moonlight, arXiv 2502.16982,
    section 2.2). arXiv 2605.24770 trains Vision Transformers with Muon.

    A kernel is the matrix that its layer multiplies by: query, key and value `(hidden_size,
    num_heads * head_dim)`, each by itself as Jordan advises, and out `(num_heads * head_dim,
    hidden_size)`. `keras.optimizers.Muon` leaves these kernels, which have three axes, to AdamW.

    Args:
        learning_rate, weight_decay, beta_1, beta_2, epsilon, multipliers, decays: as for
            `LayerwiseAdamW`.
        momentum: decay of the trace of gradients.
        matrices: pattern (a regular expression) of the paths of the variables that Muon moves. The
            default is the kernels of the blocks and of attention pooling; patches, positions and
            the head stay with AdamW, as Jordan advises.

    Raises:
        ConfigError: a pattern is no regular expression, or `matrices` fits a variable with
            one axis.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        momentum: float = 0.95,
        matrices: str = r"(^|/)(block_\d+|pool)/.*kernel$",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        check_pattern(matrices)
        self.momentum = momentum
        self.matrices = matrices

    def build_moments(self, variables: list[Any]) -> None:
        """Creates the traces of the matrices, and the running means of the other variables."""
        self.is_matrix = tuple(bool(re.search(self.matrices, v.path)) for v in variables)
        for variable, is_matrix in zip(variables, self.is_matrix, strict=True):
            if is_matrix and len(variable.shape) < 2:
                raise ConfigError(
                    f"matrices={self.matrices!r} fits {variable.path}, whose shape "
                    f"{tuple(variable.shape)} has fewer than two axes."
                )
        others = [v for v, matrix in zip(variables, self.is_matrix, strict=True) if not matrix]
        means, squares = map(iter, self.add_optimizer_variables(others, ["momentum", "velocity"]))
        self.means, self.squares = [], []
        for variable, is_matrix in zip(variables, self.is_matrix, strict=True):
            trace = self.add_variable_from_reference(variable, "momentum") if is_matrix else None
            self.means.append(trace if is_matrix else next(means))
            self.squares.append(None if is_matrix else next(squares))

    def move_all(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Moves the weights by gradients that are already clipped."""
        others: tuple[list[Any], list[Any]] = ([], [])
        for gradient, variable in zip(gradients, variables, strict=True):
            if self.is_matrix[self.indices[id(variable)]]:
                self.update_step(gradient, variable, self.learning_rate)
            else:
                others[0].append(gradient)
                others[1].append(variable)
        super().move_all(*others)

    def move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        """Moves a variable by a gradient of its type, at its own rate and without decay."""
        if not self.is_matrix[index]:
            super().move(gradient, variable, rate, index)
            return
        trace = self.means[index]
        total = self.momentum * trace + gradient
        self.assign(trace, total)
        step = as_matrix(gradient + self.momentum * total, variable.path)
        scale = 0.2 * max(step.shape) ** 0.5
        step = orthogonalise(ops.cast(step, at_least_float32(variable))) * scale
        self.assign_sub(
            variable, rate * ops.cast(ops.reshape(step, variable.shape), gradient.dtype)
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        return {**super().get_config(), "momentum": self.momentum, "matrices": self.matrices}


def as_matrix(kernel: Any, path: str) -> Any:
    """Returns a kernel, or its gradient, as the matrix (inputs, outputs) of its layer's product."""
    joins_heads = path.endswith("/out/kernel")  # of (num_heads, head_dim, hidden_size)
    shape = (-1, kernel.shape[-1]) if joins_heads else (kernel.shape[0], -1)
    return ops.reshape(kernel, shape)


def orthogonalise(matrix: Any) -> Any:
    """Returns a matrix of the same singular vectors, whose singular values are near 1."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = ops.transpose(matrix) if is_tall else matrix
    a, b, c = _COEFFICIENTS
    x = x / (ops.sqrt(ops.sum(ops.square(x))) + 1e-7)
    for _ in range(_ROUNDS):
        gram = ops.matmul(x, ops.transpose(x))
        x = a * x + ops.matmul(b * gram + c * ops.matmul(gram, gram), x)
    return ops.transpose(x) if is_tall else x
