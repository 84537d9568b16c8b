"""The state of a training in one file, and the random states of Python, NumPy and torch in it."""

import errno
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.files import written_beside

Arrays = Mapping[str, np.ndarray]

_FORMAT = 1


def write_state(path: Path, arrays: Arrays, facts: dict[str, Any]) -> None:
    """Writes a file beside `path` and renames it to `path`.

    Args:
        path: path of the file.
        arrays: name -> array; slashes in names make groups.
        facts: plain JSON types, for the header of the file.

    Raises:
        WriteError: the file cannot be written; an existing state is unchanged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors takes the bytes of an array in memory order and stores no axis order.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps({"format": _FORMAT, **facts}, default=float)
    with written_beside(path) as temporary:
        try:
            save_file(ordered, temporary, {"keras_vit": text})
        except SafetensorError as error:  # safetensors has one type for errors of the disk
            raise OSError(errno.EIO, str(error)) from error
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # a power cut must not leave the name without the bytes


def read_state(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns the arrays, sorted by name, and the facts of a state.

    Raises:
        CheckpointError: the file is damaged, or has another format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            facts = json.loads((file.metadata() or {}).get("keras_vit", "{}"))
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path}: not a whole state of a training ({error}). Delete it to start anew."
        ) from error
    if facts.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path}: a state of format {facts.get('format')}, expected {_FORMAT}. It was not "
            "written by this version of keras_vit.finetune.Resume; train in another folder."
        )
    return arrays, facts


def group(arrays: Arrays, name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a group by the rest of their names."""
    start = f"{name}/"
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


def random_states() -> dict[str, np.ndarray]:
    """Returns the global random states that training draws from, by name.

    Layers keep their seeds as variables. `fit` shuffles with Python's `random` or NumPy's, and
    on torch a dropout without a seed draws from torch's global generator.
    """
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    states = {
        "python": np.array([version, *words], "int64"),
        "python_gauss": np.array([] if gauss is None else [gauss], "float64"),
        "numpy": np.array([*keys, position, has_gauss], "int64"),
        "numpy_gauss": np.array([cached], "float64"),
    }
    if keras.backend.backend() == "torch":
        import torch

        states["torch"] = torch.get_rng_state().numpy()
        for device, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch_cuda_{device}"] = state.numpy()
    return states


def set_random_states(states: Arrays) -> None:
    """Sets the states that `random_states` returned."""
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    *keys, position, has_gauss = states["numpy"].tolist()
    cached = float(states["numpy_gauss"][0])
    np.random.set_state(("MT19937", np.array(keys, "uint32"), position, has_gauss, cached))
    if "torch" in states:
        import torch

        torch.set_rng_state(torch.from_numpy(states["torch"].copy()))
        for device in range(torch.cuda.device_count()):
            if f"torch_cuda_{device}" in states:
                state = torch.from_numpy(states[f"torch_cuda_{device}"].copy())
                torch.cuda.set_rng_state(state, device)
