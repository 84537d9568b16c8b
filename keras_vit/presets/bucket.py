"""Files over HTTPS, fetched once, checked, and kept for use without a network.

A file in the cache has three companions at most: `NAME.json`, what is known of it;
`NAME.part` with `NAME.part.json`, a download that was broken off; and `NAME.lock`.
The bytes get their name last, by a rename, when their length, the server's checksum and the
sha256 of the first download have been compared: a process killed at any moment leaves a whole
file, a part that the next call resumes, or nothing.
"""

import base64
import contextlib
import dataclasses
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import urllib3
from filelock import FileLock
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError
from urllib3.util import Retry, Timeout

from keras_vit.errors import PresetError
from keras_vit.files import write_json
from keras_vit.terminal import visible

log = logging.getLogger("keras_vit")

OFFICIAL = "https://storage.googleapis.com/"
"""Where the buckets of Google lie; the environment's KERAS_VIT_BUCKET stands in for it."""

_RETRIED = (408, 429, 500, 502, 503, 504)
_CHUNK = 2**20


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long a download tries.

    Args:
        connect: seconds for a connection.
        read: seconds without a byte.
        attempts: failures in a row; one that came after a MiB of progress starts anew.
        backoff: seconds before the third attempt, doubled from one to the next.
        longest: seconds that a server's Retry-After may ask for.
    """

    connect: float = 10.0
    read: float = 60.0
    attempts: int = 6
    backoff: float = 1.0
    longest: int = 120

    def retry(self) -> Retry:
        # A machine without a network should say so soon; a damaged file is fetched once more.
        return Retry(
            total=self.attempts,
            connect=2,
            other=1,
            status_forcelist=_RETRIED,
            backoff_factor=self.backoff / 2,
            backoff_max=self.longest,
            retry_after_max=self.longest,
        )


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a file in the cache.

    Args:
        url: the official one, whichever mirror served it.
        sha256: of its bytes, at the first download.
        size: in bytes.
        mtime_ns: time of its last change; while it and the size stand, so do the bytes.
    """

    url: str
    sha256: str
    size: int
    mtime_ns: int


class NotFoundError(PresetError):
    """The server has no such file."""


class _ChecksumError(HTTPError):
    """The bytes are not those that the server announced."""


def fetch(
    url: str,
    *alternatives: str,
    sha256: str | None = None,
    check: bool = False,
    patience: Patience = Patience(),
) -> Path:
    """Returns the local path of a file, downloading it if need be.

    Resumes what an earlier call or process left; tries again with growing pauses, or after the
    server's Retry-After; verifies the length and the md5 of `x-goog-hash` where they are sent.
    Of several processes that ask at once one downloads. The sha256 of the first download is
    kept: a later one must have it too. A file in the cache is read again only where its size or
    time of change is another than recorded, or on request; one that is damaged is replaced.

    Args:
        url: http or https, percent-encoded. KERAS_VIT_BUCKET replaces `OFFICIAL` in it.
        *alternatives: tried in turn where the server does not know the one before.
        sha256: that the file must have, in hexadecimal.
        check: compute the sha256 of a file in the cache in any case.
        patience: how long to try.

    Raises:
        PresetError: names the URL, what happened, and what to do. With KERAS_VIT_OFFLINE or
            HF_HUB_OFFLINE in the environment nothing but the cache is asked.
    """
    urls = (url, *alternatives)
    places = [place(candidate) for candidate in urls]
    with _disk_errors(url, places[0].parent):
        for candidate, path in zip(urls, places, strict=True):
            if record := _kept(path, check):
                _demand(candidate, record.sha256, sha256)
                return path
        if offline():
            raise PresetError(
                f"{url}: not in the cache ({places[0]}), and KERAS_VIT_OFFLINE or HF_HUB_OFFLINE "
                "forbids to connect. Unset it, or give the path of a file."
            )
        absent: list[str] = []
        for candidate, path in zip(urls, places, strict=True):
            try:
                _download(candidate, path, sha256, check, patience)
            except NotFoundError as error:
                absent.append(str(error))
                continue
            if absent:
                log.warning("%s Fetched %s instead.", " ".join(absent), candidate)
            return path
    raise NotFoundError(" ".join(absent) + " It may have been moved or renamed; give its path.")


