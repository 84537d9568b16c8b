"""Opens the arrays of a source."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints import adapters
from keras_vit.checkpoints.containers import SAFETENSORS_DTYPES, Reader, joined, open_arrays
from keras_vit.errors import CheckpointError, PresetError, SourceError, shown
from keras_vit.presets.hub import SCHEME
from keras_vit.presets.place import Header
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.presets.source import ADAPTER_CONFIG, TASK, Source


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

    An adapter is opened with its base: the arrays are the merged ones, the JSON is the base's.

    Raises:
        CheckpointError: a file of weights is damaged, an adapter does not fit its base, or the base
            that it names cannot be read.
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
        config = files.json.get(ADAPTER_CONFIG, {})
        opened = OpenSource(reader, files.json, files.preset, files.is_folder)
        if adapters.is_adapted(reader.shapes, bool(config)):
            base = None
            if not adapters.has_base(reader.shapes):
                named = _find_base(source, reader.path, config)
                try:
                    base = Source.parse(named, allow_pickle_weights=source.allow_pickle_weights)
                    opening = open_source(base, headers=headers, checksum=checksum)
                    opened = stack.enter_context(opening)
                except (CheckpointError, PresetError) as error:
                    if source.base is not None:
                        raise
                    raise SourceError(
                        f"{reader.path}: the base of this adapter cannot be read. Give base=, "
                        f"another source of the same model. {error}"
                    ) from error
            merged = adapters.merge(reader, config, None if base is None else opened.reader)
            opened = dataclasses.replace(opened, reader=merged)
        elif source.base is not None:
            raise CheckpointError(f"{reader.path}: base= is for adapters; this is a whole model.")
        yield opened


def _find_base(
    source: Source, path: Path, config: Mapping[str, Any]
) -> str | os.PathLike[str] | Source:
    """Returns the base of an adapter: the caller's, a local folder, or a repository of the Hub.

    An adapter of the Hub names no folder of this machine.
    """
    if source.base is not None:
        return source.base
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if isinstance(name, str) and name:
        if not source.name.startswith(SCHEME) and Path(name).exists():
            return Path(name)
        if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            at = f"@{revision}" if isinstance(revision, str) and revision else ""
            return f"{SCHEME}{name}{at}"
    raise CheckpointError(
        f"{path}: an adapter without its base. base_model_name_or_path of {ADAPTER_CONFIG} is "
        f"{shown(name)}, which is neither a folder here nor a repository of the Hub. Give base=, "
        "the source of the model that the adapter was trained on."
    )


def _choose_reader(header: Header) -> Reader:
    """Returns the names, shapes and types of a file that was not downloaded, without its arrays."""
    reader = Reader(Path(header.name))
    for name, (word, shape) in header.arrays.items():
        if word not in SAFETENSORS_DTYPES:
            raise CheckpointError(f"{reader.path}: arrays of type {word!r} hold no weights.")
        reader.shapes[name], reader.dtypes[name] = shape, SAFETENSORS_DTYPES[word]
    return reader
