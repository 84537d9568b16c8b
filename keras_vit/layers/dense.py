"""Faster versions of Keras's Dense and EinsumDense, with the matrix product of `keras_vit.kernels`.

On PyTorch, one matrix product that adds the bias is faster than Keras's tensordot followed by an
addition (`python -m benchmarks.kernels`, rows `linear`), and JAX trains faster with a
matrix as the kernel (benchmarks/decisions.md). Weights, names, activation, regularisers,
constraints, quantisation and LoRA are Keras's.
"""

import keras

from keras_vit import kernels
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.support.fixes.deleted_weights import quick_collection


class _Product:
    """The matrix product and the quantisation of both classes."""

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantises as Keras does; a subclass needs `type_check=False`, as in Keras."""
        type_check = type_check and type(self) not in (Dense, EinsumDense)
        with quick_collection():
            super().quantize(mode, type_check=type_check, config=config)

    def _product(self, inputs, kernel, axes):
        dtype, bias = self.compute_dtype, self.bias
        bias = None if bias is None else kernels.tensor(bias, dtype)
        outputs = kernels.linear(inputs, kernels.tensor(kernel, dtype), bias, axes)
        return outputs if self.activation is None else self.activation(outputs)


@keras.saving.register_keras_serializable("keras_vit")
class Dense(_Product, keras.layers.Dense):
    """A faster `keras.layers.Dense` with the same arguments and weights."""

    def call(self, inputs, training=None):
        return self._product(inputs, self.kernel, 1)


@keras.saving.register_keras_serializable("keras_vit")
class EinsumDense(_Product, keras.layers.EinsumDense):
    """A faster `keras.layers.EinsumDense` with the same arguments and weights.

    The fast form supports equations that sum over the last axes of the input and the first axes of
    the kernel, such as `"btm,mhd->bthd"`, with a bias for every output or without bias. Keras
    computes all other equations.
    """

    def call(self, inputs, training=None):
        axes, kernel, bias = _summed_axes(self.equation), self.kernel, self.bias
        if axes is None or (bias is not None and bias.shape != kernel.shape[axes:]):
            return super().call(inputs)
        return self._product(inputs, kernel, axes)


def _summed_axes(equation):
    """Returns n if the equation sums the last n axes of the input and the first n of the kernel.

    Returns None for every other equation.
    """
    operands, outputs = equation.split("->")
    inputs, kernel = operands.split(",")
    for axes in range(1, min(len(inputs), len(kernel))):
        if inputs[-axes:] == kernel[:axes] and outputs == inputs[:-axes] + kernel[axes:]:
            return axes
    return None


@keras.saving.register_keras_serializable("keras_vit")
class DistilledHead(ConfiguredLayer):
    """Classifies the class token and the distillation token with separate heads (DeiT).

    Input `(batch, 2, features)`, output the mean of both heads' logits, `(batch, num_classes)`.
    `both` returns the logits of each head, for training with a teacher (Touvron et al. 2021,
    arXiv 2012.12877, section 4):

        head = model.get_layer("head")
        student = keras.Model(model.input, head.both(head.input))

    Args:
        num_classes: width of each head. Kernels and biases are initialised to zero.
    """

    def __init__(self, num_classes, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = num_classes

    def build(self, input_shape):
        self.heads = []
        for name in ("class", "distillation"):
            head = Dense(
                self.num_classes,
                kernel_initializer="zeros",
                dtype=self.dtype_policy,
                name=name,
            )
            head.build((input_shape[0], input_shape[2]))
            self.heads.append(head)

    def both(self, inputs):
        """Returns the logits of the class token and the logits of the distillation token."""
        return tuple(head(inputs[:, i]) for i, head in enumerate(self.heads))

    def call(self, inputs):
        of_class, of_distillation = self.both(inputs)
        return (of_class + of_distillation) / 2

    def compute_output_shape(self, input_shape):
        return input_shape[0], self.num_classes
