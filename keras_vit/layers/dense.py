"""Keras's Dense and EinsumDense with the matrix product of `keras_vit.kernels`.

Keras writes every product as an einsum or a tensordot with an addition behind it. torch and
TensorFlow are faster with one product of matrices that adds the bias (`benchmarks/kernels.py`, rows
`linear`). Everything else is Keras's: weights, names, activation, regularisers, constraints,
quantisation and LoRA.
"""

import keras
from keras import ops

from keras_vit import kernels


class _Product:
    """The call and the quantisation of both classes."""

    def quantize(self, mode=None, type_check=True, config=None):
        """As Keras's; subclasses are refused unless `type_check=False`, as there."""
        type_check = type_check and type(self) not in (Dense, EinsumDense)
        super().quantize(mode, type_check=type_check, config=config)

    def _product(self, inputs, axes):
        kernel, bias = self.kernel, self.bias  # the kernel with LoRA's share
        kernel = ops.cast(ops.convert_to_tensor(kernel), self.compute_dtype)
        if bias is not None:
            bias = ops.cast(ops.convert_to_tensor(bias), self.compute_dtype)
        outputs = kernels.linear(inputs, kernel, bias, axes)
        return outputs if self.activation is None else self.activation(outputs)


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class Dense(_Product, keras.layers.Dense):
    """`keras.layers.Dense` in the backend's fastest form. Arguments and weights are Keras's."""

    def call(self, inputs, training=None):
        return self._product(inputs, 1)


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class EinsumDense(_Product, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` in the backend's fastest form. Arguments and weights are Keras's.

    The fast form serves equations that sum over the last axes of the input and the first ones of
    the kernel, such as `"btm,mhd->bthd"`, with a bias for every output or none. Keras computes all
    others.
    """

    def call(self, inputs, training=None):
        axes = _summed_axes(self.equation)
        if axes is None or (self.bias is not None and self.bias.shape != self.kernel.shape[axes:]):
            return super().call(inputs)
        return self._product(inputs, axes)


def _summed_axes(equation):
    """How many last axes of the input meet as many first ones of the kernel; None if others do."""
    operands, outputs = equation.split("->")
    inputs, kernel = operands.split(",")
    for axes in range(1, min(len(inputs), len(kernel))):
        if inputs[-axes:] == kernel[:axes] and outputs == inputs[:-axes] + kernel[axes:]:
            return axes
    return None
