"""Writes model.pt2, a program of `torch.export`. The module needs torch."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_vit.exporting.plan import ExportPlan, Format


def trace_arguments(graph: Any, plan: ExportPlan) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Returns the graph as a module of torch, an input for tracing, and its open axes."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = graph.model

        def forward(self, images: Any) -> Any:
            return graph(images)

    # No side may equal another one, or a size that the model knows.
    rows, columns = plan.config.stride
    height, width = plan.config.image_size or (3 * rows, 4 * columns)
    if plan.prepares == "resize":
        height, width = 2 * height + 5, 3 * width + 2
    shape = (plan.batch or 2, height, width, plan.config.channels)
    images = torch.zeros(shape, dtype=getattr(torch, plan.input_dtype))
    names = enumerate(("batch", "height", "width"))
    is_open = {k: name for k, name in names if plan.input_shape[k] is None}
    return Module().eval(), (images,), (is_open or None,)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Context for torch's exporters: no gradients, and no warnings about torch's internals."""
    import torch

    # torch 2.13 copies one of its classes, whose copies warn of a deprecation.
    with torch.no_grad(), warnings.catch_warnings(action="ignore", category=FutureWarning):
        yield


def _write(graph: Any, plan: ExportPlan, folder: Path) -> None:
    import torch

    module, inputs, is_open = trace_arguments(graph, plan)
    dynamic = torch.export.Dim.DYNAMIC
    axes = tuple(axis and dict.fromkeys(axis, dynamic) for axis in is_open)
    with recording():
        program = torch.export.export(module, inputs, dynamic_shapes=axes)
    # Into memory first: on a full disk torch 2.13 ends the process, because the destructor of its
    # file writer raises.
    stored = io.BytesIO()
    torch.export.save(program, stored)
    (folder / "model.pt2").write_bytes(stored.getbuffer())


FORMAT = Format(
    model="model.pt2",
    writes={"torch": "torch"},
    reads={"torch": "torch"},
    write=_write,
    program="""\
import numpy as np
import torch

model = torch.export.load("model.pt2").module()
{images}
with torch.no_grad():
    outputs = model(torch.from_numpy(images)).numpy()
""",
)