def record_of(url: str, *alternatives: str) -> Record | None:
    """Returns what is known of a file in the cache, or None if it is not there."""
    return next((r for u in (url, *alternatives) if (r := _kept(place(u), check=False))), None)


def cache_folder() -> Path:
    """Returns KERAS_VIT_CACHE, else `keras_vit` among the assets of Hugging Face's cache.

    That folder is made for libraries; HF_HOME and HF_ASSETS_CACHE move it.
    """
    if chosen := os.environ.get("KERAS_VIT_CACHE"):
        return Path(chosen).expanduser()
    from huggingface_hub.constants import HF_ASSETS_CACHE

    return Path(HF_ASSETS_CACHE).expanduser() / "keras_vit"


def offline() -> bool:
    """Whether the environment forbids connections."""
    values = (os.environ.get(name, "") for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value.strip().lower() in ("1", "true", "yes", "on") for value in values)


def place(url: str) -> Path:
    """Returns where the file of a URL lies in the cache, by the parts of the URL.

    Raises:
        PresetError: the URL is of another kind, or a part of it would lead elsewhere.
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


def _kept(path: Path, check: bool) -> Record | None:
    """The record of a whole file in the cache; None where there is no file, or a damaged one."""
    record = _stored_record(path)
    if record is None or not path.is_file():
        return None
    stat = path.stat()
    if not check and (stat.st_size, stat.st_mtime_ns) == (record.size, record.mtime_ns):
        return record
    same = stat.st_size == record.size and _sha256(path) == record.sha256
    return record if same else None


def _stored_record(path: Path) -> Record | None:
    try:
        return Record(**json.loads(_beside(path, ".json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # absent, or damaged with the disk
        return None


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
    except OSError as error:  # of files; urllib3's own are no OSError
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise PresetError(
            f"{url}: {'the disk is full' if full else 'the cache cannot be used'} ({folder}: "
            f"{error}). Make room, or name another folder in KERAS_VIT_CACHE; what has come is "
            "not fetched twice."
        ) from error


def _download(url: str, path: Path, sha256: str | None, check: bool, patience: Patience) -> None:
    """Puts the file at `path`, unless another process did while this one waited its turn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(_beside(path, ".lock")):  # the system releases it when its process dies
        if record := _kept(path, check):
            return _demand(url, record.sha256, sha256)
        if path.exists():
            log.warning("%s: not the bytes that were downloaded; it is fetched again.", path)
        part, state = _beside(path, ".part"), _beside(path, ".part.json")
        found = _complete(_official_or_mirror(url), part, state, patience)
        first = _stored_record(path)
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
            os.fsync(file.fileno())  # before its record, which would be believed
        stat = part.stat()
        record = Record(url, found, stat.st_size, stat.st_mtime_ns)
        write_json(_beside(path, ".json"), dataclasses.asdict(record))
        part.replace(path)
        state.unlink(missing_ok=True)


def _official_or_mirror(url: str) -> str:
    mirror = os.environ.get("KERAS_VIT_BUCKET")
    if mirror and url.startswith(OFFICIAL):
        return mirror.rstrip("/") + "/" + url.removeprefix(OFFICIAL)
    return url


def _complete(url: str, part: Path, state: Path, patience: Patience) -> str:
    """Receives over as many connections as it takes; the sha256 of the whole part."""
    retry = patience.retry()
    while True:
        before, busy, failure = _size(part), None, None
        try:
            busy = _receive(url, part, state, patience)
            if busy is None:
                return _verified(part, state)
        except HTTPError as error:
            failure = error.reason if isinstance(error, MaxRetryError) and error.reason else error
        if _size(part) - before >= _CHUNK:
            retry = patience.retry()
        what = f"status {busy.status} {busy.reason or ''}".strip() if busy else str(failure)
        try:
            retry = retry.increment("GET", url, busy, failure)
        except HTTPError as error:
            raise PresetError(
                f"{url}: {what}. Gave up after {len(retry.history) + 1} attempts; check the "
                f"connection and call again. {_size(part)} bytes are kept."
            ) from error
        log.info("%s: %s; trying again.", url, what)
        retry.sleep(busy)


