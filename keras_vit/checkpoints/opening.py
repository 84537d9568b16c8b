"""From the open files of a source to their arrays."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import SAFETENSORS_DTYPES, Reader, joined, open_arrays
from keras_vit.errors import CheckpointError
from keras_vit.sources.place import Header
from keras_vit.sources.preset_config import PresetConfig
from keras_vit.sources.source import TASK, Source


@dataclasses.dataclass(frozen=True)
class OpenSource:
    """The arrays and JSON of a source, all of one state.

    Args:
        reader: the arrays; its path is for messages.
        json: the JSON objects beside the weights, by file name.
        preset: contents of `config.json`, if keras_vit wrote it.
        is_folder: whether the source is a folder, which may hold JSON beside the weights.
    """

    reader: Reader
    json: Mapping[str, dict[str, Any]]
    preset: PresetConfig | None = None
    is_folder: bool = False


@contextlib.contextmanager
def open_source(
    source: Source, *, headers: bool = False, checksum: bool = True
) -> Iterator[OpenSource]:
    """Opens the arrays of a source; arguments and errors of `Source.open`.

    Raises:
        CheckpointError: a file of weights is damaged.
    """
    with source.open(headers=headers, checksum=checksum) as files, contextlib.ExitStack() as stack:
        readers: list[tuple[str, Reader]] = []
        for name, file in files.weights.items():
            if isinstance(file, Header):
                reader: Reader = _HeaderReader(file)
            else:
                pickles = source.allow_pickle_weights
                arrays = open_arrays(file.name, file, allow_pickle_weights=pickles)
                reader = stack.enter_context(arrays)
            readers.append(("task/" if name == TASK else "", reader))
        first = readers[0][1]
        reader = first if len(readers) == 1 else joined(first.path.parent, readers)
        yield OpenSource(reader, files.json, files.preset, files.is_folder)


class _HeaderReader(Reader):
    """Names, shapes and types of a file that was not downloaded."""

    def __init__(self, header: Header) -> None:
        super().__init__(Path(header.name))
        self.shapes = {name: shape for name, (_, shape) in header.arrays.items()}
        for name, (word, _) in header.arrays.items():
            if word not in SAFETENSORS_DTYPES:
                raise CheckpointError(f"{self.path}: arrays of type {word!r} hold no weights.")
            self.dtypes[name] = SAFETENSORS_DTYPES[word]

    def read(self, name: str) -> np.ndarray:
        raise CheckpointError(f"{self.path}: only its header was fetched.")
