"""The Hub: the list of files of a repository at one commit, and their download on demand.

All traffic goes through huggingface_hub: its cache, tokens, offline mode and progress bars.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from keras_vit.checkpoints.containers import SAFETENSORS_DTYPES, Reader
from keras_vit.errors import CheckpointError, KerasViTError, PresetError
from keras_vit.files import written_beside
from keras_vit.sources.refusals import hub_refusal
from keras_vit.sources.retries import TRANSIENT, DamagedError, retrying
from keras_vit.text import log

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SCHEME = "hf://"
TIMEOUT = 10.0
"""Seconds without an answer to a question about a repository."""

_SHA1, _SHA256 = 40, 64
"""Digits of a checksum."""

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Address:
    """`hf://owner/repo[@revision][/inside]`.

    Args:
        repo: `"owner/name"`.
        revision: a branch, tag or commit; `/` in a branch is written `%2F`.
        inside: a folder or file of the repository, `""` for its root.
    """

    repo: str
    revision: str | None = None
    inside: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parses an address; raises `PresetError` if it is malformed or leaves the repository."""
        from huggingface_hub import parse_hf_uri

        expected = f"{text!r}: expected hf://owner/repo[@revision][/subfolder]"
        try:
            uri = parse_hf_uri(text)
        except ValueError as error:
            raise PresetError(f"{expected}. {error}") from error
        steps = {*uri.path_in_repo.split("/"), *(uri.revision or "").split("/")}
        if uri.type != "model" or steps & {".", ".."} or "\\" in text:
            raise PresetError(f"{expected} of a model repository, without '..'.")
        return cls(uri.id, uri.revision, uri.path_in_repo)

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}{self.repo}{revision}" + (f"/{self.inside}" if self.inside else "")


