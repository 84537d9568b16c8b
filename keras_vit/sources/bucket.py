"""Files over HTTPS, downloaded once, checked, and kept for use without a network.

A file in the cache has at most three companions: `NAME.json`, its record;
`NAME.xxxxxxxx.part`, an interrupted download of one ETag; and `NAME.lock`.
A download is renamed to its file after its length, the server's checksum and the sha256 of the
first download have been compared: a process killed at any moment leaves a complete file, a part
that the next call resumes, or no file. huggingface_hub's client makes the connections, receives
and resumes; the lock is filelock's.
"""

import base64
import contextlib
import dataclasses
import errno
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from filelock import FileLock

from keras_vit.errors import PresetError
from keras_vit.files import write_json
from keras_vit.sources.retries import ATTEMPTS, TRANSIENT, DamagedError, retrying
from keras_vit.text import log

OFFICIAL = "https://storage.googleapis.com/"
"""Address of Google's buckets; the environment variable KERAS_VIT_BUCKET replaces it."""
TIMEOUT = 10.0
"""Seconds for an answer; HF_HUB_DOWNLOAD_TIMEOUT is the limit for a pause of a download."""
_NOT_SATISFIABLE = 416
_HEADERS = {"User-Agent": "keras_vit", "Accept-Encoding": "identity"}


@dataclasses.dataclass(frozen=True)
class Record:
    """The record of a file in the cache.

    Args:
        url: the official URL, even if a mirror served the file.
        sha256: sha256 of the first download.
        size: size in bytes.
        mtime_ns: time of the last change. The file counts as unchanged while its size and this
            time are the same.
    """

    url: str
    sha256: str
    size: int
    mtime_ns: int


class NotFoundError(PresetError):
    """The server has no such file."""


def fetch(url: str, *alternatives: str, sha256: str | None = None, check: bool = False) -> Path:
    """Returns the local path of a file, after a download if necessary.

    A download resumes an interrupted one, is repeated after growing pauses or the server's
    Retry-After, and is compared with the length and the md5 of `x-goog-hash` that the server
    states. Of several processes with the same request one downloads. The sha256 of the first
    download is kept, and later downloads must have it too. A file in the cache is hashed again
    only if its size or time of change differs from the record, or with `check`; a damaged file
    is replaced. With KERAS_VIT_OFFLINE or HF_HUB_OFFLINE in the environment only the cache is used.

    Args:
        url: http or https, percent-encoded. KERAS_VIT_BUCKET replaces `OFFICIAL` in it.
        *alternatives: further URLs, tried in turn if the server has no file at the previous one.
        sha256: the required sha256 of the file, in hexadecimal.
        check: whether the sha256 of a file in the cache is always computed.

    Raises:
        PresetError: the file cannot be had; the message states URL, cause and remedy.
    """
    places = {candidate: place(candidate) for candidate in (url, *alternatives)}
    absent: list[str] = []
    with _disk_errors(url, places[url].parent):
        for candidate, path in places.items():
            if record := _kept(path, check):
                _demand(candidate, record.sha256, sha256)
                return path
        if offline():
            raise PresetError(
                f"{url}: not in the cache ({places[url]}), and KERAS_VIT_OFFLINE or HF_HUB_OFFLINE "
                "forbids to connect. Unset it, or give the path of a file."
            )
        for candidate, path in places.items():
            try:
                _download(candidate, path, sha256, check)
            except NotFoundError as error:
                absent.append(str(error))
                continue
            if absent:
                log.warning("%s Fetched %s instead.", " ".join(absent), candidate)
            return path
    raise NotFoundError(" ".join(absent) + " It may have been moved or renamed; give its path.")


def record_of(url: str, *alternatives: str) -> Record | None:
    """Returns the record of a file in the cache, or None if it is not in the cache."""
    return next((r for u in (url, *alternatives) if (r := _kept(place(u), check=False))), None)


