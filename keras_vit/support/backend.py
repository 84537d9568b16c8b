"""Chooses Keras's backend on a machine where the user has not chosen one.

Keras uses TensorFlow unless `KERAS_BACKEND` or `~/.keras/keras.json` names another backend, and
fails with a long traceback if TensorFlow is not installed. If one backend is installed, the user
need not choose: `import keras_vit` makes Keras use it.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

from keras_vit.errors import BackendError, listed, nearest
from keras_vit.support.extras import is_installed

BACKENDS = {
    "tensorflow": ("tensorflow",),
    "jax": ("jax", "jaxlib"),
    "torch": ("torch",),
    "openvino": ("openvino",),
}
"""Keras's name of each backend, and the packages that it needs; see also `packages`."""

ONLY_PREDICTS = "openvino"
"""The backend without gradients; it is chosen automatically only if no other is installed."""

_ONLY_ONE = "the only one that is installed; KERAS_BACKEND names another"
_set_here: set[str] = set()


def choose() -> None:
    """Sets `KERAS_BACKEND` to the only installed backend, unless the user has chosen a backend.

    This has no effect in a process that has already imported Keras.
    """
    name, why = chosen_backend()
    there = [other for other in installed() if other != ONLY_PREDICTS] or installed()
    # Keras itself writes its default, tensorflow, into keras.json: the user did not choose it.
    chosen = why == "KERAS_BACKEND" or name != "tensorflow"
    if "keras" not in sys.modules and not chosen and len(there) == 1 and name not in there:
        os.environ["KERAS_BACKEND"] = there[0]
        _set_here.add(there[0])


def chosen_backend() -> tuple[str, str]:
    """Returns the backend that Keras will use, and the reason."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name, _ONLY_ONE if name in _set_here else "KERAS_BACKEND"
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return str(json.loads((home / "keras.json").read_text())["backend"]), f"{home}/keras.json"
    except (OSError, ValueError, LookupError, TypeError):
        return "tensorflow", "the default of Keras; set KERAS_BACKEND for another"


def note() -> str | None:
    """Returns a sentence about the backend if `choose` has set it, else None."""
    name, why = chosen_backend()
    return f"computes with {name}, {why}." if why == _ONLY_ONE else None


def start(saves: bool = False) -> str:
    """Imports Keras and its backend, without the lines that TensorFlow logs while it is imported.

    Two of TensorFlow's libraries write to stderr while they are loaded, whatever the value of
    `TF_CPP_MIN_LOG_LEVEL` (version 2.21, 2026-11-23). Every output of the command line would begin
    with these lines.

    Args:
        saves: whether Keras will draw seeds or save a model. It then imports TensorFlow on every
            backend, if TensorFlow is installed.

    Returns:
        The captured lines. If the import fails, they are written to stderr.
    """
    lines = ""
    if chosen_backend()[0] == "tensorflow":
        lines += _imported_silently("keras")
    if saves and is_installed("tensorflow"):
        importlib.import_module("keras")  # first, with its own backend
        with contextlib.suppress(ImportError):  # as Keras does
            lines += _imported_silently("tensorflow")
    return lines


def _imported_silently(module: str) -> str:
    """Imports a module; returns the text that was written to stderr meanwhile."""
    if module in sys.modules:
        return ""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            importlib.import_module(module)
        except BaseException:
            output.seek(0)
            os.write(stderr, output.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        output.seek(0)
        return output.read().decode(errors="replace")


def installed() -> list[str]:
    """Returns the backends whose packages can be imported, without importing them."""
    return [name for name in BACKENDS if all(map(is_installed, packages(name)))]


def packages(name: str) -> tuple[str, ...]:
    """Returns the packages that a backend needs; OpenVINO's is outside Keras from 3.16 on."""
    is_parted = name == "openvino" and not _keras_holds_openvino()
    return BACKENDS[name] + ("keras_openvino",) * is_parted


def _keras_holds_openvino() -> bool:
    """Whether OpenVINO's backend is inside the installed Keras, which is not imported."""
    keras = importlib.util.find_spec("keras")
    folder = Path(str(keras and keras.origin)).parent
    return (folder / "src" / "backend" / "openvino").is_dir()


def refusal() -> BackendError | None:
    """Returns an error if Keras cannot start its backend, or None if it is installed."""
    name, why = chosen_backend()
    there = installed()
    if name not in (*BACKENDS, "numpy"):  # Keras's other backend, untested with keras_vit
        return BackendError(
            f"{name!r} ({why}) is not a backend of Keras.{nearest(name, BACKENDS)} KERAS_BACKEND "
            f"takes {listed(BACKENDS)}."
        )
    if name == ONLY_PREDICTS and name not in there and is_installed("openvino"):
        return BackendError(
            f"Keras takes openvino ({why}), and from version 3.16 on needs another package for it: "
            "pip install keras-openvino."
        )
    if not there:
        return BackendError(
            "No backend of Keras is installed. Install one: pip install 'keras-vit-zoo[jax]' "
            "(or [tensorflow] or [torch]; [openvino] predicts, but does not train)."
        )
    if name in BACKENDS and name not in there:
        others = " or ".join(there)
        return BackendError(
            f"Keras uses {name} ({why}), which is not installed; set KERAS_BACKEND to {others}."
        )
    return None


def require_training() -> None:
    """Refuses training and gradients on a backend that only predicts.

    Raises:
        BackendError: the chosen backend is OpenVINO.
    """
    if chosen_backend()[0] == ONLY_PREDICTS:
        raise BackendError(
            "The OpenVINO backend computes no gradients, which training and some explanations "
            "need: set KERAS_BACKEND to jax, torch or tensorflow."
        )
