"""Downloads files over HTTPS once, checks them, and keeps them for use without a network.

huggingface_hub's client makes the connections, receives and resumes. A file gets its name in the
cache when it is an npz file, complete, and its md5 is the server's; beside it, `NAME.json` records
its sha256, with which each time stamp of the file is compared once. A process killed at any moment
leaves a complete file, a part that the next call resumes, or no file.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from keras_vit.errors import KerasViTError, PresetError, WriteError, shown
from keras_vit.presets.cache import cache_folder, has_sha256
from keras_vit.presets.connection import bounded
from keras_vit.presets.place import Location
from keras_vit.presets.refusals import (
    HostileError,
    SlowError,
    disk_refusal,
    first_sentence,
    is_busy,
    stated_wait,
)
from keras_vit.support.files import open_plain, write_json
from keras_vit.support.text import log

OFFICIAL = "https://storage.googleapis.com/"
"""Address of Google's buckets; the environment variable KERAS_VIT_BUCKET replaces it."""
_MIRROR = re.compile(
    r"(?i:(https?://)(?:([^\s/]*)@)?((?:\[[\w:.%]+\]|[\w.-]+)(?::\d+)?(?:/[^\s@?#]*)?))"
)


class NotFoundError(PresetError):
    """The server has no such file."""


def fetch(url: str, *alternatives: str, doubt: str = "") -> Path:
    """Returns the local path of a file, after a download if necessary.

    A download resumes an interrupted one, and is compared with the md5 that the server states. A
    file that was damaged in the cache is fetched again. Of several processes with the same request
    one downloads. With KERAS_VIT_OFFLINE or HF_HUB_OFFLINE in the environment only the cache is
    used.

    Args:
        url: percent-encoded. KERAS_VIT_BUCKET replaces `OFFICIAL` in it.
        *alternatives: further URLs, tried in turn if the server has no file at the previous one.
        doubt: sentence that is added to the error if the server has none of them.

    Raises:
        PresetError: the download fails; the message states URL, cause and remedy.
    """
    places = {candidate: place(candidate) for candidate in (url, *alternatives)}
    damage = ""
    for candidate, path in places.items():
        with _failures_named(candidate, path, candidate):
            if _is_whole(candidate, path):
                return path
            if path.is_file():
                damage = f"damaged in the cache ({path})"
                log.warning("%s: %s; it is fetched again.", candidate, damage)
    if offline():
        raise PresetError(
            f"{url}: {damage or f'not in the cache ({places[url]})'}, and KERAS_VIT_OFFLINE or "
            "HF_HUB_OFFLINE forbids to connect. Unset it, or give the path of a file."
        )
    absent: list[str] = []
    for candidate, path in places.items():
        try:
            _download(candidate, path)
        except NotFoundError as error:
            absent.append(str(error))
            continue
        if absent:
            log.warning("%s Fetched %s instead.", " ".join(absent), candidate)
        return path
    missing = " ".join(absent)
    raise NotFoundError(f"{missing} It may have been moved or renamed; give its path.{doubt}")


def sha256_in_cache(*urls: str) -> tuple[str, str] | None:
    """Returns URL and sha256 of the first of these files that is in the cache, or None."""
    for url in urls:
        try:
            with open_plain(_beside(place(url), ".json")) as file:
                return url, json.load(file)["sha256"]
        # no download, or a damaged record
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            continue
    return None


class BucketFile(Location):
    """A file of the bucket.

    Args:
        url, alternatives, doubt: arguments of `fetch`.
    """

    def __init__(self, url: str, alternatives: Sequence[str] = (), doubt: str = "") -> None:
        self.address = url
        self.files = {place(url).name: None}
        self._urls = (url, *alternatives)
        self._doubt = doubt

    def open(self, name: str) -> BufferedReader:
        with _failures_named(self.address, place(self.address), self.address):
            return fetch(*self._urls, doubt=self._doubt).open("rb")


def offline() -> bool:
    """Returns whether the environment forbids connections."""
    values = (os.environ.get(name, "") for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value.strip().lower() in ("1", "true", "yes", "on") for value in values)


def place(url: str) -> Path:
    """Returns the path in the cache of a file at a URL of the catalog."""
    parts = urlsplit(url)
    return cache_folder() / parts.netloc / unquote(parts.path).removeprefix("/")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _is_whole(url: str, path: Path) -> bool:
    """Returns whether the file is there, with the sha256 that was recorded at its download."""
    recorded = sha256_in_cache(url)
    return path.is_file() and (recorded is None or has_sha256(path, recorded[1]))


def _download(url: str, path: Path) -> None:
    """Downloads the file to `path`, unless another process has done so meanwhile."""
    from filelock import FileLock, Timeout

    mirror, headers = _mirror()
    address, part = url.replace(OFFICIAL, mirror), _beside(path, ".part")
    with _failures_named(url, path, address), bounded() as call:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(_beside(path, ".lock"))  # the system releases it when its process dies
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            log.warning("%s: another process downloads it, and this one waits.", url)
            held = lock.acquire()
        with held:
            if not _is_whole(url, path):
                if part.is_symlink() or part.is_fifo():  # it would be written elsewhere
                    part.unlink()
                call.most, md5 = _ask(address, headers)
                sha256 = _receive(address, headers, part, path.name, call.most, md5)
                write_json(_beside(path, ".json"), {"url": url, "sha256": sha256})
                part.replace(path)