class BucketFile:
    """A file of the bucket, a `Place` of `keras_vit.sources.source`.

    Args:
        url, alternatives: as for `fetch`.
        doubt: a sentence to add to the error if the server has no such file.
    """

    is_file = True
    pickle_advice = note = ""

    def __init__(self, url: str, alternatives: tuple[str, ...] = (), doubt: str = "") -> None:
        self.address = url
        self.files: Mapping[str, int | None] = {place(url).name: None}
        self.provenance: dict[str, Any] = {}
        self._urls = (url, *alternatives)
        self._doubt = doubt

    def open(self, name: str) -> BufferedReader:
        try:
            return fetch(*self._urls).open("rb")
        except NotFoundError as error:
            raise PresetError(f"{error}{self._doubt}") from error

    def header(self, name: str) -> None:
        return None

    def is_current(self) -> bool:
        return True

    def close(self) -> None:
        pass


def cache_folder() -> Path:
    """Returns KERAS_VIT_CACHE, else `keras_vit` in the assets folder of Hugging Face's cache.

    Hugging Face provides that folder for libraries; HF_HOME and HF_ASSETS_CACHE move it.
    """
    if chosen := os.environ.get("KERAS_VIT_CACHE"):
        return Path(chosen).expanduser()
    from huggingface_hub.constants import HF_ASSETS_CACHE

    return Path(HF_ASSETS_CACHE).expanduser() / "keras_vit"


def offline() -> bool:
    """Returns whether the environment forbids connections."""
    values = (os.environ.get(name, "") for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value.strip().lower() in ("1", "true", "yes", "on") for value in values)


def place(url: str) -> Path:
    """Returns the path of a URL's file in the cache, from the parts of the URL.

    Raises:
        PresetError: the URL has another form, or a part of it would lead out of the cache.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname
    except ValueError:
        known = None
    if not known:
        raise PresetError(f"{url}: expected the http or https URL of a file.")
    if parts.query or parts.fragment or parts.username:
        raise PresetError(f"{url}: expected a URL without user, query and fragment.")
    names = [parts.netloc, *map(unquote, parts.path.removeprefix("/").split("/"))]
    if any(name in ("", ".", "..") for name in names):
        raise PresetError(f"{url}: a part of it is empty, '.' or '..', which names no file.")
    return cache_folder().joinpath(*(quote(name, safe=" +,=@()") for name in names))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _parts(path: Path) -> list[Path]:
    """Returns the interrupted downloads of a file, one for each ETag."""
    return list(path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 16}.part"))


def _kept(path: Path, check: bool) -> Record | None:
    """Returns the record of a file in the cache; None if the file is absent or damaged."""
    record = _stored_record(path)
    if record is None or not path.is_file():
        return None
    stat = path.stat()
    if not check and (stat.st_size, stat.st_mtime_ns) == (record.size, record.mtime_ns):
        return record
    same = stat.st_size == record.size and _digest(path, "sha256") == record.sha256
    return record if same else None


def _stored_record(path: Path) -> Record | None:
    try:
        return Record(**json.loads(_beside(path, ".json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # the record is absent or damaged
        return None


def _digest(path: Path, name: str) -> str:
    with path.open("rb") as file:
        new = lambda: hashlib.new(name, usedforsecurity=False)  # noqa: E731
        return hashlib.file_digest(file, new).hexdigest()


def _demand(url: str, found: str, expected: str | None) -> None:
    if expected is not None and found != expected.lower():
        raise PresetError(
            f"{url}: sha256 is {found}, expected {expected.lower()}. The file was changed at its "
            "source, or on the way here; it is not used."
        )


@contextlib.contextmanager
def _disk_errors(url: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # from files; the client's own errors are no OSError
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise PresetError(
            f"{url}: {'the disk is full' if full else 'the cache cannot be used'} ({folder}: "
            f"{error}). Make room, or name another folder in KERAS_VIT_CACHE; the next call "
            "resumes the download."
        ) from error


def _download(url: str, path: Path, sha256: str | None, check: bool) -> None:
    """Downloads the file to `path`, unless another process has done so meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(_beside(path, ".lock")):  # the system releases it when its process dies
        if record := _kept(path, check):
            return _demand(url, record.sha256, sha256)
        if path.exists():
            log.warning("%s: not the bytes that were downloaded; it is fetched again.", path)
        part = _patiently(_official_or_mirror(url), path)
        found, first = _digest(part, "sha256"), _stored_record(path)
        try:
            _demand(url, found, sha256)
            if sha256 is None and first is not None and first.sha256 != found:
                raise PresetError(
                    f"{url}: sha256 is {found}, but {first.sha256} when it was first downloaded. "
                    f"The source was changed. Delete {_beside(path, '.json')} to accept it."
                )
        except PresetError:
            part.unlink()
            raise
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # a record on the disk must imply the bytes on the disk
        stat = part.stat()
        record = Record(url, found, stat.st_size, stat.st_mtime_ns)
        write_json(_beside(path, ".json"), dataclasses.asdict(record))
        part.replace(path)


