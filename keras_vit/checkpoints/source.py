"""Where a checkpoint or preset lies: resolved once, and opened as one state.

A file, a folder, a repository of the Hub, a file of the official bucket and a row of the catalog
are all a `Source`. It knows names and sizes of the files, reads the JSON among them, opens the
weights, and tells where they come from.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keras_vit.checkpoints.containers import PICKLE_ADVICE, Reader, joined, open_arrays
from keras_vit.errors import KerasViTError, SourceError
from keras_vit.files import OpenFolder, exists, open_plain
from keras_vit.limits import JSON_BYTES
from keras_vit.presets.preset_config import CONFIG_FILE, PresetConfig

if TYPE_CHECKING:
    from keras_vit.presets.catalog import Preset

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
H5, TASK = "model.weights.h5", "task.weights.h5"
COMPANIONS = (
    CONFIG_FILE,  # keras_vit, timm, transformers, keras-hub
    "preprocessor_config.json",  # transformers
    "task.json",  # this file and the rest: keras-hub
    "preprocessor.json",
    "image_converter.json",
    "metadata.json",
)
"""The JSON files that say how to read the weights beside them; other JSON is not looked at."""
_PICKLES = (".bin", ".pth", ".pt", ".ckpt")
_ATTEMPTS = 20
"""How often a folder may be replaced by other processes while it is being opened."""


_T = TypeVar("_T")


class Place(Protocol):
    """A folder on this machine, on the Hub or in the bucket, or one file of it.

    Attributes:
        address: for messages.
        is_file: whether one file was named, which is then the only one.
        files: names of the files, subfolders left out, with their bytes where these are known.
        provenance: where the files come from, as plain JSON types; complete once they are open.
        pickle_advice: what to do where the weights are a pickle.
        note: a sentence for messages about what is missing.
    """

    address: str
    is_file: bool
    files: Mapping[str, int | None]
    provenance: dict[str, Any]
    pickle_advice: str
    note: str

    def open(self, name: str) -> BufferedReader:
        """Opens a file, fetched if need be; its `name` is a path for messages.

        Raises:
            FileNotFoundError: the file was taken away, or is a link that leads nowhere.
        """
        ...

    def header(self, name: str) -> Reader | None:
        """Returns names, shapes and types of a file's arrays; None if it has to be opened."""
        ...

    def is_current(self) -> bool:
        """Returns whether the place is still what its address leads to."""
        ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class OpenSource:
    """The files of a source, all of one state.

    Args:
        reader: the arrays; its path is for messages.
        json: the JSON objects beside the weights, by file name.
        preset: what `config.json` says, if keras_vit wrote it.
        is_folder: whether JSON could stand beside the weights.
    """

    reader: Reader
    json: Mapping[str, dict[str, Any]]
    preset: PresetConfig | None = None
    is_folder: bool = False


