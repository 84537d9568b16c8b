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
        name: on the command line and in tables.
        tasks: what it takes part in.
        needs: packages that must be installed.
        maker: `module:function` of `benchmarks.peers`, called with the job and `options`.
        options: further keyword arguments of the maker.
        backend: KERAS_BACKEND of its process.
        families: whether it has the models of the families beyond the paper's.
    """

    name: str
    tasks: tuple[str, ...]
    needs: tuple[str, ...]
    maker: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    backend: str = ""
    families: bool = True

    @property
    def library(self) -> str:
        """The backend of the peer, or the runtime of an exported model."""
        runtime = self.options.get("runtime", "")
        return runtime or self.backend or ("jax" if "flax" in self.needs else "torch")

    def missing(self) -> list[str]:
        """Names of the needed packages that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def make(self, job: Job) -> Step:
        """Builds the peer and warms it up; called only in the process of the peer."""
        module, function = self.maker.split(":")
        maker = getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)
        return maker(job, **self.options)


_LIBRARY = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch"}

LIBRARIES = ("torch", "jax", "tensorflow", "openvino", "onnxruntime", "litert")
"""The backends and runtimes, in the order of the tables."""

UNITS = tuple(
    f"products{library}" for library in ("", "-onednn", "-xla", "-tensorflow", "-openvino")
)
"""Peers that compute the model's matrix products alone. The first is the anchor of a run."""


def _keras_peers(prefix: str, maker: str, needs: tuple[str, ...]) -> list[Peer]:
    """The ways to run a Keras model on each backend."""
    peers = []
    for backend, library in _LIBRARY.items():
        modes = {"call": "forward", "predict": "forward", "fit": "train", "loop": "train"}
        if prefix != "keras_vit":
            modes.pop("loop")
        for mode, task in modes.items():
            peers.append(
                Peer(
                    f"{prefix}-{backend}-{mode}",
                    (task,),
                    ("keras", library, *needs),
                    maker,
                    {"mode": mode},
                    backend,
                )
            )
        if backend != "jax" and prefix == "keras_vit":  # Keras compiles JAX by default
            for mode, task in {"call": "forward", "predict": "forward", "fit": "train"}.items():
                peers.append(
                    Peer(
                        f"{prefix}-{backend}-{mode}-compiled",
                        (task,),
                        ("keras", library, *needs),
                        maker,
                        {"mode": mode, "compiled": True},
                        backend,
                    )
                )
    return peers


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("products", ("forward", "train"), ("torch",), "products:make"),
        *(
            Peer(
                f"products-{library}",
                ("forward", "train"),
                (package,),
                "products:by",
                {"library": library},
            )
            for library, package in (
                ("onednn", "torch"),
                ("xla", "jax"),
                ("tensorflow", "tensorflow"),
                ("openvino", "openvino"),
            )
        ),
        *(
            Peer(
                f"{model}-in-{runtime}",
                ("forward",),
                (model, "torch", "onnx", runtime),
                "runtimes:make",
                {"model": model, "runtime": runtime},
                "torch",
            )
            for runtime in ("onnxruntime", "openvino")
            for model in ("timm", "keras_vit")
        ),
        Peer(
            "keras_vit-in-litert",
            ("forward",),
            ("tensorflow", "ai_edge_litert"),
            "runtimes:make",
            {"model": "keras_vit", "runtime": "litert"},
            "tensorflow",
        ),
        Peer(
            "keras_vit-openvino-predict",
            ("forward",),
            ("keras", "openvino"),
            "keras_models:ours",
            {"mode": "predict"},
            "openvino",
        ),
        Peer("timm", ("forward", "train"), ("timm", "torch"), "torch_native:timm"),
        Peer(
            "timm-compiled",
            ("forward", "train"),
            ("timm", "torch"),
            "torch_native:timm",
            {"compiled": True},
        ),
        Peer(
            "timm-max-autotune",
            ("forward", "train"),
            ("timm", "torch"),
            "torch_native:timm",
            {"compiled": "max-autotune"},
        ),
        Peer(
            "transformers", ("forward", "train"), ("transformers", "torch"),
            "torch_native:transformers",
        ),
        Peer("flax", ("forward", "train"), ("flax", "optax"), "flax_vit:make", families=False),
        *_keras_peers("keras_vit", "keras_models:ours", ()),
        *_keras_peers("keras_hub", "keras_models:hub", ("keras_hub",)),
    )
}  # fmt: skip
