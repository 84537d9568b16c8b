"""Lists the installed backends and extras, and the processor, without importing a package."""

import dataclasses
import importlib.metadata
import os
import platform
import sys

from keras_vit.support import __version__
from keras_vit.support.backend import BACKENDS, ONLY_PREDICTS, chosen_backend, packages
from keras_vit.support.processor import choose_products, processor

_LIBRARIES = ("keras", "numpy", "huggingface-hub", "safetensors", "pillow", "grain")
_EXTRAS = {
    "matplotlib": ("figures", "explain"),
    "tensorflow-datasets": ("tfds", "data named tfds:NAME"),
    "datasets": ("huggingface", "data named hf:OWNER/NAME"),
    "ray": ("ray", "keras_vit.ray"),
    "onnxruntime": ("export", "export to ONNX"),
    "ai-edge-litert": ("litert", "export to LiteRT"),
    "fastapi": ("serve", "keras-vit serve"),
    "scikit-learn": ("demo", "keras-vit demo"),
}


@dataclasses.dataclass(frozen=True)
class Component:
    """A part of the environment.

    Args:
        kind: `"machine"`, `"library"`, `"conflict"`, `"backend"` or `"extra"`.
        name: name of the package, or of the property of the machine.
        version: version of the package, or value of the property; None if not installed.
        note: purpose of the package, or the command that installs it.
    """

    kind: str
    name: str
    version: str | None
    note: str = ""


def components() -> list[Component]:
    """Returns the parts of the environment for a bug report; a missing package has no version."""
    chosen, why = chosen_backend()
    own = f"{__version__} (not installed)"
    parts = [
        Component("machine", "system", platform.platform()),
        Component("machine", "python", platform.python_version()),
        Component("machine", "processor", processor().name, f"{os.cpu_count()} cores"),
        Component("machine", "instructions", *_instructions()),
        Component("machine", "products of torch", *choose_products()),
        Component("library", "keras-vit-zoo", _version("keras-vit-zoo") or own),
        *_mixed_up(),
        *(Component("library", name, _version(name)) for name in _LIBRARIES),
    ]
    for name in BACKENDS:
        version = _version(name) or (_version("tensorflow-cpu") if name == "tensorflow" else None)
        notes = ["predicts only; export to OpenVINO"] if name == ONLY_PREDICTS else []
        if "keras_openvino" in packages(name):
            own_package = _version("keras-openvino")
            notes += [f"keras-openvino {own_package or 'is missing: pip install keras-openvino'}"]
        notes += [f"used: {why}" if name == chosen else _install(name, version)]
        notes += [_onednn_of_tensorflow()] if name == "tensorflow" and version else []
        note = "; ".join(note.strip("; ") for note in notes if note)
        parts.append(Component("backend", name, version, note))
    if chosen not in BACKENDS:
        parts.append(Component("backend", chosen, None, f"used: {why}; not one of keras_vit's"))
    for name, (extra, use) in _EXTRAS.items():
        version = _version(name)
        parts.append(Component("extra", name, version, f"{use}{_install(extra, version)}"))
    return parts


def _mixed_up() -> list[Component]:
    """Returns a row if another distribution has replaced or removed `keras_vit/__init__.py`."""
    other = _version("keras-vit")
    if other is None and hasattr(sys.modules["keras_vit"], "__all__"):
        return []
    cure = "pip install --force-reinstall --no-deps keras-vit-zoo"
    removed = "another project, which replaces keras_vit/__init__.py; pip uninstall keras-vit, then"
    note = f"{removed if other else 'it took keras_vit/__init__.py with it;'} {cure}"
    return [Component("conflict", "keras-vit", other, note)]


def _instructions() -> tuple[str, str]:
    """Returns the instruction sets of the processor, and a note on the speed of bfloat16."""
    machine = processor()
    note = ""
    if not machine.flags.isdisjoint({"amx_bf16", "avx512_bf16"}):
        times = "about three times" if "amx_bf16" in machine.flags else "up to 1.8 times"
        note = (
            f"bfloat16 is {times} as fast as float32 here on torch and OpenVINO: "
            'keras.config.set_dtype_policy("mixed_bfloat16")'
        )
    elif machine.flags and not machine.multiplies_bfloat16:
        note = "none for bfloat16, which is slower than float32 on this CPU"
    return ", ".join(machine.instruction_sets) or "unknown", note


_ONEDNN_IS_ON = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}
"""Features of x86 processors on which TensorFlow turns oneDNN on (`cpu_info` of version 2.21)."""


def _onednn_of_tensorflow() -> str:
    """Returns how to turn oneDNN on if TensorFlow leaves it off on this processor, else nothing."""
    flags = processor().flags
    is_left_off = "avx2" in flags and flags.isdisjoint(_ONEDNN_IS_ON)
    if not is_left_off or "TF_ENABLE_ONEDNN_OPTS" in os.environ:
        return ""
    return "oneDNN is off on this processor; for faster batches: export TF_ENABLE_ONEDNN_OPTS=1"


def _install(extra: str, version: str | None) -> str:
    return "" if version else f'; pip install "keras-vit-zoo[{extra}]"'


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