class HubFolder:
    """A folder or file of a repository at one commit, a `Place` of `keras_vit.sources.source`.

    Args:
        where: the address, with the user's revision.
        commit: the sha of the revision's commit.
        files: file name -> size in bytes.
        checksums: file name -> sha256 of a file that is stored with LFS, or git's blob id of
            another file, in hexadecimal.
        is_file: whether the address names a single file.
        cached: the folder in the cache, if the Hub could not be reached.
    """

    def __init__(
        self,
        where: Address,
        commit: str,
        files: Mapping[str, int | None],
        checksums: Mapping[str, str],
        is_file: bool,
        cached: Path | None = None,
    ) -> None:
        self.where = where
        self.address = str(where)
        self.is_file = is_file
        self.files = files
        self.provenance: dict[str, Any] = {"repo": f"{SCHEME}{where.repo}", "commit": commit}
        self.pickle_advice = (
            "keras_vit unpickles only with allow_pickle_weights=True, by "
            "torch.load(weights_only=True). Safer: ask the authors for safetensors, or look among "
            f"the pull requests of https://huggingface.co/{where.repo} for the Hub's own "
            "conversion and add @refs%2Fpr%2FNUMBER."
        )
        self.note = " It is not in the cache, and the Hub does not answer." if cached else ""
        self._commit = commit
        self._checksums = checksums
        self._folder = where.inside.rpartition("/")[0] if is_file else where.inside
        self._cached = cached

    @classmethod
    def locate(cls, source: str) -> "HubFolder":
        """Asks the Hub, in one request, for the files at an address.

        If the Hub cannot be reached, or `HF_HUB_OFFLINE` forbids it, the cache is used.

        Args:
            source: `"hf://owner/repo[@revision][/subfolder or file]"`.

        Raises:
            PresetError: the repository, revision, folder or file does not exist, access is
                refused, or neither the Hub can be reached nor the cache has the address.
        """
        where = Address.parse(source)

        def ask() -> Any:
            return api().model_info(
                where.repo, revision=where.revision, files_metadata=True, timeout=TIMEOUT
            )

        try:
            info = patiently(ask, where)
        except PresetError as error:
            cached = cls._in_cache(where) if _is_unreachable(error.__cause__) else None
            if cached is None:
                raise
            log.warning("%s Read from the cache, commit %s.", error, cached._commit)
            return cached
        if not (isinstance(info.sha, str) and re.fullmatch("[0-9a-f]{40}", info.sha)):
            raise PresetError(f"{where}: the Hub names {info.sha!r} as its commit, expected a sha.")
        siblings = {s.rfilename: s for s in info.siblings or () if isinstance(s.rfilename, str)}
        names = _names_within(where, siblings)
        return cls(
            where,
            info.sha,
            {name: _size(siblings[path]) for name, path in names.items()},
            {name: _checksum(siblings[path]) for name, path in names.items()},
            is_file=where.inside in siblings,
        )

    @classmethod
    def _in_cache(cls, where: Address) -> "HubFolder | None":
        """Returns the cached files at an address, possibly not all of them, or None."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            # An empty allow_patterns accepts a snapshot with any of its files.
            found = snapshot_download(
                where.repo, revision=where.revision, local_files_only=True, allow_patterns=[]
            )
            snapshot = Path(found)
            paths = [path for path in snapshot.rglob("*") if path.is_file()]
            sizes = {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in paths}
            names = _names_within(where, sizes)
        except (LocalEntryNotFoundError, PresetError):
            return None
        is_file = where.inside in sizes
        folder = PurePosixPath(where.inside).parent if is_file else where.inside
        files = {name: sizes[path] for name, path in names.items()}
        return cls(where, snapshot.name, files, {}, is_file, cached=snapshot / folder)

    def open(self, name: str) -> BufferedReader:
        """Opens a file in the cache, after a download if necessary.

        A downloaded file is compared with the hash that the Hub states, and once more if the Hub
        states another hash later. The sha256 of each file of weights is recorded in `provenance`.

        Raises:
            PresetError: the download fails.
        """
        path = self._fetch(name)
        if not name.endswith(".json"):
            said = self._checksums.get(name, "")
            checksum = said if len(said) == _SHA256 else _sha256_in_cache(path)
            self.provenance.setdefault("files", {})[name] = checksum
            self._remember(path.parent)
        return path.open("rb")

    def header(self, name: str) -> Reader | None:
        """Returns names, shapes and types of a safetensors file; only its header is downloaded."""
        from huggingface_hub.errors import SafetensorsParsingError

        if self._cached is not None or not name.endswith(".safetensors"):
            log.info("%s: %s has to be fetched to know the model.", self.address, name)
            return None
        inside = str(PurePosixPath(self._folder, name))
        where = Path(f"{self.where.repo}@{self._commit[:8]}", inside)

        def ask() -> Any:
            return api().parse_safetensors_file_metadata(
                self.where.repo, inside, revision=self._commit
            )

        try:
            tensors = patiently(ask, self.where, inside).tensors
            return _Header(
                where,
                {key: tuple(tensor.shape) for key, tensor in tensors.items()},
                {key: SAFETENSORS_DTYPES[tensor.dtype] for key, tensor in tensors.items()},
            )
        except SafetensorsParsingError as error:
            raise CheckpointError(f"{where}: not a safetensors file ({error}).") from error
        except KeyError as error:
            message = f"{where}: arrays of type {error} hold no weights."
            raise CheckpointError(message) from error

    def is_current(self) -> bool:
        return True  # a commit does not change

    def close(self) -> None:
        pass

    def _fetch(self, name: str) -> Path:
        """Returns the local path of a file of the folder, after a download if necessary."""
        if self._cached is not None:
            return self._cached / name
        inside = str(PurePosixPath(self._folder, name))
        expected = self._checksums.get(name, "")

        def fetch() -> Path:
            from huggingface_hub import try_to_load_from_cache

            known = try_to_load_from_cache(self.where.repo, inside, revision=self._commit)
            path = Path(api().hf_hub_download(self.where.repo, inside, revision=self._commit))
            if not path.is_file():  # a link to the folder of all contents
                path.unlink()
                raise DamagedError("the Hub answers without a name (ETag) of its content")
            blob = path.resolve()  # named by the hash that the Hub stated with the content
            name = blob.name if re.fullmatch("[0-9a-f]{64}", blob.name) else ""
            stated = expected or name
            # Files without LFS are small. Weights are compared again if the Hub has said otherwise.
            compared = isinstance(known, str) and len(stated) != _SHA1 and name in ("", stated)
            if stated and not compared and _found(path, stated) != stated:
                path.unlink()
                blob.unlink(missing_ok=True)
                kind = "sha256" if len(stated) == _SHA256 else "git blob id"
                raise DamagedError(f"its {kind} is not {stated}")
            return path

        return patiently(fetch, self.where, inside)

    def _remember(self, folder: Path) -> None:
        """Writes the revision's commit into the cache, for offline use.

        huggingface_hub reads the commit there, but writes it only for a download by revision.
        """
        revision = self.where.revision or "main"
        if self._cached is None and revision != self._commit:
            depth = len(PurePosixPath(self._folder).parts) + 2  # snapshots/commit/...
            try:
                with written_beside(folder.parents[depth - 1] / "refs" / revision) as path:
                    path.write_text(self._commit)
            except OSError as error:  # such as a cache of another user
                log.warning("%s: not noted for offline use (%s).", self.address, error)


@dataclasses.dataclass
class _Header:
    """Names, shapes and types of a file that was not downloaded."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]

    def read(self, name: str) -> np.ndarray:
        raise CheckpointError(f"{self.path}: only its header was fetched.")

    def __enter__(self) -> "_Header":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def api(token: str | None = None) -> "HfApi":
    """Returns huggingface_hub's client; `token` takes precedence over the stored token."""
    from huggingface_hub import HfApi

    from keras_vit import __version__

    return HfApi(token=token, library_name="keras-vit", library_version=__version__)


