"""Opens the arrays of a source."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.containers import SAFETENSORS_DTYPES, Reader, joined, open_arrays
from keras_vit.errors import CheckpointError
from keras_vit.sources.place import Header
from keras_vit.sources.preset_config import PresetConfig
from keras_vit.sources.source import TASK, Source


@dataclasses.dataclass(frozen=True)
class OpenSource:
    """The arrays and JSON of a source, all of one state.

    Args:
        reader: reader of the arrays; its path is for messages.
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
                reader = _reader_of(file)
            else:
                pickles = source.allow_pickle_weights
                arrays = open_arrays(file.name, file, allow_pickle_weights=pickles)
                reader = stack.enter_context(arrays)
            readers.append(("task/" if name == TASK else "", reader))
        first = readers[0][1]
        reader = first if len(readers) == 1 else joined(first.path.parent, readers)
        yield OpenSource(reader, files.json, files.preset, files.is_folder)


def _reader_of(header: Header) -> Reader:
    """Returns the names, shapes and types of a file that was not downloaded, without its arrays."""
    reader = Reader(Path(header.name))
    for name, (word, shape) in header.arrays.items():
        if word not in SAFETENSORS_DTYPES:
            raise CheckpointError(f"{reader.path}: arrays of type {word!r} hold no weights.")
        reader.shapes[name], reader.dtypes[name] = shape, SAFETENSORS_DTYPES[word]
    return reader
