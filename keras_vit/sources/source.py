"""The source of a checkpoint or preset, resolved once and opened as one consistent state.

A file, a folder, a repository of the Hub, a file of the official bucket and a row of the catalog
are all a `Source`. It knows the names and sizes of the files, reads their JSON, opens the weights,
and states their provenance.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keras_vit.checkpoints.containers import Reader, joined, open_arrays
from keras_vit.environment.limits import JSON_BYTES
from keras_vit.errors import KerasViTError, SourceError
from keras_vit.files import exists
from keras_vit.sources.checksum import Checksum
from keras_vit.sources.local_folder import LocalFolder
from keras_vit.sources.preset_config import CONFIG_FILE, PresetConfig

if TYPE_CHECKING:
    from keras_vit.sources.catalog import Preset

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
H5, TASK = "model.weights.h5", "task.weights.h5"
COMPANIONS = (
    CONFIG_FILE,  # keras_vit, timm, transformers, keras-hub
    "preprocessor_config.json",  # transformers
    "task.json",  # this file and the next two: keras-hub
    "preprocessor.json",
    "image_converter.json",
    "open_clip_config.json",  # open_clip
)
"""The JSON files that explain the weights beside them; other JSON files are not read."""
PICKLE = "pytorch_model.bin"
_PICKLES = (".bin", ".pth", ".pt", ".ckpt")
_ATTEMPTS = 20
"""Attempts to open a folder that other processes keep replacing."""


_T = TypeVar("_T")


class Place(Protocol):
    """A folder on this machine, on the Hub or in the bucket, or one file of it.

    Attributes:
        address: address of the place, for messages.
        is_file: whether the place is a single file.
        files: file name -> size in bytes, or None if unknown; subfolders are left out.
        provenance: origin of the files, as plain JSON types; complete once they are open.
        pickle_advice: advice for messages if the weights are a pickle.
        note: a sentence for messages about missing files.
    """

    address: str
    is_file: bool
    files: Mapping[str, int | None]
    provenance: dict[str, Any]
    pickle_advice: str
    note: str

    def open(self, name: str) -> BufferedReader:
        """Opens a file, after a download if necessary; its `name` is a path for messages.

        Raises:
            FileNotFoundError: the file was removed, or is a broken link.
        """
        ...

    def header(self, name: str) -> Reader | None:
        """Returns a reader of names, shapes and types alone; None if the file must be opened."""
        ...

    def is_current(self) -> bool:
        """Returns whether the address still leads to this place, which may have been replaced."""
        ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class OpenSource:
    """The open files of a source, all of one state.

    Args:
        reader: the arrays; its path is for messages.
        json: the JSON objects beside the weights, by file name.
        preset: contents of `config.json`, if keras_vit wrote it.
        is_folder: whether the source is a folder, which may hold JSON beside the weights.
        checksum: checksum of the weights, if a preset's `config.json` states it and the caller
            asks for the check.
    """

    reader: Reader
    json: Mapping[str, dict[str, Any]]
    preset: PresetConfig | None = None
    is_folder: bool = False
    checksum: Checksum | None = None

    def verify(self) -> None:
        """Waits for the checksum of the weights.

        Raises:
            SourceError: the checksum differs from `config.json`.
        """
        if self.checksum is not None:
            self.checksum.verify()


class Source:
    """A checkpoint or preset on this machine, on the Hub, in the bucket or in the catalog.

    Args:
        name: the user's name of the source.
        locate: returns the place. A local folder is opened anew by each call; the commit of a
            repository is resolved once.
        row: row of the catalog, if the source is a catalog name.
        allow_pickle_weights: whether weights may be a pickle of torch.
    """

    def __init__(
        self,
        name: str,
        locate: Callable[[], Place],
        row: "Preset | None" = None,
        allow_pickle_weights: bool = False,
    ) -> None:
        self.name = name
        self.row = row
        self.allow_pickle_weights = allow_pickle_weights
        self._locate = locate

    @classmethod
    def of(
        cls, source: "str | os.PathLike[str] | Source", *, allow_pickle_weights: bool = False
    ) -> "Source":
        """Resolves a user's name of a checkpoint or preset; returns a `Source` unchanged.

        Args:
            source: a file or folder; `"hf://owner/repo[@revision][/subfolder or file]"`; or a
                name of the catalog. An existing file or folder takes precedence over a name.
            allow_pickle_weights: whether weights may be a pickle of torch.

        Raises:
            SourceError: the file, folder or name does not exist.
            PresetError: the address is malformed, or the Hub refuses or fails.
        """
        if isinstance(source, Source):
            return source
        from keras_vit.sources.catalog import preset_named
        from keras_vit.sources.hub import SCHEME, HubFolder

        name = os.fspath(source)
        if name.startswith(SCHEME):
            place = HubFolder.locate(name)
            return cls(name, lambda: place, None, allow_pickle_weights)
        path = Path(source)
        if exists(path) or not isinstance(source, str):
            return cls(name, lambda: LocalFolder(path), None, allow_pickle_weights)
        if "://" in name:
            raise SourceError(
                f"{name}: expected hf://owner/repo[@revision][/subfolder], a path or a preset's "
                "name."
            )
        row = preset_named(name)
        if (folder := row.folder) is not None:
            return cls(name, lambda: LocalFolder(folder))
        place_of_row: Callable[[], Place] = functools.cache(row.place)
        return cls(name, place_of_row, row, allow_pickle_weights)

    def __str__(self) -> str:
        return self.name

    @property
    def sizes(self) -> dict[str, int | None]:
        """File name -> size in bytes, or None if unknown."""
        with contextlib.closing(self._locate()) as place:
            return dict(place.files)

    @property
    def told(self) -> dict[str, Any]:
        """Arguments of `keras_vit.checkpoints.load` that the catalog row adds to the files."""
        return {} if self.row is None else self.row.told()

    def preset(self) -> PresetConfig | None:
        """Returns the config of a catalog row or of keras_vit's `config.json`; opens no weights.

        Raises:
            SourceError: `config.json` cannot be read.
            PresetError: `config.json` is damaged, or only the row's file states its model.
        """
        if self.row is not None:
            return self.row.preset_config()
        with contextlib.ExitStack() as stack:
            return self._of_one_state(stack, lambda place: _preset(place, _read_json(place)))

    @contextlib.contextmanager
    def open(self, *, headers: bool = False, checksum: bool = True) -> Iterator[OpenSource]:
        """Opens weights and JSON, each file once and all of one state of their folder.

        Changes of the folder by other processes have no effect on the opened files.

        Args:
            headers: whether names, shapes and types suffice. Weights are then not downloaded if
                the Hub states their headers, and no checksum is computed.
            checksum: whether to compare the weights with the sha256 in a preset's `config.json`.
                It is computed while the arrays are read, and compared at the end of the `with`
                block; `OpenSource.verify` compares it earlier.

        Raises:
            SourceError: the source has no weights or several, or their sha256 is wrong.
            CheckpointError: a file of weights is damaged.
            PresetError: as `preset`, or a download fails.
        """
        with contextlib.ExitStack() as stack:
            opened = self._of_one_state(
                stack,
                lambda place: _open(place, stack, headers, checksum, self.allow_pickle_weights),
            )
            try:
                yield opened
            except KerasViTError:
                opened.verify()  # damage causes many errors; this message is the clearest
                raise
            opened.verify()

    def _of_one_state(self, stack: contextlib.ExitStack, read: Callable[[Place], _T]) -> _T:
        """Reads the place, and reads it again if it was replaced meanwhile.

        A writer renames a folder before it removes the folder's files. A place that is still
        current after the reading was therefore read completely.

        Args:
            stack: receives the files that `read` opens; it is closed before another attempt.
            read: reads the place.
        """
        for attempt in range(_ATTEMPTS):
            place = stack.enter_context(contextlib.closing(self._locate()))
            last = attempt + 1 == _ATTEMPTS
            try:
                found = read(place)
                if place.is_current():
                    return found
            except KerasViTError:
                if last or place.is_current():
                    raise
            except FileNotFoundError as error:
                if last or place.is_current():
                    raise SourceError(
                        f"{error.filename}: the folder lists this file, but it cannot be found. "
                        "If it is a link, its target is missing."
                    ) from error
            stack.close()
        raise SourceError(f"{self.name}: another process replaces it faster than it can be read.")

    def provenance(self, preset: PresetConfig | None = None) -> dict[str, Any]:
        """Returns the origin of the weights, as plain JSON types; complete once they are open."""
        with contextlib.closing(self._locate()) as place:
            told = self.row.provenance() if self.row is not None else {}
            return {**(preset.provenance if preset else {}), **place.provenance, **told}

    @contextlib.contextmanager
    def local(self) -> Iterator[Path]:
        """Yields the local path of the folder or file, after a download if necessary."""
        with self.open(checksum=False) as opened:
            path = opened.reader.path
            yield path.parent if opened.is_folder and path.is_file() else path


def _open(
    place: Place,
    stack: contextlib.ExitStack,
    headers: bool,
    checksum: bool,
    allow_pickle_weights: bool,
) -> OpenSource:
    files = _read_json(place)
    preset = _preset(place, files)
    if preset is not None and WEIGHTS not in place.files:
        raise SourceError(
            f"{place.address}/{WEIGHTS}: expected the weights of a preset, but the file does not "
            f"exist.{place.note}"
        )
    names = _weights_named(place, files, allow_pickle_weights)
    readers: list[tuple[str, Reader]] = []
    digest: Checksum | None = None
    for name in names:
        prefix = "task/" if name == TASK else ""
        if headers and (header := place.header(name)):
            readers.append((prefix, header))
            continue
        stream = stack.enter_context(place.open(name))
        arrays = open_arrays(stream.name, stream, allow_pickle_weights=allow_pickle_weights)
        readers.append((prefix, stack.enter_context(arrays)))
        if checksum and not headers and preset is not None and preset.weights_sha256:
            digest = Checksum(stream, preset.weights_sha256)
            stack.callback(digest.close)
    folder = readers[0][1].path.parent
    reader = readers[0][1] if len(readers) == 1 else joined(folder, readers)
    return OpenSource(reader, files, preset, not place.is_file, digest)


def _preset(place: Place, files: Mapping[str, dict[str, Any]]) -> PresetConfig | None:
    """Returns the contents of `config.json` if it has the key of a keras_vit preset."""
    stored = files.get(CONFIG_FILE, {})
    if "format" not in stored:
        return None
    return PresetConfig.from_dict(stored, f"{place.address}/{CONFIG_FILE}")


def _weights_named(
    place: Place, files: Mapping[str, dict[str, Any]], allow_pickle_weights: bool
) -> list[str]:
    """Returns the names of the weight files to read, by the preferred format that is present."""
    if place.is_file:
        return list(place.files)
    if WEIGHTS in place.files:
        return [WEIGHTS]
    if INDEX in files:
        return _shards(place, files[INDEX])
    if H5 in place.files:
        if TASK in place.files and CONFIG_FILE not in files:
            raise SourceError(
                f"{place.address}/{TASK}: config.json and task.json, which name the layer of the "
                "head, are missing beside it."
            )
        return [name for name in (H5, TASK) if name in place.files]
    found = sorted(name for name in place.files if name.endswith((".npz", ".safetensors")))
    pickles = sorted(name for name in place.files if name.endswith(_PICKLES))
    if not found and allow_pickle_weights:
        found = [PICKLE] if PICKLE in pickles else pickles
    if len(found) == 1:
        return found
    if found:
        advice = f"Name one: {place.address}/{found[0]}."
    elif pickles:
        advice = place.pickle_advice
    else:
        advice = "If they are in a subfolder, name it."
    raise SourceError(
        f"{place.address}: expected one file of weights ({WEIGHTS}, {INDEX}, {H5} or an npz), "
        f"found {', '.join(found) or 'none'}.{place.note} {advice}"
    )


def _shards(place: Place, index: Mapping[str, Any]) -> list[str]:
    weight_map = index.get("weight_map")
    found = list(weight_map.values()) if isinstance(weight_map, dict) else []
    names = {name for name in found if isinstance(name, str)}
    if not names or not all(isinstance(name, str) for name in found):
        raise SourceError(f"{place.address}/{INDEX}: expected a weight_map of names to files.")
    for name in sorted(names):
        if name not in place.files:
            raise SourceError(
                f"{place.address}: {INDEX} names {name[:200]!r}, but the folder has no such file."
                f"{place.note}"
            )
    return sorted(names)


def _read_json(place: Place) -> dict[str, dict[str, Any]]:
    """Returns the JSON objects beside the weights, by file name, with the index of shards."""
    names = () if place.is_file else COMPANIONS
    if WEIGHTS not in place.files:
        names = (*names, INDEX)
    return {name: _read_object(place, name) for name in names if name in place.files}


def _read_object(place: Place, name: str) -> dict[str, Any]:
    where = f"{place.address}/{name}"
    JSON_BYTES.check(place.files[name] or 0, where, SourceError)
    try:
        with place.open(name) as stream:
            text = stream.read(JSON_BYTES.value + 1)
        JSON_BYTES.check(len(text), where, SourceError)
        content = json.loads(text.decode("utf-8"))
    except KerasViTError:
        raise
    # ValueError: invalid JSON or UTF-8, or a number with more digits than Python reads.
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(f"{where}: not a readable JSON file ({error}).") from error
    if not isinstance(content, dict):
        raise SourceError(f"{where}: expected a JSON object, found {type(content).__name__}.")
    return content
