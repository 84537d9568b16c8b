"""The state of a training as one safetensors file: whole, or not there."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.files import written_beside

_FORMAT = 1


class State:
    """Arrays by name, and facts as JSON in the header of the file.

    Args:
        arrays: names with slashes make groups.
        facts: plain JSON types.
    """

    def __init__(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        self.arrays = arrays
        self.facts = facts

    def below(self, prefix: str) -> dict[str, np.ndarray]:
        """Returns the arrays of a group, sorted, by the rest of their names."""
        start = f"{prefix}/"
        names = sorted(name for name in self.arrays if name.startswith(start))
        return {name.removeprefix(start): self.arrays[name] for name in names}

    def write(self, path: Path) -> None:
        """Writes beside `path` and renames.

        Raises:
            WriteError: the place cannot be written; the state that stood there is as it was.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        # safetensors stores no order of the axes, and takes the bytes as they lie.
        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays.items()}
        text = json.dumps({"format": _FORMAT, **self.facts}, default=float)
        with written_beside(path) as temporary:
            try:
                save_file(arrays, temporary, {"keras_vit": text})
            except SafetensorError as error:  # an error of the disk has no type of its own there
                raise OSError(errno.EIO, str(error)) from error
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # else a power cut could leave the name without the bytes

    @classmethod
    def read(cls, path: Path) -> "State":
        """Reads it back.

        Raises:
            CheckpointError: the file is damaged, or of another format.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as file:
                facts = json.loads((file.metadata() or {}).get("keras_vit", "{}"))
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, json.JSONDecodeError) as error:
            raise CheckpointError(
                f"{path}: not a whole state of a training ({error}). Delete it to start anew."
            ) from error
        if facts.get("format") != _FORMAT:
            raise CheckpointError(
                f"{path}: a state of format {facts.get('format')}, expected {_FORMAT}. It was not "
                "written by this version of keras_vit.finetune.Resume; train in another folder."
            )
        return cls(arrays, facts)
