"""`Source`: finds a checkpoint or preset, and opens its files in one consistent state.

A `Source` is a file, a folder, a repository on the Hub, a file of the official bucket or a row of
the catalog. It knows the names and sizes of the files, reads their JSON, opens the weights, and
states their provenance.
"""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, TypeVar

from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.errors import KerasViTError, SourceError, listed, shown
from keras_vit.presets.catalog import CATALOG, Preset, preset_named
from keras_vit.presets.hub import SCHEME, HubFolder
from keras_vit.presets.local_folder import LocalFolder
from keras_vit.presets.place import Header, Location, refuse_pointer
from keras_vit.presets.preset_config import CONFIG_FILE, PresetConfig
from keras_vit.support.files import exists
from keras_vit.support.limits import JSON_BYTES
from keras_vit.support.text import log

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
H5, TASK = "model.weights.h5", "task.weights.h5"
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
PROCESSOR, PROCESSORS = "preprocessor_config.json", "processor_config.json"
"""transformers' preprocessing: a file, or the key `image_processor` of the second, read first."""
COMPANIONS = (
    CONFIG_FILE,  # keras_vit, timm, transformers, keras-hub
    PROCESSOR,  # transformers
    PROCESSORS,  # transformers 5, for a model with a tokenizer
    "task.json",  # this file and the next two: keras-hub
    "preprocessor.json",
    "image_converter.json",
    "open_clip_config.json",  # open_clip
)
"""The JSON files that describe the weights in their folder; other JSON files are not read."""
_ARRAYS, _PICKLES = (".npz", ".safetensors"), (".bin", ".pth", ".pt", ".ckpt")
_TENSORFLOW = "tf_model.h5"
"""File of transformers' TensorFlow classes, which is read instead of a pickle."""
_OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_PAIRED = (WEIGHTS, PICKLE, *_OPEN_CLIP, _TENSORFLOW)
"""Names of weight files that libraries write together with JSON."""
_ATTEMPTS = 20
"""Attempts to open a folder that other processes keep replacing."""


