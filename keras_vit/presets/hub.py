"""From the Hub: what a repository holds at one commit, and the few files of it that a model needs.

All traffic goes through huggingface_hub: its cache, tokens, offline mode and progress bars.
"""

import dataclasses
import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import SAFETENSORS_DTYPES, Reader, joined
from keras_vit.checkpoints.inspection import CheckpointInfo, understand
from keras_vit.checkpoints.source import COMPANIONS, INDEX, MOST_JSON_BYTES, read_object
from keras_vit.errors import CheckpointError, PresetError
from keras_vit.files import written_beside
from keras_vit.presets.hub_requests import (
    SCHEME,
    TIMEOUT,
    Address,
    WrongChecksumError,
    api,
    is_unreachable,
    patiently,
)

_WEIGHTS = "model.safetensors"
_H5, _TASK = "model.weights.h5", "task.weights.h5"
log = logging.getLogger("keras_vit")


@dataclasses.dataclass(frozen=True)
class _File:
    """What the Hub says of a file: size in bytes, and the sha256 of what is stored with LFS."""

    size: int | None = None
    sha256: str | None = None


class HubFolder:
    """A folder or file of a repository at one commit; nothing is fetched before it is asked for.

    Args:
        address: where, with the revision as it was asked for.
        commit: the sha that the revision stood for.
        files: what the folder holds, by name; subfolders left out.
        is_file: whether the address names a file, which is then the only one.
        cached: the folder in the cache, if the Hub could not be asked.
    """

    def __init__(
        self,
        address: Address,
        commit: str,
        files: Mapping[str, _File],
        is_file: bool,
        cached: Path | None = None,
    ) -> None:
        self.address = address
        self.commit = commit
        self._files = files
        self._cached = cached
        self._is_file = is_file
        self._folder = address.inside.rpartition("/")[0] if is_file else address.inside
        self.provenance: dict[str, Any] = {"repo": f"{SCHEME}{address.repo}", "commit": commit}

    def fetch_companions(self) -> Path | None:
        """Returns a local folder with the JSON files that go with the weights; None without any.

        Raises:
            PresetError: one is too large to be what its name says, or cannot be fetched.
        """
        folder = None
        for name in () if self._is_file else (*COMPANIONS, INDEX):
            if name in self._files:
                if (self._files[name].size or 0) > MOST_JSON_BYTES:
                    raise PresetError(
                        f"{self.address}: {name} has {self._files[name].size} bytes, expected at "
                        f"most {MOST_JSON_BYTES}. It is not fetched."
                    )
                folder = self._fetch(name).parent
        return folder

    def fetch(self) -> Path:
        """Returns a local folder with weights and companions, or the file if the address names one.

        The sha256 of each weights file is compared with the Hub's when it arrives, and
        recorded in `provenance`.

        Raises:
            PresetError: the folder holds no weights, or several; or a file cannot be fetched.
        """
        names = self._weights(self.fetch_companions())
        paths = [self._fetch(name) for name in names]
        self.provenance["files"] = {
            name: self._files[name].sha256 or _sha256_in_cache(path)
            for name, path in zip(names, paths, strict=True)
        }
        self._remember(paths[0].parent)
        return paths[0] if self._is_file else paths[0].parent

    def inspect(self, **fields: Any) -> CheckpointInfo:
        """Tells what the weights are; of safetensors only the headers are fetched.

        Args:
            **fields: as for `keras_vit.checkpoints.inspect`.

        Raises:
            PresetError: as `fetch`.
            CheckpointError: as `keras_vit.checkpoints.inspect`.
        """
        from keras_vit import checkpoints

        folder = self.fetch_companions()
        names = self._weights(folder)
        if self._cached is not None or not names[0].endswith(".safetensors"):
            log.info("%s: %s has to be fetched to know the model.", self.address, ", ".join(names))
            return checkpoints.inspect(self.fetch(), **fields)
        where = Path(f"{self.address.repo}@{self.commit[:8]}", self._folder)
        readers: list[tuple[str, Reader]] = [("", self._header(name, where)) for name in names]
        beside = [name for name in COMPANIONS if name in self._files]
        files = {name: read_object(folder / name) for name in beside} if folder else {}
        return understand(joined(where, readers), files, fields).info

    def _weights(self, folder: Path | None) -> list[str]:
        """The files of weights to read, in the order of preference of `checkpoints.source`."""
        if self._is_file:
            return list(self._files)
        if _WEIGHTS in self._files:
            return [_WEIGHTS]
        if INDEX in self._files and folder is not None:
            return self._shards(folder / INDEX)
        if _H5 in self._files:
            return [name for name in (_H5, _TASK) if name in self._files]
        found = sorted(n for n in self._files if n.endswith((".npz", ".safetensors")))
        if len(found) == 1:
            return found
        if found:
            advice = f"Name one: {self.address}/{found[0]}."
        elif any(n.endswith((".bin", ".pth", ".pt", ".ckpt")) for n in self._files):
            advice = (
                "keras_vit never unpickles; ask the authors for safetensors, or look among the "
                f"pull requests of https://huggingface.co/{self.address.repo} for the Hub's own "
                "conversion and add @refs%2Fpr%2FNUMBER."
            )
        else:
            advice = "If they are in a subfolder, name it: hf://owner/repo/subfolder."
        raise PresetError(
            f"{self.address}: expected one file of weights ({_WEIGHTS}, {INDEX}, {_H5} or an "
            f"npz), found {', '.join(found) or 'none'}"
            f"{' in the cache' if self._cached else ''}. {advice}"
        )

    def _shards(self, index: Path) -> list[str]:
        try:
            names = sorted(set(read_object(index)["weight_map"].values()))
        except (LookupError, TypeError, AttributeError) as error:
            raise PresetError(
                f"{self.address}: {INDEX}: expected a weight_map of names to files ({error!r})."
            ) from error
        for name in names:
            if name not in self._files:
                place = "not in the cache" if self._cached else "no file of this folder"
                raise PresetError(f"{self.address}: {INDEX} names {name!r}, which is {place}.")
        return names

    def _fetch(self, name: str) -> Path:
        """Returns the local path of a file of the folder, fetched if need be."""
        if self._cached is not None:
            return self._cached / name
        inside = str(PurePosixPath(self._folder, name))
        expected = self._files[name].sha256

        def fetch() -> Path:
            from huggingface_hub import try_to_load_from_cache

            known = try_to_load_from_cache(self.address.repo, inside, revision=self.commit)
            path = Path(api().hf_hub_download(self.address.repo, inside, revision=self.commit))
            if expected and not isinstance(known, str) and _sha256(path) != expected:
                blob = path.resolve()
                path.unlink()
                blob.unlink(missing_ok=True)
                raise WrongChecksumError(f"its sha256 is not {expected}")
            return path

        return patiently(fetch, self.address, inside)

    def _header(self, name: str, where: Path) -> Reader:
        inside = str(PurePosixPath(self._folder, name))

        def fetch() -> Any:
            return api().parse_safetensors_file_metadata(
                self.address.repo, inside, revision=self.commit
            )

        from huggingface_hub.errors import SafetensorsParsingError

        try:
            tensors = patiently(fetch, self.address, inside).tensors
        except SafetensorsParsingError as error:
            raise CheckpointError(f"{where / name}: not a safetensors file ({error}).") from error
        try:
            return _Header(
                where / name,
                {key: tuple(tensor.shape) for key, tensor in tensors.items()},
                {key: SAFETENSORS_DTYPES[tensor.dtype] for key, tensor in tensors.items()},
            )
        except KeyError as error:
            message = f"{where / name}: arrays of type {error} hold no weights."
            raise CheckpointError(message) from error

    def _remember(self, folder: Path) -> None:
        """Notes which commit the revision stood for, now that it is here, for offline use.

        The place is that of huggingface_hub, which writes it only with the revision's own name.
        """
        revision = self.address.revision or "main"
        if self._cached is None and revision != self.commit:
            depth = len(PurePosixPath(self._folder).parts) + 2  # snapshots/commit/...
            try:
                with written_beside(folder.parents[depth - 1] / "refs" / revision) as path:
                    path.write_text(self.commit)
            except OSError as error:  # a cache that others own, say
                log.warning("%s: not noted for offline use (%s).", self.address, error)