class Source:
    """A checkpoint or preset, wherever it lies.

    Args:
        name: what the user called it.
        locate: returns the place. A local folder is opened anew each time; a repository was
            asked for its commit once.
        row: of the catalog, if the source is one.
    """

    def __init__(self, name: str, locate: Callable[[], Place], row: "Preset | None" = None) -> None:
        self.name = name
        self.row = row
        self._locate = locate

    @classmethod
    def of(cls, source: "str | os.PathLike[str] | Source") -> "Source":
        """Resolves what a user calls a checkpoint or preset; a `Source` stays as it is.

        Args:
            source: a file or folder; `"hf://owner/repo[@revision][/subfolder or file]"`; or a
                name of the catalog. A file or folder that exists goes before a name.

        Raises:
            SourceError: there is no such file, folder or name.
            PresetError: the address is none, or the Hub refuses or fails.
        """
        if isinstance(source, Source):
            return source
        from keras_vit.presets.catalog import preset_named
        from keras_vit.presets.hub import SCHEME, HubFolder

        name = os.fspath(source)
        if name.startswith(SCHEME):
            place = HubFolder.locate(name)
            return cls(name, lambda: place)
        path = Path(source)
        if exists(path) or not isinstance(source, str):
            return cls(name, lambda: LocalFolder(path))
        if "://" in name:
            raise SourceError(
                f"{name}: expected hf://owner/repo[@revision][/subfolder], a path or a preset's "
                "name."
            )
        row = preset_named(name)
        if (folder := row.folder) is not None:
            return cls(name, lambda: LocalFolder(folder))
        place_of_row: Callable[[], Place] = functools.cache(row.place)
        return cls(name, place_of_row, row)

    def __str__(self) -> str:
        return self.name

    @property
    def sizes(self) -> dict[str, int | None]:
        """Names of the files, with their bytes where these are known."""
        with contextlib.closing(self._locate()) as place:
            return dict(place.files)

    @property
    def told(self) -> dict[str, Any]:
        """Arguments of `keras_vit.checkpoints.load` that a catalog row knows beside the files."""
        return {} if self.row is None else self.row.told()

    def preset(self) -> PresetConfig | None:
        """Returns what a catalog row, or a `config.json` of keras_vit, says; opens no weights.

        Raises:
            SourceError: `config.json` cannot be read.
            PresetError: it is damaged, or the row's model is known only to its file.
        """
        if self.row is not None:
            return self.row.preset_config()
        with contextlib.ExitStack() as stack:
            return self._of_one_state(stack, lambda place: _preset(place, _read_json(place)))

    @contextlib.contextmanager
    def open(self, *, headers: bool = False, checksum: bool = True) -> Iterator[OpenSource]:
        """Opens weights and JSON, each file once and all of one state of their folder.

        What another process does to the folder afterwards has no effect on what was opened.

        Args:
            headers: names, shapes and types suffice. No weights are fetched then where the Hub
                tells these, and no checksum is computed.
            checksum: compare the weights with the sha256 in a preset's `config.json`.

        Raises:
            SourceError: there are no weights, or several, or they are not those of `config.json`.
            CheckpointError: a file of weights is damaged.
            PresetError: as `preset`, or a file cannot be fetched.
        """
        with contextlib.ExitStack() as stack:
            yield self._of_one_state(stack, lambda place: _open(place, stack, headers, checksum))

    def _of_one_state(self, stack: contextlib.ExitStack, read: Callable[[Place], _T]) -> _T:
        """Reads a folder that was still in its place afterwards, if need be in another attempt.

        A writer renames a folder before it removes its files one by one, so that the files that
        were found are all of them.

        Args:
            stack: what `read` opens goes there; it is closed before another attempt.
            read: what to do with the place.
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
                        f"{error.filename}: stands in the folder, but cannot be found. If it "
                        "is a link, it leads nowhere."
                    ) from error
            stack.close()
        raise SourceError(f"{self.name}: is replaced as quickly as it can be read.")

    def provenance(self, preset: PresetConfig | None = None) -> dict[str, Any]:
        """Returns where the weights come from, as plain JSON types; complete once they are open."""
        with contextlib.closing(self._locate()) as place:
            told = self.row.provenance() if self.row is not None else {}
            return {**(preset.provenance if preset else {}), **place.provenance, **told}

    @contextlib.contextmanager
    def local(self) -> Iterator[Path]:
        """Yields the path of the local folder, or file, that holds weights and JSON, fetched."""
        with self.open(checksum=False) as opened:
            path = opened.reader.path
            yield path.parent if opened.is_folder and path.is_file() else path


class LocalFolder:
    """A folder of this machine, or one file of it."""

    pickle_advice = PICKLE_ADVICE
    note = ""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.provenance: dict[str, Any] = {}
        self._path = path
        self._folder = _open_folder(path)
        self.is_file = self._folder is None
        self.files: Mapping[str, int | None] = (
            {path.name: None} if self._folder is None else self._folder.sizes()
        )

    def open(self, name: str) -> BufferedReader:
        try:
            return open_plain(self._path) if self._folder is None else self._folder.open(name)
        except FileNotFoundError as error:
            if self._folder is not None:
                raise
            message = f"{self._path}: expected a file of weights, but it does not exist."
            raise SourceError(message) from error
        except OSError as error:
            raise SourceError(f"{error.filename}: cannot be opened ({error.strerror}).") from error

    def header(self, name: str) -> Reader | None:
        return None

    def is_current(self) -> bool:
        return self._folder is None or self._folder.is_current()

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()


def _open_folder(path: Path) -> OpenFolder | None:
    """The folder at a path; None where there is a file, or nothing."""
    while exists(path):
        try:
            return OpenFolder(path)
        except NotADirectoryError:
            return None
        except FileNotFoundError:
            continue  # replaced between the two questions
    return None


def _open(place: Place, stack: contextlib.ExitStack, headers: bool, checksum: bool) -> OpenSource:
    files = _read_json(place)
    preset = _preset(place, files)
    if preset is not None and WEIGHTS not in place.files:
        raise SourceError(
            f"{place.address}/{WEIGHTS}: expected the weights of a preset, but the file does not "
            f"exist.{place.note}"
        )
    names = _weights_named(place, files)
    readers: list[tuple[str, Reader]] = []
    for name in names:
        prefix = "task/" if name == TASK else ""
        if headers and (header := place.header(name)):
            readers.append((prefix, header))
            continue
        stream = stack.enter_context(place.open(name))
        readers.append((prefix, stack.enter_context(open_arrays(stream.name, stream))))
        if checksum and not headers and preset is not None and preset.weights_sha256:
            _compare(stream, preset.weights_sha256)
    folder = readers[0][1].path.parent
    reader = readers[0][1] if len(readers) == 1 else joined(folder, readers)
    return OpenSource(reader, files, preset, not place.is_file)


def _preset(place: Place, files: Mapping[str, dict[str, Any]]) -> PresetConfig | None:
    """What `config.json` says, if it claims to be of a keras_vit preset."""
    stored = files.get(CONFIG_FILE, {})
    if "format" not in stored:
        return None
    return PresetConfig.from_dict(stored, f"{place.address}/{CONFIG_FILE}")


def _compare(stream: BufferedReader, expected: str) -> None:
    stream.seek(0)
    found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise SourceError(
            f"{stream.name}: its sha256 is {found}, config.json says {expected}. The file is "
            "damaged or of another preset. checksum=False loads it all the same."
        )


def _weights_named(place: Place, files: Mapping[str, dict[str, Any]]) -> list[str]:
    """The files of weights to read, in the order of preference."""
    if place.is_file:
        return list(place.files)
    if WEIGHTS in place.files:
        return [WEIGHTS]
    if INDEX in files:
        return _shards(place, files[INDEX])
    if H5 in place.files:
        if TASK in place.files and CONFIG_FILE not in files:
            raise SourceError(
                f"{place.address}/{TASK}: config.json and task.json are missing beside it, so it "
                "is not told which of its layers is the head."
            )
        return [name for name in (H5, TASK) if name in place.files]
    found = sorted(name for name in place.files if name.endswith((".npz", ".safetensors")))
    if len(found) == 1:
        return found
    if found:
        advice = f"Name one: {place.address}/{found[0]}."
    elif any(name.endswith(_PICKLES) for name in place.files):
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
                f"{place.address}: {INDEX} names {name[:200]!r}, which is no file of this folder."
                f"{place.note}"
            )
    return sorted(names)


def _read_json(place: Place) -> dict[str, dict[str, Any]]:
    """The JSON objects beside the weights, by file name; of shards the index too."""
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
    # ValueError: no JSON, no UTF-8, or a number of more digits than Python reads.
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(f"{where}: not a readable JSON file ({error}).") from error
    if not isinstance(content, dict):
        raise SourceError(f"{where}: expected a JSON object, found {type(content).__name__}.")
    return content
