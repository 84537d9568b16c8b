"""Lists the files of a repository on the Hub at one commit, and downloads them on demand.

All traffic goes through huggingface_hub: its cache, retries, tokens, offline mode, progress bars.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from keras_vit.errors import CheckpointError, KerasViTError, PresetError, nearest
from keras_vit.presets.cache import cache_folder, has_sha256
from keras_vit.presets.connection import bounded
from keras_vit.presets.place import Header, Location
from keras_vit.presets.refusals import hub_refusal, is_unreachable, sent_token
from keras_vit.support.files import open_plain
from keras_vit.support.limits import JSON_BYTES
from keras_vit.support.text import log

if TYPE_CHECKING:
    from huggingface_hub import HfApi, HfUri

SCHEME = "hf://"
_OFFLINE = "HF_HUB_OFFLINE forbids downloads; unset it"

_T = TypeVar("_T")


def parse_address(text: str) -> "HfUri":
    """Parses `hf://owner/repo[@revision][/inside]`; `/` in a revision is written `%2F`.

    Raises:
        PresetError: the address is malformed, leads outside the repository, or is not of a model.
    """
    from huggingface_hub import parse_hf_uri

    expected = f"{text!r}: expected hf://owner/repo[@revision][/subfolder]"
    try:
        uri = parse_hf_uri(text)
    except ValueError as error:
        raise PresetError(f"{expected}. {error}") from error
    steps = {*uri.path_in_repo.split("/"), *(uri.revision or "").split("/")}
    if uri.type != "model" or steps & {".", ".."} or "\\" in text:
        raise PresetError(f"{expected} of a model repository, without '..'.")
    return uri


def shown_address(address: "HfUri", file: str = "") -> str:
    """Returns an address in the form of `parse_address`, or the address of a file at it."""
    address = dataclasses.replace(address, path_in_repo=file or address.path_in_repo)
    return address.to_uri().replace("hf://models/", SCHEME, 1)


class HubFolder(Location):
    """A folder or file of a repository at one commit.

    Args:
        where: address, with the user's revision.
        commit: the sha of the revision's commit.
        sizes: path in the repository -> size in bytes, or None if the Hub states none.
        hashes: path -> the hash that `stated_hash` returns; None if the Hub cannot be reached, and
            only the cache is read.

    Raises:
        PresetError: the repository has no such folder or file.
    """

    def __init__(
        self,
        where: "HfUri",
        commit: str,
        sizes: Mapping[str, int | None],
        hashes: Mapping[str, str | None] | None,
    ) -> None:
        from huggingface_hub import constants

        self._reason = _OFFLINE if constants.is_offline_mode() else "the Hub cannot be reached"
        self.note = f" It is not in the cache, and {self._reason}." if hashes is None else ""
        self._names = _names_within(where, sizes, self.note)
        self.address = shown_address(where)
        self.is_file = where.path_in_repo in sizes
        self.files = {name: sizes[path] for name, path in self._names.items()}
        self.provenance = {"repo": f"{SCHEME}{where.id}", "commit": commit}
        self.pickle_advice = (
            "keras_vit unpickles only with read={'allow_pickle_weights': True}, by "
            "torch.load(weights_only=True). Safer: ask the authors for safetensors, or look among "
            f"the pull requests of https://huggingface.co/{where.id} for the Hub's own "
            "conversion and add @refs%2Fpr%2FNUMBER."
        )
        self._where = where
        self._commit = commit
        self._hashes = hashes

    @classmethod
    def locate(cls, source: str) -> "HubFolder":
        """Asks the Hub for the commit and the files at an address.

        If the Hub cannot be reached, or `HF_HUB_OFFLINE` forbids it, the cache is used.

        Args:
            source: `"hf://owner/repo[@revision][/subfolder or file]"`.

        Raises:
            PresetError: the repository, revision, folder or file does not exist, access is
                refused, or the Hub cannot be reached and the cache does not have the address.
        """
        from huggingface_hub.errors import OfflineModeIsEnabled

        where = parse_address(source)

        def listing() -> tuple[str, list[Any]]:
            info = api().model_info(where.id, revision=where.revision, files_metadata=True)
            if not (isinstance(info.sha, str) and re.fullmatch("[0-9a-f]{40}", info.sha)):
                raise PresetError(
                    f"{source}: the Hub states the commit {info.sha!r}, expected a sha."
                )
            if _commit_in_cache(where) != info.sha:  # for calls without a network
                api().resolve_revision(where.id, revision=where.revision)
            return info.sha, [s for s in info.siblings or () if isinstance(s.rfilename, str)]

        try:
            commit, siblings = request(listing, where, most=JSON_BYTES.value)
        except PresetError as error:
            if error.__cause__ is None or not is_unreachable(error.__cause__):
                raise
            commit, cached = request(lambda: _cached(where), where)
            if not cached:
                raise
            if not isinstance(error.__cause__, OfflineModeIsEnabled):
                log.warning("%s Read from the cache, commit %s.", error, commit)
            return cls(where, commit, cached, None)
        sizes = {s.rfilename: s.size for s in siblings}
        sizes = {path: n if type(n) is int and n >= 0 else None for path, n in sizes.items()}
        return cls(where, commit, sizes, {s.rfilename: stated_hash(s) for s in siblings})

    def open(self, name: str) -> BufferedReader:
        """Opens a file in the cache, after a download if necessary.

        The file is compared with the hash that the Hub states; a large file once for each time
        stamp. A damaged file of the cache is downloaded again, once.

        Raises:
            PresetError: the download fails.
        """
        inside, size = self._names[name], self.files[name]
        return request(lambda: open_plain(self._whole(inside)), self._where, inside, size)

    def _whole(self, inside: str) -> Path:
        """Returns the path in the cache of an undamaged file."""
        from huggingface_hub import try_to_load_from_cache

        repo, commit = self._where.id, self._commit
        was_there = isinstance(try_to_load_from_cache(repo, inside, revision=commit), str)
        path = Path(api().hf_hub_download(repo, inside, revision=commit))
        blob = _within_cache(path, repo)
        # huggingface_hub names a file that was stored with LFS by its sha256.
        named = blob.name if re.fullmatch("[0-9a-f]{64}", blob.name) else None
        stated = named if self._hashes is None else self._hashes.get(inside)
        if stated is None or matches(blob, stated):
            return path
        about = shown_address(self._where, inside)
        if self._hashes is None:
            raise PresetError(f"{about}: damaged in the cache ({blob}), and {self._reason}.")
        path.unlink(missing_ok=True)
        blob.unlink(missing_ok=True)
        if was_there:
            log.warning("%s: damaged in the cache (%s), downloading it again.", about, blob)
            return self._whole(inside)
        raise PresetError(
            f"{about}: damaged in the download: its hash differs from {stated}, which the Hub "
            "states. It was removed from the cache. Try again or in another network, or tell the "
            "authors."
        )

    def header(self, name: str) -> Header | None:
        """Returns names, shapes and types of a safetensors file by downloading only its header."""
        from huggingface_hub.errors import SafetensorsParsingError

        if self._hashes is None or not name.endswith(".safetensors"):
            return None
        inside = self._names[name]
        where = f"{self._where.id}@{self._commit[:8]}/{inside}"

        def parse() -> Any:
            parse = api().parse_safetensors_file_metadata
            try:
                return parse(self._where.id, inside, revision=self._commit)
            except SafetensorsParsingError as error:
                raise CheckpointError(f"{where}: not a safetensors file ({error}).") from error

        header = request(parse, self._where, inside, self.files[name])
        return Header(where, {key: (t.dtype, tuple(t.shape)) for key, t in header.tensors.items()})


def api(token: str | None = None) -> "HfApi":
    """Returns huggingface_hub's client; `token` takes precedence over the stored token."""
    from huggingface_hub import HfApi

    from keras_vit.support import __version__

    return HfApi(token=token, library_name="keras-vit-zoo", library_version=__version__)


