"""Inference on OpenVINO: one compiled model per image shape, with the current weights."""

from typing import Any

import keras
import numpy as np
import openvino

from keras_vit.models import inference
from keras_vit.support.fixes import openvino_settings


def padded_size(count: int, batch_size: int) -> int:
    """Returns the batch size for `count` images; OpenVINO does not need padding."""
    return count


class Program:
    """The compiled calls of a model; see `keras_vit.models.inference`.

    Weights are constants of a compiled model, which is recompiled when a weight has changed. Its
    precision is that of the dtype policy: by default OpenVINO would choose bfloat16 if the
    processor supports it. Every thread has its own inference request.
    """

    def __init__(self, owner: Any, model: keras.Model, stages: tuple[str, ...]) -> None:
        self._owner, self._model, self._stages = owner, model, stages
        self._values: list[Any] = []
        self._compiled: dict[Any, _Compiled] = {}

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return self.compiled_for(images)(images)

    def compiled_for(self, images: np.ndarray) -> "_Compiled":
        """Returns the compiled model for images of this shape, with the current weights."""
        with self._owner.lock:
            # `Variable.assign` replaces the tensor, so that a changed weight is another object.
            values = [weight.value for weight in self._model.weights]
            if not inference.are_same(values, self._values):
                self._values = values
                self._compiled.clear()
            settings = openvino_settings.choose(self._model.dtype_policy)
            key = (images.dtype.name, images.shape[1:], *sorted(settings.items()))
            if key not in self._compiled:
                self._compiled[key] = _Compiled(self._model, self._stages, images, settings)
            return self._compiled[key]


class _Compiled:
    """A compiled call for images of one shape, which several threads may run at once."""

    def __init__(
        self, model: Any, stages: tuple[str, ...], images: np.ndarray, settings: dict[str, Any]
    ) -> None:
        dtype = keras.ops.convert_to_tensor(images[:0]).output.get_element_type()
        parameter = openvino.opset16.parameter([-1, *images.shape[1:]], dtype)
        symbol = keras.ops.convert_to_tensor(parameter.output(0))
        values = inference.call(model, symbol, stages)
        self._names = list(values)
        graph = openvino.Model([value.output for value in values.values()], [parameter], "vit")
        # OpenVINO numbers the nodes of a process, but its cache of compiled models compares names.
        for number, node in enumerate(graph.get_ordered_ops()):
            node.set_friendly_name(f"{node.get_type_name()}_{number}")
        for kind, ports in (("input", graph.inputs), ("output", graph.outputs)):
            for number, port in enumerate(ports):
                port.get_tensor().set_names({f"{kind}_{number}"})
        self._program = openvino.Core().compile_model(graph, "CPU", settings)
        self._idle: list[Any] = []

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        try:
            request = self._idle.pop()  # a list pops atomically
        except IndexError:
            request = self._program.create_infer_request()
        try:
            values = request.infer([images], share_inputs=True).to_tuple()
            return dict(zip(self._names, map(inference.as_float32, values), strict=True))
        finally:
            self._idle.append(request)

    def get_property(self, name: str) -> Any:
        """Returns a property of the compiled model, such as INFERENCE_PRECISION_HINT."""
        return self._program.get_property(name)