_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class OpenFiles:
    """The open files of a source, in one consistent state.

    Args:
        weights: file name -> the open weight file, or only its header.
        json: the JSON objects that describe the weights, by file name.
        preset: contents of `config.json`, if keras_vit wrote it.
        is_folder: whether the source is a folder, which may have JSON files too.
    """

    weights: Mapping[str, BufferedReader | Header]
    json: Mapping[str, dict[str, Any]]
    preset: PresetConfig | None
    is_folder: bool


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint or preset on this machine, on the Hub, in the bucket or in the catalog.

    Args:
        name: the user's name of the source.
        locate: function that returns the place. It opens a local folder anew in each call, and
            resolves the commit of a repository once.
        row: row of the catalog, if the source is a catalog name.
        allow_pickle_weights: whether weights may be a pickle of torch.
    """

    name: str
    locate: Callable[[], Location]
    row: Preset | None = None
    allow_pickle_weights: bool = False

    @classmethod
    def parse(
        cls,
        source: "str | os.PathLike[str] | Source",
        *,
        allow_pickle_weights: bool = False,
    ) -> "Source":
        """Finds a checkpoint or preset by its name; a `Source` keeps its permission for pickles.

        Args:
            source: a file or folder; `"hf://owner/repo[@revision][/subfolder or file]"`; or a
                name of the catalog. An existing file or folder takes precedence over a name.
            allow_pickle_weights: whether weights may be a pickle of torch.

        Raises:
            SourceError: the file, folder or name does not exist.
            PresetError: the address is malformed, or a request to the Hub fails.
        """
        found = source if isinstance(source, Source) else cls._named(source)
        allow_pickle_weights = allow_pickle_weights or found.allow_pickle_weights
        return dataclasses.replace(found, allow_pickle_weights=allow_pickle_weights)

    @classmethod
    def _named(cls, source: str | os.PathLike[str]) -> "Source":
        if not isinstance(source, (str, os.PathLike)):
            raise SourceError(
                f"A source is a path, a hf:// address or a preset's name, found {shown(source)}. "
                "Write arrays to a file first: safetensors.torch.save_file(state_dict, path)."
            )
        name = os.fspath(source)
        if name.startswith(SCHEME):
            place = HubFolder.locate(name)
            return cls(name, lambda: place)
        path = Path(source)
        # Path("") is the working folder
        if (name and _is_there(path)) or not isinstance(source, str):
            return cls(name, lambda: LocalFolder(path))
        if "://" in name:
            raise SourceError(
                f"{name}: expected hf://owner/repo[@revision][/subfolder], a path or a preset's "
                "name."
            )
        row = preset_named(name)
        if (folder := row.folder) is not None:
            return cls(name, lambda: LocalFolder(folder))
        return cls(name, functools.cache(row.place), row)

    def __str__(self) -> str:
        return self.name

    @property
    def defaults(self) -> dict[str, Any]:
        """Arguments of `VisionTransformer.from_preset` that the catalog row adds to the files."""
        return {} if self.row is None else self.row.defaults()

    def preset(self) -> PresetConfig | None:
        """Returns the contents of `config.json`, or those of a catalog row; opens no weights.

        It is None for checkpoints of other libraries.

        Raises:
            SourceError: `config.json` cannot be read.
            PresetError: `config.json` is damaged, or only the row's file states its model.
        """
        if self.row is not None:
            return self.row.preset_config()
        with contextlib.ExitStack() as stack:
            return self._of_one_state(stack, lambda place: _preset(place, _read_json(place)))

    @contextlib.contextmanager
    def open(self, *, headers: bool = False, checksum: bool = True) -> Iterator[OpenFiles]:
        """Opens weights and JSON, each file once, in one consistent state of their folder.

        Changes of the folder by other processes have no effect on the opened files.

        Args:
            headers: whether names, shapes and types suffice. Weights are then not downloaded if
                the Hub states their headers, and no checksum is computed.
            checksum: whether to compare the weights with the sha256 in a preset's `config.json`.

        Raises:
            SourceError: the source has no weights or several, or their sha256 is wrong.
            PresetError: as `preset`, or a download fails.
        """
        with contextlib.ExitStack() as stack:
            yield self._of_one_state(
                stack,
                lambda place: _open(place, stack, headers, checksum, self.allow_pickle_weights),
            )

    def _of_one_state(self, stack: contextlib.ExitStack, read: Callable[[Location], _T]) -> _T:
        """Reads the place, and reads it again if another process has replaced it meanwhile.

        A writer renames a folder before it removes its files. So a place that is still current
        after reading was read completely.

        Args:
            stack: stack of the files that `read` opens; it is closed before another attempt.
            read: function that reads the place.
        """
        for attempt in range(_ATTEMPTS):
            place = stack.enter_context(contextlib.closing(self.locate()))
            try:
                result = read(place)
                if place.is_current():
                    return result
            except (KerasViTError, FileNotFoundError) as error:
                if attempt + 1 < _ATTEMPTS and not place.is_current():
                    stack.close()
                    continue
                if isinstance(error, KerasViTError):
                    raise
                raise SourceError(
                    f"{error.filename}: the folder lists this file, but it cannot be found. If it "
                    "is a link, its target is missing."
                ) from error
            stack.close()
        raise SourceError(f"{self.name}: another process replaces it faster than it can be read.")

    @property
    def title(self) -> str:
        """A short name to show: that of a preset, or the last two parts of a path or address."""
        return PurePath(*PurePath(self.name).parts[-2:]).as_posix()

    def provenance(self, stated: PresetConfig | None = None) -> dict[str, Any]:
        """Returns the origin of the weights, as plain JSON types.

        It includes the sha256 of a downloaded file of the bucket.
        """
        with contextlib.closing(self.locate()) as place:
            published = self.row.provenance() if self.row is not None else {}
            return {**(stated.provenance if stated else {}), **place.provenance, **published}

    @contextlib.contextmanager
    def local(self) -> Iterator[Path]:
        """Yields the local path of the folder or file, after a download if necessary."""
        with self.open(checksum=False) as opened:
            path = next(Path(file.name) for file in opened.weights.values())
            yield path.parent if opened.is_folder else path


def _is_there(path: Path) -> bool:
    """Whether a path exists, even if it cannot be opened; a name that is too long does not."""
    try:
        return exists(path)
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


@functools.cache
def describe_presets() -> Mapping[str, dict[str, Any]]:
    """Returns the facts of all presets by name, in the form of keras-hub's `presets`.

    The entry `metadata` has `description`, `params`, `path` (the family), `license` and `top1`
    (reported, in percent, or None). The entry `source` is a URL, `hf://owner/repo`, or None for the
    embedded preset.
    """
    return MappingProxyType({name: _description(row) for name, row in CATALOG.items()})


def _description(row: Preset) -> dict[str, Any]:
    preset = Source.parse(row.name).preset() or row.preset_config()
    config = preset.config
    head = f"{preset.prediction.num_answers} classes" if config.num_classes else "features"
    data = row.data.replace("_ft_", ", then ").replace("_", " ")
    metadata = {
        "description": f"Trained on {data}; {row.image_size} pixels; {head}.",
        "params": num_parameters(config),
        "path": row.family,
        "license": row.license,
        "top1": row.top1,
    }
    return {"metadata": metadata, "source": row.source}


def _open(
    place: Location,
    stack: contextlib.ExitStack,
    headers: bool,
    checksum: bool,
    allow_pickle_weights: bool,
) -> OpenFiles:
    files = _read_json(place)
    preset = _preset(place, files)
    if preset is not None and WEIGHTS not in place.files:
        raise SourceError(
            f"{place.address}/{WEIGHTS}: expected the weights of a preset, but the file does not "
            f"exist.{place.note}"
        )
    weights: dict[str, BufferedReader | Header] = {}
    for name in _weights_named(place, files, allow_pickle_weights):
        if headers and (header := place.header(name)):
            weights[name] = header
            continue
        weights[name] = stream = stack.enter_context(place.open(name))
        if checksum and not headers and preset is not None and preset.weights_sha256:
            _compare_checksum(stream, preset.weights_sha256)
    return OpenFiles(weights, files, preset, not place.is_file)


def _compare_checksum(stream: BufferedReader, expected: str) -> None:
    try:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise SourceError(f"{stream.name}: cannot be read ({error.strerror}).") from error
    stream.seek(0)
    if digest != expected:
        refuse_pointer(stream.name, stream.peek(8), SourceError)
        raise SourceError(
            f"{stream.name}: its sha256 is {digest}, config.json says {expected}. The file is "
            "damaged or belongs to another preset. read={'checksum': False} loads it unchecked."
        )


def _preset(place: Location, files: Mapping[str, dict[str, Any]]) -> PresetConfig | None:
    """Returns the contents of `config.json` if it has the key of a keras_vit preset."""
    stored = files.get(CONFIG_FILE, {})
    if "format" not in stored:
        return None
    return PresetConfig.from_dict(stored, f"{place.address}/{CONFIG_FILE}")


def _weights_named(
    place: Location, files: Mapping[str, dict[str, Any]], allow_pickle_weights: bool
) -> list[str]:
    """Returns the names of the weight files to read, by the preferred format that is present."""
    if place.is_file:
        return list(place.files)
    for name in (*_ADAPTERS, WEIGHTS):  # its reader refuses an adapter, also with its base
        if name in place.files:
            return [name]
    indices = (INDEX, PICKLE_INDEX)[: 1 + allow_pickle_weights]
    if index := next((name for name in indices if name in files), None):
        return _shards(place, files, index)
    if H5 in place.files:
        if TASK in place.files and CONFIG_FILE not in files:
            raise SourceError(
                f"{place.address}: config.json and task.json, which name the layer of the head in "
                f"{TASK}, are missing."
            )
        return [name for name in (H5, TASK) if name in place.files]
    weights = sorted(name for name in place.files if name.endswith(_ARRAYS))
    pickles = sorted(name for name in place.files if name.endswith(_PICKLES))
    if not weights and allow_pickle_weights:
        weights = [PICKLE] if PICKLE in pickles else pickles
    if not weights and _TENSORFLOW in place.files:
        weights = [_TENSORFLOW]
    if len(weights) == 1:
        return weights
    if weights:
        advice = f"Choose one: {place.address}/{weights[0]}."
    elif pickles:
        advice = place.pickle_advice
    else:
        advice = "Load it once online." if place.note else place.folder_advice()
    raise SourceError(
        f"{place.address}: expected one weight file ({WEIGHTS}, {INDEX}, {H5} or an npz), "
        f"found {listed(weights or pickles)}.{place.note} {advice}"
    )


def _shards(place: Location, files: Mapping[str, dict[str, Any]], index: str) -> list[str]:
    weight_map = files[index].get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise SourceError(f"{place.address}/{index}: expected a weight_map of names to files.")
    for name in sorted({*names}):
        if name not in place.files:
            raise SourceError(
                f"{place.address}: {index} names {name[:200]!r}, but the folder has no such file."
                f"{place.note}"
            )
    return sorted({*names})


def _read_json(place: Location) -> dict[str, dict[str, Any]]:
    """Returns the JSON objects that describe the weights, by file name, with the index of shards.

    For a single file, they are those of its folder if a library writes weights with this name, or
    if the folder has no other weights.
    """
    if isinstance(place, LocalFolder) and place.is_file:
        with contextlib.closing(place.folder()) as folder:
            paired = place.files.keys() & {*_PAIRED}
            weights = [name for name in folder.files if name.endswith((*_ARRAYS, *_PICKLES))]
            return _read_json(folder) if paired or weights == [*place.files] else {}
    names = () if place.is_file else COMPANIONS
    if WEIGHTS not in place.files:
        names = (*names, INDEX, PICKLE_INDEX)
    found = {name: _read_object(place, name) for name in names if name in place.files}
    nested = found.pop(PROCESSORS, {}).get("image_processor")
    found |= {PROCESSOR: nested} if isinstance(nested, dict) else {}
    has_processor = "model_type" in found.get(CONFIG_FILE, {})  # transformers
    absent = PROCESSOR if has_processor else CONFIG_FILE
    if place.note and names and absent not in found and (has_processor or not found):
        log.warning("%s/%s:%s It is assumed not to exist.", place.address, absent, place.note)
    return found


def _read_object(place: Location, name: str) -> dict[str, Any]:
    where = f"{place.address}/{name}"
    JSON_BYTES.check(place.files[name] or 0, where, SourceError)
    with place.open(name) as stream:
        try:
            text = stream.read(JSON_BYTES.value + 1)
        except OSError as error:
            raise SourceError(f"{where}: cannot be read ({error.strerror}).") from error
    JSON_BYTES.check(len(text), where, SourceError)
    try:
        content = json.loads(text.decode("utf-8"))
    # ValueError: invalid JSON or UTF-8, or a number with more digits than Python reads.
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(
            f"{where}: not a readable JSON file ({error}). Download or write it again."
        ) from error
    if not isinstance(content, dict):
        raise SourceError(f"{where}: expected a JSON object, found {type(content).__name__}.")
    return content