def patiently(call: Callable[[], _T], where: Address, file: str = "") -> _T:
    """Returns `call()`, repeated after temporary failures.

    Args:
        call: a request to the Hub.
        where, file: address and file of the request, for the message.

    Raises:
        PresetError: the request fails; the message states cause and remedy.
    """
    from huggingface_hub.errors import HTTPError

    try:
        return retrying()(call)
    except KerasViTError:
        raise
    except (
        HTTPError,
        OSError,
        RuntimeError,
        LookupError,
        TypeError,
        ValueError,
        DamagedError,
    ) as e:
        # huggingface_hub wraps a failure after its own attempts in an error that says that the
        # file is not in the cache, or that one of several files was not stored.
        root = _root(e)
        if type(root) is RuntimeError:
            raise
        about = Address(where.repo, where.revision, file or where.inside)
        raise PresetError(f"{about}: {hub_refusal(root, about.repo, about.revision)}") from root


def _names_within(where: Address, paths: Mapping[str, object]) -> dict[str, str]:
    """Returns the files of the folder, or the single file, at an address: bare name -> path."""
    if where.inside in paths:
        return {where.inside.rpartition("/")[2]: where.inside}
    prefix = f"{where.inside}/" if where.inside else ""
    bare = {path.removeprefix(prefix): path for path in paths if path.startswith(prefix)}
    # Only plain names: no subfolders, and no path that a hostile repository has invented.
    inside = {n: path for n, path in bare.items() if not re.search(r"[/\\:]|^\.", n) and n}
    if not inside:
        missing = "has no such folder or file" if where.inside else "is empty"
        raise PresetError(f"{where}: the repository {missing}.")
    return inside


def _size(sibling: Any) -> int | None:
    """Returns the size in bytes that the Hub states for a file; None if it is no such number."""
    size = sibling.size
    return size if type(size) is int and size >= 0 else None


def _checksum(sibling: Any) -> str:
    """Returns the hash that the Hub states for a file; `""` if it states no usable hash."""
    said = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    length = _SHA256 if sibling.lfs else _SHA1
    fits = isinstance(said, str) and len(said) == length and set(said) <= set("0123456789abcdef")
    return said if fits else ""


def _found(path: Path, expected: str) -> str:
    """Returns the checksum of a file: SHA-256 or git's, by the length of the expected one."""
    if len(expected) == _SHA256:
        return _sha256(path)
    content = path.read_bytes()  # files that are not stored with LFS are small
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_in_cache(path: Path) -> str:
    """Returns the sha256 of a cached file, which is the name of its blob if LFS stores it."""
    name = path.resolve().name
    return name if re.fullmatch("[0-9a-f]{64}", name) else _sha256(path)


def _root(error: BaseException) -> BaseException:
    from huggingface_hub.errors import LocalEntryNotFoundError

    wraps = isinstance(error, LocalEntryNotFoundError | RuntimeError)
    return error.__cause__ if wraps and error.__cause__ is not None else error


def _is_unreachable(error: BaseException | None) -> bool:
    """Whether the Hub gave no answer, so that the cache may be used."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in TRANSIENT
    return isinstance(error, HTTPError | OfflineModeIsEnabled)
