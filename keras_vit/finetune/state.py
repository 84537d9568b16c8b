"""The state of a training in one safetensors file, written whole or not at all."""

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
        arrays: name -> array; slashes in names make groups.
        facts: the facts, as plain JSON types.
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
        """Writes a file beside `path` and renames it to `path`.

        Raises:
            WriteError: the file cannot be written; an existing state is unchanged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        # safetensors takes the bytes of an array in memory order and stores no axis order.
        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays.items()}
        text = json.dumps({"format": _FORMAT, **self.facts}, default=float)
        with written_beside(path) as temporary:
            try:
                save_file(arrays, temporary, {"keras_vit": text})
            except SafetensorError as error:  # safetensors has one type for errors of the disk
                raise OSError(errno.EIO, str(error)) from error
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # a power cut must not leave the name without the bytes

    @classmethod
    def read(cls, path: Path) -> "State":
        """Reads a state from a file.

        Raises:
            CheckpointError: the file is damaged, or has another format.
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
