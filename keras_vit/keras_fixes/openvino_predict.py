"""Predicts with OpenVINO from the present weights, in the precision of the policy, from any thread.

Found 2026-11 in Keras 3.15.1 with OpenVINO 2026.4. Report: docs/upstream/openvino.md.

Symptoms: `predict` and `evaluate` after a change of weights (`load_weights`, `assign`, LoRA) return
the outputs of the old weights. A float32 model computes in bfloat16 on processors that have it.
Batches of alternating shapes compile the model again each time. Threads that predict at the same
time raise "Infer Request is busy".

Cause: weights are constants of the compiled model, which Keras keeps for one shape and never drops.
Keras gives OpenVINO no precision. A compiled model that is called has a single request.

Workaround: compiled models are kept by shape, dropped when a weight has another value, compiled in
a stated precision, and each call has a request of its own.

Leans on: `OpenVINOTrainer._get_compiled_model`, `OpenVINOTrainer._n_main_outputs`,
`OpenVINOTrainer._output_mask_indices`, `Variable._value` (200 calls of `value` per batch take a
hundredth of the time of ViT-S/16 at batch 1).
"""

import threading
from typing import Any, NoReturn

import keras
import openvino

from keras_vit import backend
from keras_vit.keras_fixes import openvino_settings


class CompiledFromWeights:
    """A model whose compiled forms have its present weights; it cannot be trained."""

    _n_main_outputs: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        model = super().__new__(cls, *args, **kwargs)
        # An attribute that is set in the usual way would be tracked by Keras.
        vars(model)["_compiled_forms"] = _Forms()
        return model

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `BackendError`: OpenVINO computes no gradients."""
        raise backend.no_training()

    def train_on_batch(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `BackendError`: OpenVINO computes no gradients."""
        raise backend.no_training()

    def make_predict_function(self, force: bool = False) -> None:
        """Notes the variables of the model; called by Keras at the start of each `predict`."""
        self._compiled_forms.variables = list(self.variables)  # type: ignore[attr-defined]
        super().make_predict_function(force)  # type: ignore[misc]

    def make_test_function(self, force: bool = False) -> None:
        """Notes the variables of the model; called by Keras at the start of each `evaluate`."""
        self._compiled_forms.variables = list(self.variables)  # type: ignore[attr-defined]
        super().make_test_function(force)  # type: ignore[misc]

    def _get_compiled_model(self, data: Any) -> "_Program":
        """Returns the compiled form for a batch; called by Keras for each batch."""
        forms: _Forms = self._compiled_forms  # type: ignore[attr-defined]
        shapes = [(str(x.dtype), tuple(x.shape[1:])) for x in keras.tree.flatten(data)]
        with forms.lock:
            # `Variable.assign` replaces the tensor, so that the old tensor is another object.
            values = [variable._value for variable in forms.variables]
            if list(map(id, values)) != list(map(id, forms.values)):
                forms.values = values
                forms.programs.clear()
            settings = openvino_settings.of(self.dtype_policy)  # type: ignore[attr-defined]
            key = (*shapes, *sorted(settings.items()))
            if key not in forms.programs:
                forms.programs[key] = _Program(self._graph_of(data), settings)
            return forms.programs[key]

    def _graph_of(self, data: Any) -> openvino.Model:
        """Returns the graph for batches of any number of images with the shape of `data`."""
        inputs = keras.tree.map_structure(_parameter, data)
        self.struct_outputs = self(inputs, training=False)  # type: ignore[operator]
        nodes = [tensor.output for tensor in keras.tree.flatten(self.struct_outputs)]
        self._n_main_outputs = len(nodes)
        self._output_mask_indices: dict[int, int] = {}
        parameters = [tensor.output.get_node() for tensor in keras.tree.flatten(inputs)]
        graph = openvino.Model(nodes, parameters, "keras_vit")
        # OpenVINO numbers the nodes of a process. Its cache of compiled models compares names.
        for number, node in enumerate(graph.get_ordered_ops()):
            node.set_friendly_name(f"{node.get_type_name()}_{number}")
        for kind, ports in (("input", graph.inputs), ("output", graph.outputs)):
            for number, port in enumerate(ports):
                port.get_tensor().set_names({f"{kind}_{number}"})
        return graph


class _Forms:
    """The compiled forms of one model, and the weights that they have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.variables: list[Any] = []
        self.values: list[Any] = []
        self.programs: dict[Any, _Program] = {}


class _Program:
    """A compiled graph that several threads may call at the same time."""

    def __init__(self, graph: openvino.Model, settings: dict[str, Any]) -> None:
        self._compiled = openvino.Core().compile_model(graph, "CPU", settings)
        self._idle: list[Any] = []

    def __call__(self, inputs: list[Any]) -> Any:
        try:
            request = self._idle.pop()  # a list pops atomically
        except IndexError:
            request = self._compiled.create_infer_request()
        try:
            return request.infer(inputs, share_inputs=True)
        finally:
            self._idle.append(request)

    def get_property(self, name: str) -> Any:
        """Returns a property of the compiled graph, such as INFERENCE_PRECISION_HINT."""
        return self._compiled.get_property(name)


def _parameter(array: Any) -> Any:
    shape = [-1, *array.shape[1:]]
    dtype = keras.ops.convert_to_tensor(array[:0]).output.get_element_type()
    return keras.ops.convert_to_tensor(openvino.opset16.parameter(shape, dtype).output(0))