@dataclasses.dataclass
class _Header:
    """Names, shapes and types of a file that was not fetched."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]

    def read(self, name: str) -> np.ndarray:
        raise CheckpointError(f"{self.path}: only its header was fetched.")

    def __enter__(self) -> "_Header":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def locate(source: str) -> HubFolder:
    """Asks the Hub, in one request, what stands at an address.

    If the Hub cannot be reached, or `HF_HUB_OFFLINE` forbids it, the cache answers.

    Args:
        source: `"hf://owner/repo[@revision][/subfolder or file]"`.

    Raises:
        PresetError: there is no such repository, revision, folder or file, access is
            refused, or the Hub cannot be reached and the cache does not know either.
    """
    address = Address.parse(source)
    try:
        info = patiently(
            lambda: api().model_info(
                address.repo, revision=address.revision, files_metadata=True, timeout=TIMEOUT
            ),
            address,
        )
    except PresetError as error:
        cached = _in_cache(address) if is_unreachable(error.__cause__) else None
        if cached is None:
            raise
        log.warning("%s Read from the cache, commit %s.", error, cached.commit)
        return cached
    if not re.fullmatch("[0-9a-f]{40}", info.sha or ""):
        raise PresetError(f"{address}: the Hub names {info.sha!r} as its commit, expected a sha.")
    files = {
        sibling.rfilename: _File(sibling.size, sibling.lfs.sha256 if sibling.lfs else None)
        for sibling in info.siblings or ()
    }
    within = _within(address, files)
    return HubFolder(address, str(info.sha), within, is_file=address.inside in files)


def fetch(source: str) -> Path:
    """Returns a local folder, or file, with what stands at an address of the Hub.

    Args:
        source: `"hf://owner/repo[@revision][/subfolder or file]"`.

    Raises:
        PresetError: as `locate` and `HubFolder.fetch`.
    """
    return locate(source).fetch()


def _within(address: Address, files: Mapping[str, _File]) -> dict[str, _File]:
    """The files of the addressed folder by their bare names, or the one file addressed."""
    name = address.inside.rpartition("/")[2]
    if address.inside in files:
        return {name: files[address.inside]}
    prefix = f"{address.inside}/" if address.inside else ""
    bare = {path.removeprefix(prefix): f for path, f in files.items() if path.startswith(prefix)}
    # Only plain names: neither subfolders nor what a hostile repository makes up.
    inside = {n: f for n, f in bare.items() if not re.search(r"[/\\:]|^\.", n) and n}
    if not inside:
        raise PresetError(
            f"{address}: the repository has no such folder or file."
            if address.inside
            else f"{address}: the repository is empty."
        )
    return inside


def _in_cache(address: Address) -> HubFolder | None:
    """What the cache holds of an address, as far as it goes."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        # No patterns, no files: any part of the snapshot will do.
        snapshot = Path(
            snapshot_download(
                address.repo, revision=address.revision, local_files_only=True, allow_patterns=[]
            )
        )
    except LocalEntryNotFoundError:
        return None
    paths = (path for path in snapshot.rglob("*") if path.is_file())
    files = {path.relative_to(snapshot).as_posix(): _File(path.stat().st_size) for path in paths}
    try:
        within = _within(address, files)
    except PresetError:
        return None
    is_file = address.inside in files
    folder = PurePosixPath(address.inside).parent if is_file else address.inside
    return HubFolder(address, snapshot.name, within, is_file, cached=snapshot / folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_in_cache(path: Path) -> str:
    """The sha256 of a file of the cache, whose blob is named by it if it is stored with LFS."""
    name = path.resolve().name
    return name if re.fullmatch("[0-9a-f]{64}", name) else _sha256(path)
