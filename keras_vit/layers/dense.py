"""Keras's Dense and EinsumDense with the matrix product of `keras_vit.kernels`.

torch is faster with one matrix product that adds the bias than with Keras's tensordot and an
addition behind it (`python -m benchmarks.kernels`, rows `linear`), and JAX trains faster with a
matrix as the kernel (benchmarks/notes). Weights, names, activation, regularisers, constraints,
quantisation and LoRA are Keras's.
"""

import keras

from keras_vit import kernels
from keras_vit.fixes.deleted_weights import little_to_search

_KERNELS = keras.layers.Dense.kernel, keras.layers.EinsumDense.kernel


class _Product:
    """The call and the quantisation of both classes."""

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantises as Keras does; a subclass needs `type_check=False`, as in Keras."""
        type_check = type_check and type(self) not in (Dense, EinsumDense)
        with little_to_search():
            super().quantize(mode, type_check=type_check, config=config)

    def _int8_call(self, inputs, training=None):
        """Computes the layer quantised to 8 bits; called by Keras."""
        axes, quantizer = self._axes(), getattr(self, "inputs_quantizer", None)
        if axes is None or quantizer is None or self.lora_enabled:
            return super()._int8_call(inputs, training)
        kernel, scale = kernels.tensor(self._kernel), kernels.tensor(self.kernel_scale)
        outputs = kernels.int8_linear(inputs, kernel, scale, quantizer, axes)
        if outputs is None:
            return super()._int8_call(inputs, training)
        if self.bias is not None:
            outputs = outputs + kernels.tensor(self.bias, self.compute_dtype)
        return outputs if self.activation is None else self.activation(outputs)

    def matrix(self):
        """Returns `kernel`, read directly where Keras returns the weight as it is.

        Keras looks for quantisation at each read, which takes as long as a small product on torch.
        """
        if self.quantization_mode or self.lora_enabled or type(self).kernel not in _KERNELS:
            return self.kernel
        return self._kernel

    def _product(self, inputs, axes):
        dtype, bias = self.compute_dtype, self.bias
        bias = None if bias is None else kernels.tensor(bias, dtype)
        outputs = kernels.linear(inputs, kernels.tensor(self.matrix(), dtype), bias, axes)
        return outputs if self.activation is None else self.activation(outputs)


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class Dense(_Product, keras.layers.Dense):
    """`keras.layers.Dense` in the backend's fastest form. Arguments and weights are Keras's."""

    def call(self, inputs, training=None):
        return self._product(inputs, 1)

    def _axes(self):
        return 1


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class EinsumDense(_Product, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` in the backend's fastest form. Arguments and weights are Keras's.

    The fast form serves equations that sum over the last axes of the input and the first axes of
    the kernel, such as `"btm,mhd->bthd"`, with a bias for every output or without bias. Keras
    computes all other equations.
    """

    def __init__(self, equation, *args, **kwargs):
        super().__init__(equation, *args, **kwargs)
        self._summed_axes = _summed_axes(equation)

    def call(self, inputs, training=None):
        axes = self._axes()
        return super().call(inputs) if axes is None else self._product(inputs, axes)

    def _axes(self):
        """Returns the number of summed axes, or None if Keras computes the equation or the bias."""
        axes, bias = _summed_axes(self.equation), self.bias
        if axes is not None and bias is not None and bias.shape != self._kernel.shape[axes:]:
            return None
        return axes


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