def _receive(
    url: str, part: Path, state: Path, patience: Patience
) -> urllib3.BaseHTTPResponse | None:
    """Appends what one connection gives; returns the response of a server that asks to wait."""
    known = _state(state)
    have = _size(part) if known.get("etag") else 0
    if have and have == known.get("size"):
        return None
    headers = {"User-Agent": "keras_vit", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": known["etag"]}
    response = _pool(url).request(
        "GET",
        url,
        headers=headers,
        preload_content=False,
        timeout=Timeout(connect=patience.connect, read=patience.read),
        # Redirects alone; `_complete` counts the failures of requests and of bodies together.
        retries=Retry(
            total=None,
            connect=False,
            read=False,
            other=False,
            redirect=5,
            respect_retry_after_header=False,
        ),
    )
    try:
        return _take(response, url, part, state, have)
    finally:
        response.close()


def _take(
    response: urllib3.BaseHTTPResponse, url: str, part: Path, state: Path, have: int
) -> urllib3.BaseHTTPResponse | None:
    if response.status in _RETRIED:
        return response
    if response.status in (404, 410):
        raise NotFoundError(f"{url}: the server has no such file (status {response.status}).")
    etag = response.headers.get("ETag", "")
    resumed = response.status == 206
    start, size = _range(response) if resumed else (0, _length(response))
    if response.status == 416 or (resumed and (start, etag) != (have, _state(state).get("etag"))):
        part.unlink(missing_ok=True)
        raise _ChecksumError("the file at the server is another than the part that is kept")
    if response.status not in (200, 206):
        raise PresetError(
            f"{url}: the server answers {response.status} {response.reason or ''}; expected 200. "
            "Check that the file is public, and that no proxy stands in between."
        )
    if not resumed:
        part.unlink(missing_ok=True)
        # A weak ETag, or none, cannot tell whether a part belongs to the file of tomorrow.
        strong = etag if etag.startswith('"') else None
        write_json(state, {"etag": strong, "size": size, "md5": _announced_md5(response)})
    if size is not None and (free := shutil.disk_usage(part.parent).free) < size - have:
        raise OSError(errno.ENOSPC, f"{size - have} bytes to come, {free} free")
    with part.open("ab") as file, _progress(part, start, size) as advance:
        for chunk in response.stream(_CHUNK, decode_content=False):
            file.write(chunk)
            advance(len(chunk))
    return None


def _verified(part: Path, state: Path) -> str:
    """The sha256 of the part, if it is as long and has the md5 that the server said."""
    known, size = _state(state), _size(part)
    if known.get("size") not in (None, size):
        if size > known["size"]:
            part.unlink()
        raise ProtocolError(f"{size} bytes came, the server announced {known['size']}")
    if (announced := known.get("md5")) is not None and (md5 := _md5(part)) != announced:
        part.unlink()
        raise _ChecksumError(f"md5 is {md5}, the server announced {announced}")
    return _sha256(part)


def _pool(url: str) -> urllib3.PoolManager:
    """Connections, through the proxy that the environment names, if any."""
    target = urlsplit(url)
    proxy = urllib.request.getproxies().get(target.scheme)
    if proxy and not urllib.request.proxy_bypass(target.hostname or ""):
        return urllib3.ProxyManager(proxy)
    return urllib3.PoolManager()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _state(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _length(response: urllib3.BaseHTTPResponse) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _range(response: urllib3.BaseHTTPResponse) -> tuple[int, int | None]:
    """First byte and size of the whole file, out of `Content-Range: bytes 5-9/10`."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if found is None:
        return -1, None
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _announced_md5(response: urllib3.BaseHTTPResponse) -> str | None:
    """The md5 of the whole file in hexadecimal, out of `x-goog-hash: crc32c=...,md5=...`."""
    if response.headers.get("x-goog-stored-content-encoding", "identity") != "identity":
        return None  # of the compressed bytes, which the server unpacked on the way
    for item in response.headers.get("x-goog-hash", "").split(","):
        kind, _, value = item.strip().partition("=")
        if kind == "md5":
            try:
                return base64.b64decode(value, validate=True).hex()
            except ValueError:
                return None
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextlib.contextmanager
def _progress(part: Path, start: int, size: int | None) -> Iterator[Callable[[int], object]]:
    """A bar on stderr, where that is a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from keras_vit.terminal.screen import Screen

    console = Screen(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(
            visible(part.name.removesuffix(".part")), total=size, completed=start
        )
        yield lambda count: progress.advance(task, count)
