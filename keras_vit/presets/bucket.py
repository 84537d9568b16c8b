"""Downloads files of Google's buckets by pooch, and caches them for use without a network.

A file gets its name in the cache when it is complete and a zip file, as every npz is; `NAME.json`
next to it records its sha256 for the provenance of a model.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from keras_vit.errors import KerasViTError, PresetError, shown
from keras_vit.presets.cache import cache_folder
from keras_vit.presets.connection import TIMEOUT
from keras_vit.presets.place import Location
from keras_vit.presets.refusals import disk_refusal
from keras_vit.support.files import open_plain
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

    With KERAS_VIT_OFFLINE or HF_HUB_OFFLINE in the environment only the cache is used.

    Args:
        url: percent-encoded. KERAS_VIT_BUCKET replaces `OFFICIAL` in it.
        *alternatives: further URLs, tried in turn if the server has no file at the previous one.
        doubt: sentence that is added to the error if the server has no file at any URL.

    Raises:
        PresetError: the download fails; the message states URL, cause and fix.
    """
    places = {candidate: place(candidate) for candidate in (url, *alternatives)}
    for candidate, path in places.items():
        with _failures_named(candidate, path):
            if path.is_file():
                return path
    if offline():
        raise PresetError(
            f"{url}: not in the cache ({places[url]}), and KERAS_VIT_OFFLINE or HF_HUB_OFFLINE "
            "forbids downloads. Unset it, or give the path of a file."
        )
    absent: list[str] = []
    for candidate, path in places.items():
        try:
            _download(candidate, path)
        except NotFoundError as error:
            absent.append(str(error))
            continue
        if absent:
            log.warning("%s Downloaded %s instead.", " ".join(absent), candidate)
        return path
    missing = " ".join(absent)
    raise NotFoundError(f"{missing} It may have been moved or renamed; give its path.{doubt}")


def sha256_in_cache(*urls: str) -> tuple[str, str] | None:
    """Returns URL and sha256 of the first of these files that was downloaded, or None."""
    for url in urls:
        try:
            with open_plain(_record(place(url))) as file:
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
        with _failures_named(self.address, place(self.address)):
            return fetch(*self._urls, doubt=self._doubt).open("rb")


def offline() -> bool:
    """Returns whether the environment forbids connections."""
    values = (os.environ.get(name, "") for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value.strip().lower() in ("1", "true", "yes", "on") for value in values)


def place(url: str) -> Path:
    """Returns the path in the cache of a file at a URL of the catalog."""
    parts = urlsplit(url)
    return cache_folder() / parts.netloc / unquote(parts.path).removeprefix("/")


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _download(url: str, path: Path) -> None:
    """Downloads a file to `path`, and records its sha256; a failure leaves no files.

    Raises:
        NotFoundError: the server has no such file.
        PresetError: the download fails.
    """
    import pooch
    from huggingface_hub.utils import are_progress_bars_disabled

    mirror, auth = _mirror()
    address = url.replace(OFFICIAL, mirror)
    receive = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty() and not are_progress_bars_disabled(),
        chunk_size=2**20,
        timeout=TIMEOUT,
        auth=auth,
        headers={"Accept-Encoding": "identity", "User-Agent": "keras_vit"},
    )

    def receive_npz(address: str, temporary: str, caller: Any) -> None:
        receive(address, temporary, caller)
        if not zipfile.is_zipfile(temporary):
            raise PresetError(
                f"{address}: the response is not an npz file, perhaps a login page of the network. "
                "Open a web page, then try again."
            )
        record = json.dumps({"url": url, "sha256": pooch.file_hash(temporary)})
        _record(path).write_text(record, encoding="utf-8")
        # Only this user may read pooch's temporary file, but users may share a cache.
        shutil.copymode(_record(path), temporary)

    def is_hidden(record: Any) -> bool:
        return False

    # pooch's logger would advise users to state the sha256 in a call of pooch.
    pooch.get_logger().addFilter(is_hidden)
    try:
        with _failures_named(address, path):
            pooch.retrieve(address, None, path.name, path.parent, downloader=receive_npz)
    finally:
        pooch.get_logger().removeFilter(is_hidden)


def _mirror() -> tuple[str, tuple[bytes, bytes] | None]:
    """Returns the address that replaces `OFFICIAL`, and the user and password of requests there.

    They are not part of the address, since messages name it.
    """
    stated = os.environ.get("KERAS_VIT_BUCKET", "").strip() or OFFICIAL
    if (match := _MIRROR.fullmatch(stated)) is None:
        found = stated.rpartition("@")[2].partition("?")[0]
        raise PresetError(
            f"KERAS_VIT_BUCKET is {shown(found)}; expected https://host or https://host/folder, "
            "without ? and #. Correct or unset it."
        )
    scheme, login, rest = match.groups()
    user, _, password = (login or "").partition(":")
    auth = (unquote(user).encode(), unquote(password).encode()) if login else None
    return f"{scheme}{rest.rstrip('/')}/", auth


@contextlib.contextmanager
def _failures_named(address: str, path: Path) -> Iterator[None]:
    """Turns failures of the disk and of the server into a `PresetError` with a fix."""
    from requests.exceptions import HTTPError

    try:
        yield
    except KerasViTError:
        raise
    except HTTPError as error:
        answer = f"{error.response.status_code} {error.response.reason}".rstrip()
        if error.response.status_code in (404, 410):
            raise NotFoundError(f"{address}: the server has no such file ({answer}).") from error
        raise PresetError(
            f"{address}: the server answers {answer}. Try again later; if this persists, check "
            "that the file is public, and that no proxy interferes."
        ) from error
    except OSError as error:
        # pooch replaces the system's error for a folder that may not be written.
        fault = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if fault.errno is not None:
            refusal = disk_refusal(fault, path.parent, "KERAS_VIT_CACHE")
            raise PresetError(f"{address}: {refusal}") from error
        # An error of requests, whose message may name a proxy with its password.
        raise PresetError(
            f"{address}: no connection, or it was interrupted ({type(error).__name__}). Check the "
            "network, HTTPS_PROXY and REQUESTS_CA_BUNDLE, then try again."
        ) from error