def _mirror() -> tuple[str, dict[str, str]]:
    """Returns the address that replaces `OFFICIAL`, and the headers of a request there.

    A user and a password in KERAS_VIT_BUCKET become a header, since messages name the address.
    """
    headers = {"User-Agent": "keras_vit"}
    stated = os.environ.get("KERAS_VIT_BUCKET", "").strip() or OFFICIAL
    if (match := _MIRROR.fullmatch(stated)) is None:
        found = stated.rpartition("@")[2].partition("?")[0]
        raise PresetError(
            f"KERAS_VIT_BUCKET is {shown(found)}; expected https://host or https://host/folder, "
            "without ? and #. Correct or unset it."
        )
    scheme, user, rest = match.groups()
    if user:
        both = unquote(user if ":" in user else f"{user}:").encode()
        headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
    return f"{scheme}{rest.rstrip('/')}/", headers


@contextlib.contextmanager
def _failures_named(url: str, path: Path, address: str) -> Iterator[None]:
    """Turns failures of the disk and of the server into a `PresetError` with a remedy."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        yield
    except WriteError as error:
        refusal = disk_refusal(error, _beside(path, ".json"), "KERAS_VIT_CACHE")
        raise PresetError(f"{url}: {refusal}") from error
    except KerasViTError:
        raise
    except HfHubHTTPError as error:
        wait = stated_wait(error.response)
        asks = f" and asks to wait {wait:,} s" if wait else ""
        check = "" if is_busy(error.response.status_code) else _CHECK
        answer = _answers(error.response)
        raise PresetError(f"{address}: {answer}{asks}{check}. {_AGAIN}") from error
    except Exception as error:  # an answer of another form raises many types
        if isinstance(error, OSError) and error.errno is not None:
            refusal = disk_refusal(error, path.parent, "KERAS_VIT_CACHE")
            raise PresetError(f"{url}: {refusal} {_AGAIN}") from error
        reason = first_sentence(error)
        if not isinstance(error, OSError | HTTPError | HostileError | SlowError):
            reason = f"the answer cannot be read ({type(error).__name__}: {reason})"
        raise PresetError(f"{address}: {reason}. Check the connection. {_AGAIN}") from error


_AGAIN = "The next call resumes the download."
_CHECK = (
    "; expected 200. Check that the file is public, and that no proxy stands in between; or try "
    "again later"
)
_NO_WEIGHTS = (
    "the answer is no npz file, perhaps a page to log in to the network, or cut short. Open a web "
    "page, then call again; the cache is unchanged."
)


def _receive(
    url: str, headers: dict[str, str], part: Path, name: str, size: int | None, md5: str | None
) -> str:
    """Downloads to `part`, and returns the sha256 of the file after a comparison of its md5."""
    from huggingface_hub.file_download import http_get

    with part.open("a+b") as file:
        long = size is not None and file.tell() > size
        file.seek(0)
        if md5 is None or long or not b"PK\x03\x04".startswith(file.read(4)):
            file.truncate(0)  # without a checksum it is unknown whether a part fits the rest
        resumed = file.seek(0, os.SEEK_END)
        http_get(
            url,
            file,
            resume_size=resumed,
            expected_size=size,
            headers=headers,
            displayed_filename=name,
        )
        os.fsync(file.fileno())  # the name of a whole file must imply its bytes on the disk
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if md5 not in (None, digest):
            part.unlink()
            if resumed:  # the old part has bytes of another file
                return _receive(url, headers, part, name, size, md5)
            raise PresetError(
                f"{url}: damaged on its way: its md5 is {digest}, the server announced {md5}. "
                "Call again, or try another network."
            )
        file.seek(0)
        head = file.read(30 + 2**16)  # of the first member, whose name begins at byte 30
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        if not (first.endswith(b".npy") and zipfile.is_zipfile(file)):
            part.unlink()
            raise PresetError(f"{url}: {_NO_WEIGHTS}")
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _answers(response: Any) -> str:
    return f"the server answers {response.status_code} {response.reason_phrase}".rstrip()


def _ask(url: str, headers: dict[str, str]) -> tuple[int | None, str | None]:
    """Returns the size in bytes and the md5 (hexadecimal) that the server states for a file."""
    from huggingface_hub.utils import http_backoff

    answer = http_backoff(
        "HEAD", url, headers=headers, follow_redirects=True, retry_on_exceptions=()
    )
    if answer.status_code in (404, 410):
        raise NotFoundError(f"{url}: the server has no such file (status {answer.status_code}).")
    if answer.status_code != 200:
        raise PresetError(f"{url}: {_answers(answer)}{_CHECK}.")
    if "html" in answer.headers.get("Content-Type", ""):
        raise PresetError(f"{url}: {_NO_WEIGHTS}")
    length = answer.headers.get("Content-Length", "")
    # x-goog-hash: crc32c=...,md5=...
    stated = re.search(r"\bmd5=([\w+/]{22}==)", answer.headers.get("x-goog-hash", ""))
    md5 = base64.b64decode(stated[1]).hex() if stated else None
    return int(length) if length.isdecimal() else None, md5