def _patiently(url: str, path: Path) -> Path:
    from huggingface_hub.errors import HTTPError

    try:
        return retrying()(_receive, url, path)
    except (HTTPError, DamagedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk; huggingface_hub's error for a short download has no errno
        kept = sum(part.stat().st_size for part in _parts(path))
        raise PresetError(
            f"{url}: {error}. Gave up after {ATTEMPTS} attempts; check the connection and call "
            f"again. {kept} bytes are kept."
        ) from error


def _official_or_mirror(url: str) -> str:
    mirror = os.environ.get("KERAS_VIT_BUCKET")
    if mirror and url.startswith(OFFICIAL):
        return mirror.rstrip("/") + "/" + url.removeprefix(OFFICIAL)
    return url


def _receive(url: str, path: Path) -> Path:
    """Returns the path of the verified download, which is not renamed yet."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get

    etag, size, md5 = _ask(url)
    # Without a strong ETag it is unknown whether a part belongs to today's file.
    strong = etag if etag.startswith('"') else ""
    part = _beside(path, f".{hashlib.sha256(strong.encode()).hexdigest()[:16]}.part")
    for other in _parts(path):
        if other != part or not strong:
            other.unlink()
    with part.open("ab") as file:
        if size is not None and file.tell() > size:
            file.truncate(0)  # bytes beyond the end of the file: the server stated another size
        have = file.seek(0, os.SEEK_END)
        if size is not None and (free := shutil.disk_usage(part.parent).free) < size - have:
            raise OSError(errno.ENOSPC, f"{size - have} bytes to come, {free} free")
        headers = _HEADERS | ({"If-Range": strong} if have else {})
        try:
            http_get(
                url,
                file,
                resume_size=have,
                expected_size=size,
                headers=headers,
                displayed_filename=path.name,
            )
        except ValueError as error:  # of a header that is no number
            raise DamagedError(f"the answer is not one of HTTP ({error})") from error
        except HfHubHTTPError as error:
            if error.response.status_code != _NOT_SATISFIABLE:
                raise
            file.truncate(0)
            raise DamagedError("the kept part is longer than the file") from error
    if md5 and (found := _digest(part, "md5")) != md5:
        part.unlink()
        raise DamagedError(f"md5 is {found}, the server announced {md5}")
    return part


def _ask(url: str) -> tuple[str, int | None, str | None]:
    """Returns the server's ETag, size in bytes and md5 (hexadecimal) of a file."""
    from huggingface_hub.utils import get_session, hf_raise_for_status

    answer = get_session().head(url, headers=_HEADERS, timeout=TIMEOUT)
    status, headers = answer.status_code, answer.headers
    if status in (404, 410):
        raise NotFoundError(f"{url}: the server has no such file (status {status}).")
    if status in TRANSIENT:
        hf_raise_for_status(answer)
    if status != 200:
        raise PresetError(
            f"{url}: the server answers {status} {answer.reason_phrase}; expected 200. "
            "Check that the file is public, and that no proxy stands in between."
        )
    length = headers.get("Content-Length", "")
    size = int(length) if length.isdecimal() else None
    return headers.get("ETag", ""), size, _announced_md5(headers)


def _announced_md5(headers: Any) -> str | None:
    """Returns the md5 of the file in hexadecimal, from `x-goog-hash: crc32c=...,md5=...`."""
    if headers.get("x-goog-stored-content-encoding", "identity") != "identity":
        return None  # the md5 of compressed bytes, which the server decompresses
    found = re.search(r"\bmd5=([\w+/]{22}==)", headers.get("x-goog-hash", ""))
    return base64.b64decode(found[1]).hex() if found else None
