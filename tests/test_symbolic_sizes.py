"""Export tools of torch and JAX record a model, and the graph is correct at every size."""

import keras
import numpy as np
import pytest

from tests.helpers import HYBRID, assert_close, normal, numpy_of, random_tiny
from tests.thorough import times

ANY = {"image_size": None, "position_grid": (3, 3)}
KINDS = {
    "learned": {},
    "map": {"classifier": "map", "position": "sincos2d"},
    "rotary": {"rope": {"form": "dinov3"}, "position": "none"},
    "hybrid": HYBRID,
}
SHAPES = ((1, 16, 16, 3), (2, 24, 40, 3), (3, 48, 32, 3))

only = {
    name: pytest.mark.skipif(keras.backend.backend() != name, reason=f"a tool of {name}")
    for name in ("torch", "jax")
}


@only["torch"]
@pytest.mark.parametrize("kind", ["learned", "rotary"])
def test_torch_export_records_one_program_for_every_size(kind):
    """For any batch size, height and width."""
    import torch

    model = random_tiny(**ANY, **KINDS[kind]).eval()
    open_axes = dict.fromkeys((0, 1, 2), torch.export.Dim.DYNAMIC)
    with torch.no_grad():
        program = torch.export.export(
            _Module(model), (torch.zeros(2, 24, 40, 3),), dynamic_shapes=(open_axes,)
        ).module()
        for shape in SHAPES:
            images = torch.from_numpy(normal(*shape))
            assert_close(program(images), numpy_of(model(images)), 2e-6)


@only["torch"]
@pytest.mark.filterwarnings("ignore")  # torch warns about each size that becomes a constant
def test_torch_jit_trace_records_only_operations_of_torch():
    """Keras's exports to OpenVINO and ONNX use `torch.jit.trace`.

    A converter would read a Python function in the graph as uninitialised memory.
    """
    import torch

    model = random_tiny().eval()
    images = torch.from_numpy(normal(2, 16, 16, 3))
    traced = torch.jit.trace(model, (torch.zeros(2, 16, 16, 3),))  # traces twice and compares
    assert "PythonOp" not in str(traced.inlined_graph)
    assert "^" not in str(traced.inlined_graph)
    assert_close(traced(images), numpy_of(model(images)), 2e-6)


@only["jax"]
@pytest.mark.parametrize("kind", KINDS)
def test_jax_export_records_one_program_for_every_size(kind):
    """Batch, height and width are symbols."""
    import jax
    from jax import export

    model = random_tiny(**ANY, **KINDS[kind])
    parts = model.trainable_variables, model.non_trainable_variables
    states = [[variable.value for variable in part] for part in parts]
    run = jax.jit(lambda images: model.stateless_call(*states, images, training=False)[0])
    shape = export.symbolic_shape("b, 8*h, 8*w, 3", constraints=["h >= 1", "w >= 1"])
    exported = export.export(run)(jax.ShapeDtypeStruct(shape, "float32"))
    for shape in SHAPES[: times(2, 3)]:
        images = normal(*shape)
        assert_close(np.asarray(exported.call(images)), np.asarray(run(images)), 2e-6)


if keras.backend.backend() == "torch":
    import torch

    class _Module(torch.nn.Module):
        """Wraps a model so that its argument has a name, which `dynamic_shapes` needs."""

        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, images):
            return self.model(images)