def request(call: Callable[[], _T], where: "HfUri", file: str = "", most: int | None = None) -> _T:
    """Returns `call()`, which sends requests to the Hub, within the limits of `bounded`.

    Args:
        call: the request.
        where: address of the request, for the message.
        file: file of the request, for the message; `""` for the file of the address.
        most: stated size of the response in bytes, if any.

    Raises:
        PresetError: the request fails; the message states cause and fix.
    """
    from huggingface_hub import errors

    wrappers = (errors.LocalEntryNotFoundError, errors.RevisionResolutionError, RuntimeError)
    try:
        with bounded(most):
            return call()
    except KerasViTError:
        raise
    except Exception as error:  # an unexpected response raises many types
        # huggingface_hub wraps a failure in an error that says that the file is not in the
        # cache, or that one of several files was not stored.
        wraps = isinstance(error, wrappers) and isinstance(error.__cause__, Exception)
        cause = (error.__cause__ if wraps else None) or error
        message = f"{shown_address(where, file)}: {hub_refusal(cause, where.id, where.revision)}"
        echoes = (token := sent_token(cause)) and token in str(cause)
        raise PresetError(message) from (None if echoes else cause)


def stated_hash(sibling: Any) -> str | None:
    """Returns the hash that the Hub states for a file: sha256 with LFS, otherwise git's blob id."""
    stated = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    return stated if isinstance(stated, str) else None


