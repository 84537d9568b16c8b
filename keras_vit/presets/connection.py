"""Limits on the time of huggingface_hub's requests, and checks of the names in the Hub's answers.

Other libraries in the process share huggingface_hub's client, and keep its behaviour: limits and
checks act inside `bounded` alone. Xet's downloads have limits of their own.

huggingface_hub joins the ETag and the commit of an answer to paths of its cache unchecked. Report:
`support/fixes/faults.py`.
"""

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from keras_vit.presets.refusals import BUSY, HostileError, SlowError, stated_wait
from keras_vit.support.text import log

if TYPE_CHECKING:
    from httpx2 import Request, Response

TIMEOUT = 10.0
"""Seconds for a connection, for the first byte of an answer, and for each pause in it."""
SENDING_TIMEOUT = 60.0
"""The same for requests that send: the Hub answers after it has stored the content."""
LONGEST_WAIT = 60.0
"""Seconds that a busy server may ask one call to wait, all its answers together."""
PERIOD, LEAST_BYTES = 60.0, 65_536
"""An answer that brings fewer bytes in a period of so many seconds ends."""

_patience: ContextVar[float | None] = ContextVar("patience", default=None)
"""Seconds that the present call may still wait for a busy server; None outside `bounded`."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Limits the time of every request to the Hub or the bucket in this block, and checks names.

    A request that states a limit keeps it, such as HF_HUB_DOWNLOAD_TIMEOUT for downloads.

    Raises:
        HostileError: an answer has an ETag or a commit that is no plain name.
        SlowError: an answer comes too slowly.
        HfHubHTTPError: the server asks for a longer wait than `LONGEST_WAIT`.
    """
    from huggingface_hub.utils import get_session

    _check_names()
    hooks = get_session().event_hooks
    if _limit_pauses not in hooks["request"]:
        hooks["request"].append(_limit_pauses)
        hooks["response"].append(_limit_waits)
    before = _patience.set(LONGEST_WAIT)
    try:
        yield
    finally:
        _patience.reset(before)


def _limit_pauses(request: "Request") -> None:
    """Gives a request a limit where it has none."""
    if _patience.get() is not None:
        most = TIMEOUT if request.method in ("GET", "HEAD") else SENDING_TIMEOUT
        limits = request.extensions.get("timeout", {})
        stated = {kind: limit for kind, limit in limits.items() if limit is not None}
        every = dict.fromkeys(("connect", "read", "write", "pool"), most)
        request.extensions["timeout"] = every | stated


def _limit_waits(response: "Response") -> None:
    """Limits the time of a body, and the wait that a busy server asks for."""
    from huggingface_hub.utils import hf_raise_for_status

    if (patience := _patience.get()) is None:
        return
    response.stream = _steady(response.stream)
    if response.status_code in BUSY and (wait := stated_wait(response)):
        if wait > patience:
            response.read()
            hf_raise_for_status(response)
        log.warning("%s is busy, and asks to wait %d s.", response.url.host, wait)
        _patience.set(patience - wait)


def _steady(stream: Any) -> Any:
    """Returns the bytes of an answer as a stream that ends if they come too slowly."""
    from httpx2 import SyncByteStream  # of huggingface_hub's client

    class Steady(SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            chunks, waited, received = iter(stream), 0.0, 0
            while True:
                start = time.monotonic()
                if (chunk := next(chunks, None)) is None:
                    return
                # A process that was stopped has not waited for the server.
                waited += min(time.monotonic() - start, TIMEOUT)
                received += len(chunk)
                if waited > PERIOD:
                    if received < LEAST_BYTES:
                        raise SlowError(f"{received} bytes came in {waited:.0f} s")
                    waited, received = 0.0, 0
                yield chunk

        def close(self) -> None:
            stream.close()

    return Steady()


@functools.cache
def _check_names() -> None:
    """Lets `hf_hub_download` see no ETag and no commit that could leave the cache."""
    from huggingface_hub import constants, errors, file_download

    ask = file_download.get_hf_file_metadata

    @functools.wraps(ask)
    def ask_and_check(*args: Any, **options: Any) -> Any:
        if _patience.get() is None:
            return ask(*args, **options)
        # Further attempts would take minutes, on a client without the hooks of `bounded`.
        options |= {"timeout": constants.HF_HUB_ETAG_TIMEOUT, "retry_on_errors": False}
        try:
            facts = ask(*args, **options)
        except errors.HfHubHTTPError as error:  # for a missing file its commit names a path too
            _refuse_path("commit", error.response.headers.get("X-Repo-Commit"))
            raise
        _refuse_path("commit", facts.commit_hash)
        _refuse_path("ETag", facts.etag)
        return facts

    file_download.get_hf_file_metadata = ask_and_check


_PLAIN = {"commit": "[0-9a-f]{40}", "ETag": r"(?!\.)[A-Za-z0-9._-]+"}


def _refuse_path(kind: str, name: str | None) -> None:
    if name is not None and not re.fullmatch(_PLAIN[kind], name):
        raise HostileError(f"its {kind} is {name[:200]!r}, which is no plain name")
