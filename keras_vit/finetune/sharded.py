"""Variables that devices of JAX divide, as files that each process writes by Orbax.

Orbax stores every part of an array where it is, and gives each device the part that the device
needs, which may be another part: another number of devices, or of processes, reads the same files.
"""

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.files import failure_named

_NAME = "variables-"


def is_divided(variables: Sequence[Any]) -> bool:
    """Whether devices hold different parts of a variable, and Orbax is there to write them."""
    if keras.backend.backend() != "jax" or not find_spec("orbax"):
        return False
    return any(not variable.value.is_fully_replicated for variable in variables)


def write(variables: Sequence[Any], folder: Path, epoch: int) -> str:
    """Writes variables into a new folder below `folder`, and returns its name.

    Every process must call it.

    Raises:
        WriteError: a file cannot be written.
    """
    import orbax.checkpoint as ocp

    name = f"{_NAME}{epoch:05d}"
    with failure_named(folder / name), ocp.StandardCheckpointer() as writer:
        # Whole variables as NumPy arrays: in a process of one device JAX 0.10.2 loses their parts.
        arrays = {
            key: np.asarray(value) if value.is_fully_replicated else value
            for key, value in _named(variables).items()
        }
        writer.save((folder / name).absolute(), arrays, force=True)
    return name


def read(variables: Sequence[Any], path: Path) -> None:
    """Assigns the stored values to variables, whose layouts may be others than the stored ones.

    Raises:
        CheckpointError: the folder is damaged, or has other variables.
    """
    import jax
    import orbax.checkpoint as ocp

    wanted = {
        name: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding)
        for name, value in _named(variables).items()
    }
    try:
        with ocp.StandardCheckpointer() as reader:
            found = reader.restore(path.absolute(), wanted)
    except Exception as error:  # Orbax raises many types
        raise CheckpointError(
            f"{path}: not a whole state of this training's variables ({error}). Train in another "
            "folder."
        ) from error
    for name, variable in zip(wanted, variables, strict=True):
        variable.assign(found[name])


def remove_others(folder: Path, kept: str | None) -> None:
    """Removes the folders of earlier states, and of states that a kill cut short."""
    for path in folder.glob(f"{_NAME}*"):
        if path.name != kept:
            shutil.rmtree(path, ignore_errors=True)


def _named(variables: Sequence[Any]) -> dict[str, Any]:
    return {f"{k:05d}": variable.value for k, variable in enumerate(variables)}