def matches(content: Path | bytes, stated: str) -> bool:
    """Returns whether a file, or its bytes, has the hash that the Hub states for it.

    Args:
        content: path of the file, or its bytes.
        stated: sha256, computed once for each time stamp of a file, or git's blob id.
    """
    from huggingface_hub.utils.sha import git_hash

    is_sha256 = len(stated) == 64  # a blob id has 40 digits
    if is_sha256 and isinstance(content, Path):
        return has_sha256(content, stated)
    if isinstance(content, Path):
        with open_plain(content) as file:
            content = file.read()
    return (hashlib.sha256(content).hexdigest() if is_sha256 else git_hash(content)) == stated


def _names_within(where: "HfUri", paths: Mapping[str, object], note: str) -> dict[str, str]:
    """Returns the files of the folder, or the single file, at an address: bare name -> path."""
    if where.path_in_repo in paths:
        return {where.path_in_repo.rpartition("/")[2]: where.path_in_repo}
    prefix = f"{where.path_in_repo}/" if where.path_in_repo else ""
    bare = {path.removeprefix(prefix): path for path in paths if path.startswith(prefix)}
    # Only plain names: no subfolders, and no path that a hostile repository has invented.
    odd = re.compile(r"[/\\:\x00-\x1f\x7f-\x9f\ud800-\udfff]|^\.|^$")
    inside = {name: path for name, path in bare.items() if not odd.search(name)}
    if not inside:
        missing = "has no such folder or file" if where.path_in_repo else "is empty"
        folders = {path.rpartition("/")[0] for path in paths}
        near = nearest(where.path_in_repo, folders | set(paths)) if where.path_in_repo else ""
        raise PresetError(f"{shown_address(where)}: the repository {missing}.{note}{near}")
    return inside


def _commit_in_cache(where: "HfUri") -> str | None:
    """Returns the commit that the cache has for an address; removes a damaged record of it."""
    from huggingface_hub.errors import RevisionResolutionError

    note = _repo_folder(where.id) / "refs" / (where.revision or "main")
    is_short = note.is_file() and note.stat().st_size < 100  # a link could lead to an endless file
    if note.exists() and not note.is_dir() and not (is_short and note.read_bytes().isascii()):
        note.unlink(missing_ok=True)  # another process may have removed it
        log.warning("%s: damaged in the cache, removed.", note)
    try:
        named = api().resolve_revision(where.id, revision=where.revision, local_files_only=True)
    except RevisionResolutionError:
        return None
    return named.resolved


def _cached(where: "HfUri") -> tuple[str, dict[str, int | None]]:
    """Returns the commit, and path and size of its cached files, which may be incomplete."""
    commit = _commit_in_cache(where) or ""
    if not re.fullmatch("[0-9a-f]{40}", commit):
        return "", {}
    snapshot = _repo_folder(where.id) / "snapshots" / commit
    paths = [path for path in snapshot.rglob("*") if path.is_file()]
    return commit, {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in paths}


def _within_cache(path: Path, repo: str) -> Path:
    """Resolves the links of a path in the cache; the folder of a repository may itself be a link.

    Raises:
        PresetError: the file is outside the cache.
    """
    cache, target = _cache(), path.resolve()
    if not any(target.is_relative_to(f.resolve()) for f in (cache, _repo_folder(repo))):
        raise PresetError(
            f"{path}: links to {target}, outside the cache {cache}, so it is not opened. Remove "
            "the link; the next call downloads the file."
        )
    return target


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def _repo_folder(repo: str) -> Path:
    from huggingface_hub.file_download import repo_folder_name

    return _cache() / repo_folder_name(repo_id=repo, repo_type="model")


def unfinished_downloads() -> list[Path]:
    """Returns the files of unfinished downloads in both caches."""
    begun = *_cache().glob("*/blobs/*.incomplete"), *cache_folder().glob("*.*/**/tmp????????")
    return sorted(filter(Path.is_file, begun))  # a link that leads nowhere has no size
