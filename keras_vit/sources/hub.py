"""The Hub: the list of files of a repository at one commit, and their download on demand.

All traffic goes through huggingface_hub: its cache, attempts, tokens, offline mode, progress bars.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from keras_vit.errors import CheckpointError, KerasViTError, PresetError, nearest
from keras_vit.sources.place import Header, Place
from keras_vit.sources.refusals import hub_refusal, is_unreachable
from keras_vit.text import log

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SCHEME = "hf://"
TIMEOUT = 10.0
"""Seconds without an answer to a question about a repository."""

_NOT_CACHED = " It is not in the cache, and the Hub does not answer."

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


class HubFolder(Place):
    """A folder or file of a repository at one commit.

    Args:
        where: the address, with the user's revision.
        commit: the sha of the revision's commit.
        sizes: path in the repository -> size in bytes, or None if the Hub states none.
        reached: whether the Hub has listed the files; otherwise only the cache is read.

    Raises:
        PresetError: the repository has no such folder or file.
    """

    def __init__(
        self, where: Address, commit: str, sizes: Mapping[str, int | None], reached: bool
    ) -> None:
        self._names = _names_within(where, sizes)
        self.address = str(where)
        self.is_file = where.inside in sizes
        self.files = {name: sizes[path] for name, path in self._names.items()}
        self.provenance = {"repo": f"{SCHEME}{where.repo}", "commit": commit}
        self.pickle_advice = (
            "keras_vit unpickles only with allow_pickle_weights=True, by "
            "torch.load(weights_only=True). Safer: ask the authors for safetensors, or look among "
            f"the pull requests of https://huggingface.co/{where.repo} for the Hub's own "
            "conversion and add @refs%2Fpr%2FNUMBER."
        )
        self.note = "" if reached else _NOT_CACHED
        self._where = where
        self._commit = commit
        self._reached = reached

    @classmethod
    def locate(cls, source: str) -> "HubFolder":
        """Asks the Hub for the commit and the files at an address.

        If the Hub cannot be reached, or `HF_HUB_OFFLINE` forbids it, the cache is used.

        Args:
            source: `"hf://owner/repo[@revision][/subfolder or file]"`.

        Raises:
            PresetError: the repository, revision, folder or file does not exist, access is
                refused, or neither the Hub can be reached nor the cache has the address.
        """
        where = Address.parse(source)
        commit = request(
            lambda: api().resolve_revision(where.repo, revision=where.revision).resolved, where
        )
        if not (isinstance(commit, str) and re.fullmatch("[0-9a-f]{40}", commit)):
            raise PresetError(f"{where}: the Hub names {commit!r} as its commit, expected a sha.")

        def listing() -> dict[str, int | None]:
            info = api().model_info(
                where.repo, revision=commit, files_metadata=True, timeout=TIMEOUT
            )
            siblings = [s for s in info.siblings or () if isinstance(s.rfilename, str)]
            return {s.rfilename: s.size if type(s.size) is int else None for s in siblings}

        try:
            return cls(where, commit, request(listing, where), reached=True)
        except PresetError as error:
            if error.__cause__ is None or not is_unreachable(error.__cause__):
                raise
            cached = _sizes_in_cache(where.repo, commit)
            if not cached:
                raise
            log.warning("%s Read from the cache, commit %s.", error, commit)
        try:
            return cls(where, commit, cached, reached=False)
        except PresetError as error:
            raise PresetError(
                f"{error} It is not in the cache, and the Hub does not answer."
            ) from error

    def open(self, name: str) -> BufferedReader:
        """Opens a file in the cache, after a download if necessary.

        Raises:
            PresetError: the download fails.
        """
        inside = self._names[name]
        path = request(
            lambda: api().hf_hub_download(self._where.repo, inside, revision=self._commit),
            self._where,
            inside,
        )
        return Path(path).open("rb")

    def header(self, name: str) -> Header | None:
        """Returns names, shapes and types of a safetensors file; only its header is downloaded."""
        from huggingface_hub.errors import SafetensorsParsingError

        if not self._reached or not name.endswith(".safetensors"):
            return None
        inside = self._names[name]
        path = Path(f"{self._where.repo}@{self._commit[:8]}", inside)
        try:
            header = request(
                lambda: api().parse_safetensors_file_metadata(
                    self._where.repo, inside, revision=self._commit
                ),
                self._where,
                inside,
            )
        except SafetensorsParsingError as error:
            raise CheckpointError(f"{path}: not a safetensors file ({error}).") from error
        arrays = {key: (t.dtype, tuple(t.shape)) for key, t in header.tensors.items()}
        return Header(path, arrays)


def api(token: str | None = None) -> "HfApi":
    """Returns huggingface_hub's client; `token` takes precedence over the stored token."""
    from huggingface_hub import HfApi

    from keras_vit import __version__

    return HfApi(token=token, library_name="keras-vit", library_version=__version__)


def request(call: Callable[[], _T], where: Address, file: str = "") -> _T:
    """Returns `call()`, a request to the Hub.

    Args:
        call: the request.
        where, file: address and file of the request, for the message.

    Raises:
        PresetError: the request fails; the message states cause and remedy.
    """
    from huggingface_hub import errors

    wrappers = (errors.LocalEntryNotFoundError, errors.RevisionResolutionError, RuntimeError)
    try:
        return call()
    except (KerasViTError, errors.SafetensorsParsingError):
        raise
    except Exception as error:  # an answer of another form raises many types
        # huggingface_hub wraps a failure in an error that says that the file is not in the
        # cache, or that one of several files was not stored.
        wraps = isinstance(error, wrappers) and isinstance(error.__cause__, Exception)
        cause = error.__cause__ if wraps else error
        about = Address(where.repo, where.revision, file or where.inside)
        raise PresetError(f"{about}: {hub_refusal(cause, about.repo, about.revision)}") from cause


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
        folders = {path.rpartition("/")[0] for path in paths}
        near = nearest(where.inside, folders | set(paths)) if where.inside else ""
        raise PresetError(f"{where}: the repository {missing}.{near}")
    return inside


def _sizes_in_cache(repo: str, commit: str) -> dict[str, int | None]:
    """Returns path and size of the cached files of a commit, which may not be all of its files."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot = Path(
            snapshot_download(repo, revision=commit, local_files_only=True, allow_patterns=[])
        )
    except LocalEntryNotFoundError:
        return {}
    paths = [path for path in snapshot.rglob("*") if path.is_file()]
    return {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in paths}
