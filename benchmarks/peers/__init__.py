"""The competitors. Each has a name, the packages it needs, and a function that makes a step.

A step is a callable that runs `steps` batches to their end and leaves nothing
pending. Only the process of a peer imports its library.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from benchmarks.sizes import Size

Step = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """The task of all peers of a run."""

    task: str
    size: Size
    batch: int
    dtype: str = "float32"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A competitor.

    Args:
        tasks: what it takes part in.
        needs: packages that must be installed.
        maker: `module:function` of `benchmarks.peers`, called with the job and `options`.
        backend: KERAS_BACKEND of its process.
        options: further keyword arguments of the maker.
        families: whether it has the models of the families beyond the paper's.
    """

    tasks: tuple[str, ...]
    needs: tuple[str, ...]
    maker: str
    backend: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    families: bool = True

    @property
    def library(self) -> str:
        """The backend of the peer, or the runtime of an exported model."""
        runtime: str = self.options.get("runtime", "")
        return runtime or self.backend or ("jax" if "flax" in self.needs else "torch")

    def missing(self) -> list[str]:
        """Names of the needed packages that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def make(self, job: Job) -> Step:
        """Builds the peer and warms it up; called only in the process of the peer."""
        module, function = self.maker.split(":")
        maker = getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)
        step: Step = maker(job, **self.options)
        return step


BACKENDS = ("torch", "jax", "tensorflow")
LIBRARIES = (*BACKENDS, "openvino", "onnxruntime")
"""The backends and runtimes, in the order of the tables."""

_BOTH = ("forward", "train")
_MODES = {"call": "forward", "predict": "forward", "fit": "train", "loop": "train"}
UNITS = ("products", "products-xla")
"""Peers that compute the model's matrix products alone. The first is the anchor of a run."""


def _keras_peers(library: str, maker: str) -> dict[str, Peer]:
    """The ways to run a Keras model on each backend."""
    peers = {}
    for backend in BACKENDS:
        needs = ("keras", backend, library)
        for mode, task in _MODES.items():
            if mode == "loop" and library != "keras_vit":
                continue
            if mode in ("call", "loop") and backend == "tensorflow":
                continue
            name = f"{library}-{backend}-{mode}"
            peers[name] = Peer((task,), needs, maker, backend, {"mode": mode})
            # Keras compiles JAX by default.
            if library == "keras_vit" and backend != "jax" and mode != "loop":
                compiled = {"mode": mode, "compiled": True}
                peers[f"{name}-compiled"] = Peer((task,), needs, maker, backend, compiled)
    return peers


def _torch(*needs: str, **options: Any) -> Peer:
    return Peer(_BOTH, (*needs, "torch"), f"torch_native:{needs[0]}", "", options)


PEERS: dict[str, Peer] = {
    "products": Peer(_BOTH, ("torch",), "products:make", "", {"library": "torch"}),
    "products-xla": Peer(_BOTH, ("jax", "torch"), "products:make", "", {"library": "xla"}),
    "timm": _torch("timm"),
    "timm-compiled": _torch("timm", compiled=True),
    "transformers": _torch("transformers"),
    "flax": Peer(_BOTH, ("flax", "optax"), "flax_vit:make", families=False),
    **_keras_peers("keras_vit", "keras_models:ours"),
    "keras_vit-openvino-predict": Peer(
        ("forward",), ("keras", "openvino"), "keras_models:ours", "openvino", {"mode": "predict"}
    ),
    **{
        f"keras_vit-{backend}-pretrain": Peer(
            ("train",), ("keras", backend, "keras_vit"), "keras_models:without_labels", backend
        )
        for backend in BACKENDS
    },
    **_keras_peers("keras_hub", "keras_models:hub"),
    **{
        f"{model}-in-{runtime}": Peer(
            ("forward",),
            (model, "torch", "onnx", runtime),
            "runtimes:make",
            "torch",
            {"model": model, "runtime": runtime},
        )
        for runtime in ("onnxruntime", "openvino")
        for model in ("timm", "keras_vit")
    },
}
"""By the name on the command line and in tables."""
