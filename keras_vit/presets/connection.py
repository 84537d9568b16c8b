"""Limits the time and size of the Hub's responses, and checks the names in them.

Other libraries in the process share huggingface_hub's client and are not affected: limits and
checks apply only inside `bounded`. There, files come by HTTP, because Xet's downloads have other
limits.

huggingface_hub joins the ETag and the commit of a response to paths of its cache unchecked:
`tests/presets/test_hub.py` has the canary.
"""

import contextlib
import dataclasses
import functools
import re
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from keras_vit.errors import PresetError
from keras_vit.presets.refusals import (
    HostileError,
    SlowError,
    first_sentence,
    is_busy,
    stated_wait,
)
from keras_vit.support.text import log

TIMEOUT = 10.0
"""Seconds for a connection, for the first byte of a response, and for each pause in it."""
SENDING_TIMEOUT = 60.0
"""The same for uploads: the Hub responds after it has stored the content."""
LONGEST_WAIT = 60.0
"""Seconds in total that a busy server may ask one call to wait."""
PERIOD, LEAST_BYTES = 60.0, 65_536
"""A call ends if it receives fewer bytes than this in a period of so many seconds."""
_RESTARTS = 5
"""How often a server may send a file from its start when a call asks for the rest."""
_HEADERS = 2**20
"""Bytes that headers and framing may add to a response."""


class _Call:
    """What a call has received and may still wait for.

    Attributes:
        most: bytes that a response may have; None for any number.
        patience: seconds that the server may still ask to wait.
    """

    def __init__(self, most: int | None) -> None:
        self.most, self.patience, self.length, self.restarts = most, LONGEST_WAIT, 0, 0
        self.start_period()

    def start_period(self) -> None:
        self.waited, self.received, self.clock = 0.0, 0, time.monotonic()

    def receive(self, count: int) -> None:
        """Counts bytes that came, and ends the call if they are too few or too many."""
        now = time.monotonic()
        # The time in which this process was suspended does not count.
        self.waited += min(now - self.clock, TIMEOUT)
        self.received, self.length, self.clock = self.received + count, self.length + count, now
        if self.most is not None and self.length > 2 * self.most + _HEADERS:
            raise HostileError(f"it has more than the expected {self.most:,} bytes")
        if self.waited > PERIOD:
            if self.received < LEAST_BYTES:
                raise SlowError(f"{self.received} bytes came in {self.waited:.0f} s")
            self.start_period()


_call: ContextVar[_Call | None] = ContextVar("call", default=None)
"""The current call; None outside `bounded`."""


@contextlib.contextmanager
def bounded(most: int | None = None) -> Iterator[None]:
    """Limits time and size of every response of the Hub in this block; checks names.

    A request that states a limit keeps it, such as HF_HUB_DOWNLOAD_TIMEOUT for downloads.

    Args:
        most: stated size of a response in bytes, which may be exceeded twofold; None for any.

    Raises:
        HostileError: a response has an invalid ETag or commit, or too many bytes.
        SlowError: a response is too slow.
        PresetError: a proxy or certificates that the environment names cannot be used.
        HfHubHTTPError: the server asks for a longer wait than `LONGEST_WAIT`.
    """
    from huggingface_hub.utils import get_session

    _change_downloads()
    try:
        hooks = get_session().event_hooks
    except Exception as error:  # what the environment names cannot be used
        raise PresetError(
            f"The connection cannot be set up ({type(error).__name__}: {first_sentence(error)}). "
            "Check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE in the environment."
        ) from error
    if _prepare not in hooks["request"]:
        hooks["request"].append(_prepare)
        hooks["response"].append(_limit_waits)
    before = _call.set(_Call(most))
    try:
        yield
    finally:
        _call.reset(before)


def _prepare(request: Any) -> None:
    """Gives a request limits if it has none, and asks for an uncompressed, counted response."""
    if (call := _call.get()) is None:
        return
    longest = TIMEOUT
    if request.method not in ("GET", "HEAD"):
        longest = SENDING_TIMEOUT
        call.start_period()
    call.length = 0
    limits = request.extensions["timeout"].items()
    timeout = {kind: longest if limit is None else limit for kind, limit in limits}
    request.extensions |= {"timeout": timeout, "trace": _count_new}
    request.headers["Accept-Encoding"] = "identity"


def _count_new(event: str, facts: dict[str, Any]) -> None:
    if event.endswith(("connect_tcp.complete", "start_tls.complete")):
        _count(facts["return_value"])


def _count(stream: Any) -> None:
    """Counts the bytes of a connection, because a response exists only after its last header."""
    read = stream.read

    def read_and_count(*arguments: Any, **options: Any) -> Any:
        data = read(*arguments, **options)
        if (call := _call.get()) is not None:
            call.receive(len(data))
        return data

    if "read" not in vars(stream):
        stream.read = read_and_count


def _limit_waits(response: Any) -> None:
    """Limits the wait that a busy server asks for, and keeps a response from being unpacked."""
    from huggingface_hub.utils import hf_raise_for_status

    if (call := _call.get()) is None:
        return
    if stream := response.extensions.get("network_stream"):  # opened by another library, perhaps
        _count(stream)
    response.headers.pop("Content-Encoding", None)  # a small response could expand to any size
    if response.status_code == 200 and "Range" in response.request.headers:
        call.restarts += 1
        if call.restarts > _RESTARTS:
            raise SlowError("it stops repeatedly, and starts from the first byte again")
    if is_busy(response.status_code) and (wait := stated_wait(response)):
        if wait > call.patience:
            response.read()
            hf_raise_for_status(response)
        log.warning("%s is busy, and asks to wait %d s.", response.url.host, wait)
        call.patience -= wait


@functools.cache
def _change_downloads() -> None:
    """Keeps `hf_hub_download` from ETags and commits that could leave the cache, and from Xet."""
    from huggingface_hub import constants, errors, file_download

    ask, has_xet = file_download.get_hf_file_metadata, file_download.is_xet_available

    @functools.wraps(ask)
    def ask_and_check(*args: Any, **options: Any) -> Any:
        if _call.get() is None:
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
        return dataclasses.replace(facts, xet_file_data=None)

    file_download.get_hf_file_metadata = ask_and_check
    file_download.is_xet_available = lambda: _call.get() is None and has_xet()


_PLAIN = {"commit": "[0-9a-f]{40}", "ETag": r"(?!\.)[A-Za-z0-9._-]{1,128}"}


def _refuse_path(kind: str, name: str | None) -> None:
    if name is not None and not re.fullmatch(_PLAIN[kind], name):
        raise HostileError(f"its {kind} {name[:200]!r} is invalid")
