"""Opens the arrays of a source."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.containers import SAFETENSORS_DTYPES, Reader, joined, open_arrays
from keras_vit.errors import CheckpointError
from keras_vit.presets.place import Header
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.presets.source import TASK, Source

_ADAPTED = re.compile(r"(^|\.)(lora|hada|lokr|ia3)_|\.base_layer\.")
"""Names of the arrays of a PEFT adapter, and of a layer inside of one."""


@dataclasses.dataclass(frozen=True)
class OpenSource:
    """The arrays and JSON of a source, opened together.

    Args:
        reader: reader of the arrays; its path is for messages.
        json: the JSON objects that accompany the weights, by file name.
        preset: contents of `config.json`, if keras_vit wrote it.
        is_folder: whether the source is a folder, so that the JSON belongs to the weights.
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
        CheckpointError: a file of weights is damaged, or contains an adapter.
    """
    with source.open(headers=headers, checksum=checksum) as files, contextlib.ExitStack() as stack:
        readers: list[tuple[str, Reader]] = []
        for name, file in files.weights.items():
            if isinstance(file, Header):
                reader = _choose_reader(file)
            else:
                allowed = source.allow_pickle_weights
                arrays = open_arrays(file.name, file, allow_pickle_weights=allowed)
                reader = stack.enter_context(arrays)
            readers.append(("task/" if name == TASK else "", reader))
        first = readers[0][1]
        reader = first if len(readers) == 1 else joined(first.path.parent, readers)
        if any(map(_ADAPTED.search, reader.shapes)):
            raise CheckpointError(
                f"{reader.path}: this is a PEFT adapter, or a model with an unmerged one. Save "
                "the merged model with peft: model.merge_and_unload().save_pretrained(folder)."
            )
        yield OpenSource(reader, files.json, files.preset, files.is_folder)


def _choose_reader(header: Header) -> Reader:
    """Returns the names, shapes and types of a file that was not downloaded, without its arrays."""
    reader = Reader(Path(header.name))
    for name, (word, shape) in header.arrays.items():
        if word not in SAFETENSORS_DTYPES:
            raise CheckpointError(f"{reader.path}: arrays of type {word!r} cannot be weights.")
        reader.shapes[name], reader.dtypes[name] = shape, SAFETENSORS_DTYPES[word]
    return reader
